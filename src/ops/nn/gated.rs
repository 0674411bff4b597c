//! Activations that are more than a map: softmax, glu, prelu, rrelu.

use crate::ops::core::op::{
    Batch, Cast, F, FM, FMO, O, OpDef, Plan, Ret, X, compose, forward, kernel,
};
use crate::ops::core::rules;
use crate::ops::f;
use crate::random::SharedGenerator;
use crate::{DType, Dims, Result, Tensor, cpu, ensure, kernels, warning};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.rrelu",
        "(Tensor self, float lower, float upper, *, Generator? generator=None) -> (Tensor, Tensor)",
        0,
        body!(rule_rrelu, run_rrelu, scratch: |a, _, _, room| {
            room.dense(a.input, DType::F64)?;
            room.empty(a.input.shape(), DType::F64)?;
            room.empty(a.input.shape(), DType::F64).map(drop)
        }).random(None),
        "x where positive, else x times a random slope; and what each element is multiplied by.",
    ).samples("f32[3, 4], 0.1, 0.3")
    .grad("RreluWithNoiseBackward0 in place RreluWithNoiseBackward1 | self: where(self.lt(0), grad * (result / self), grad)"),
    forward(
        "_nn.rrelu_mean",
        "(Tensor self, float slope)",
        0,
        |a| {
            let call = f::_NnLeakyRelu::new(a.input).negative_slope(a.slope);
            Ok(call.args()?.to_owned())
        },
        "rrelu with the mean of its slopes.",
    ).samples("f32[3, 4], 0.2")
    .grad("RreluWithNoiseBackward0 in place RreluWithNoiseBackward1 | self: leaky_relu_backward(grad, self, slope, False) || self: leaky_relu_backward(grad, result, slope, True)"),
    compose(
        "prelu",
        "(Tensor self, Tensor weight)",
        FM,
        |a| prelu(a.input, a.weight),
        "x where positive, else x times a weight for each channel.",
    ).samples("f32[3, 4], f32[4]; f32[3], f32[1]")
    .amp(Cast::Low, Cast::Low),
    compose(
        "nn.functional.prelu",
        "(Tensor self, Tensor weight)",
        F,
        |a| f::prelu(a.input, a.weight),
        "x where positive, else x times a weight for each channel.",
    ).samples("f32[20], weight=f32[()]")
    .amp(Cast::Low, Cast::Low),
    compose(
        "rrelu",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        |a| rrelu(a.input, a.lower.to_f64(), a.upper.to_f64(), a.training, a.generator, false),
        "Leaky relu with a random slope.",
    ).samples("f32[3, 4]; f32[3, 4], 0.1, 0.3, True"),
    compose(
        "rrelu_",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        |a| rrelu(a.input, a.lower.to_f64(), a.upper.to_f64(), a.training, a.generator, true),
        "Leaky relu with a random slope, in place.",
    ).samples("f32[3, 4]"),
    compose(
        "nn.functional.rrelu",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False, bool inplace=False)",
        F,
        |a| rrelu(a.input, a.lower, a.upper, a.training, None, a.inplace),
        "Leaky relu with a random slope.",
    ).samples("f32[3, 4], upper=0.3333; f32[3, 4], lower=0.0, upper=1.0, training=True"),
    compose(
        "nn.functional.rrelu_",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False)",
        F,
        |a| rrelu(a.input, a.lower, a.upper, a.training, None, true),
        "Leaky relu with a random slope, in place.",
    ).samples("f32[3, 4]; f32[3], 0.1, 0.3, True"),
    compose(
        "nn.functional.logsigmoid",
        "(Tensor self)",
        F | O | X,
        |a| f::_nn_log_sigmoid(&a.input.contiguous()?),
        "The logarithm of sigmoid(x).",
    ).samples("f32[3, 4]"),
    compose(
        "nn.functional.glu",
        "(Tensor self, int dim=-1)",
        F,
        |a| glu(a.input, a.dim),
        "The first half along a dimension times the sigmoid of the second.",
    ).samples("f64[2, 3, 4], 0")
    .grad("self: _grad.glu_backward(grad, self, dim)"),
    kernel(
        "softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        FMO | X,
        body!(|a| rule_softmax(a.input, a.dim, a.dtype, false), anywhere: softmax, scratch: |a, _, outs, room| cpu::softmax::scratch(room, &outs[0], a.input)),
        "exp(x) over the sum of exp(x) along a dimension.",
    ).samples("f32[3, 4], 0; b8[3, 4], -1, dtype=f64; f32[3, 4], 0, dtype=f64")
    .grad("self: _softmax_backward_data(grad, result, dim, self.dtype)")
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "log_softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        FMO | X,
        body!(|a| rule_softmax(a.input, a.dim, a.dtype, true), anywhere: log_softmax, scratch: |a, _, outs, room| cpu::softmax::scratch(room, &outs[0], a.input)),
        "The logarithm of softmax along a dimension.",
    ).samples("f32[3, 4], 0; b8[3, 4], -1, dtype=f64; f32[3, 4], 0, dtype=f64")
    .grad("self: _log_softmax_backward_data(grad, result, dim, self.dtype)")
    .amp(Cast::Kept, Cast::Result),
    compose(
        "_safe_softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        F,
        |a| {
            let made = f::Softmax::new(a.input, a.dim).dtype(a.dtype).call()?;
            let none = f::AllDim::new(&f::isneginf(a.input)?, a.dim).keepdim(true).call()?;
            f::where_(&none, 0.0, &made)
        },
        "softmax, which is zeros where all is minus infinity.",
    ).samples("f32[3, 4], 1; f32([[0., 1.], [-inf, -inf]]), 1, dtype=f64")
    .grad("self: _softmax_backward_data(grad, result, dim, self.dtype)")
    .batch(Batch::Shared(0)),
    compose(
        "special.softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        F,
        |a| f::Softmax::new(a.input, a.dim).dtype(a.dtype).call(),
        "exp(x) over the sum of exp(x) along a dimension.",
    ).samples("f32[3, 4], 0; f32[3, 4], 1, dtype=f64"),
    compose(
        "special.log_softmax",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        F,
        |a| f::LogSoftmax::new(a.input, a.dim).dtype(a.dtype).call(),
        "The logarithm of softmax along a dimension.",
    ).samples("f32[3, 4], 1; f32[3, 4], 0, dtype=f64"),
    compose(
        "nn.functional.softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| {
            let dim = legacy_dim(a.input, a.dim, "softmax");
            f::Softmax::new(a.input, dim).dtype(a.dtype).call()
        },
        "exp(x) over the sum of exp(x) along a dimension.",
    ).samples("f32[3, 4], 0; f32[3, 4], 0, dtype=f64"),
    compose(
        "nn.functional.log_softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| {
            let dim = legacy_dim(a.input, a.dim, "log_softmax");
            f::LogSoftmax::new(a.input, dim).dtype(a.dtype).call()
        },
        "The logarithm of softmax along a dimension.",
    ).samples("f32[3, 4], 1; f32[3, 4], 1, dtype=f64"),
    compose(
        "nn.functional.softmin",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| {
            let dim = legacy_dim(a.input, a.dim, "softmin");
            f::Softmax::new(&f::neg(a.input)?, dim)
                .dtype(a.dtype)
                .call()
        },
        "softmax of -x.",
    ).samples("f32[3, 4], -1; c64[3, 4], 0, dtype=f64; f32[3, 4], 0, dtype=f64"),
];

fn prelu(t: &Tensor, w: &Tensor) -> Result<Tensor> {
    ensure!(
        t.dtype() == w.dtype(),
        Runtime,
        "prelu: Type promoting not supported. Got {} and {}",
        t.dtype().scalar_type(),
        w.dtype().scalar_type()
    );
    if w.numel() != 1 {
        ensure!(t.ndim() > 0, Runtime, "Not allow zero-dim input tensor.");
        let channels = if t.ndim() > 1 { t.shape()[1] } else { 1 };
        ensure!(
            channels == w.numel(),
            Runtime,
            "Mismatch of parameter numbers and input channel size. Found parameter numbers = {} and channel size = {channels}.",
            w.numel()
        );
    }
    ensure!(
        w.ndim() <= 1,
        Runtime,
        "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}",
        w.ndim()
    );
    if w.ndim() == t.ndim() || w.ndim() == 0 {
        return f::_nn_prelu(t, w);
    }
    let mut shape = Dims::filled(t.ndim(), 1);
    if t.ndim() > 1 {
        shape[1] = w.numel();
    }
    f::_nn_prelu(t, &f::reshape(w, &shape)?)
}

fn rrelu(
    t: &Tensor,
    lower: f64,
    upper: f64,
    training: bool,
    generator: Option<&SharedGenerator>,
    inplace: bool,
) -> Result<Ret> {
    ensure!(
        lower <= upper,
        Runtime,
        "Lower bound should be less than or equal to the upper bound"
    );
    ensure!(
        lower.is_finite(),
        Runtime,
        "rrelu: lower bound must be finite, got {lower}"
    );
    ensure!(
        upper.is_finite(),
        Runtime,
        "rrelu: upper bound must be finite, got {upper}"
    );
    let mean = (lower + upper) / 2.0;
    let drawn = f::_NnRrelu::new(t, lower, upper).generator(generator);
    match (training, inplace) {
        (true, true) => drawn.call_()?,
        (true, false) => return drawn.call().map(|[out, _]| Ret::One(out)),
        (false, true) => f::_NnRreluMean::new(t, mean).call_()?,
        (false, false) => return f::_nn_rrelu_mean(&t.contiguous()?, mean).map(Ret::One),
    }
    Ok(Ret::Same(0))
}

fn rule_rrelu(a: &calls::_NnRrelu) -> Result<Plan> {
    let t = a.input;
    t.dtype().check_float_kernel("rrelu_with_noise_out_cpu")?;
    let each: (&[i64], DType) = (t.shape(), t.dtype());
    Ok(Plan::many(&[each, each]))
}

fn run_rrelu(a: &calls::_NnRrelu, (): &(), outs: &[Tensor]) -> Result<()> {
    let generator = a
        .generator
        .cloned()
        .unwrap_or_else(crate::random::default_generator);
    cpu::activation::rrelu(outs, a.input, a.lower, a.upper, &generator)
}

fn glu(t: &Tensor, dim: i64) -> Result<Tensor> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "glu does not support scalars because halving size must be even"
    );
    let d = rules::dim(t, dim)?;
    let n = t.shape()[d];
    ensure!(
        n % 2 == 0,
        Runtime,
        "Halving dimension must be even, but dimension {d} is size {n}"
    );
    let half = |start: i64| f::narrow(t, d as i64, start, n / 2);
    f::_nn_glu(&half(0)?, &half(n / 2)?)
}

/// The layout of the result, and the dimension.
fn rule_softmax(t: &Tensor, dim: i64, dtype: Option<DType>, log: bool) -> Result<(Plan, usize)> {
    let d = rules::dim(t, dim)?;
    let dtype = dtype.unwrap_or(t.dtype());
    let last = t.ndim() == 0 || d == t.ndim() - 1;
    let name = match (log, last) {
        (true, true) => "log_softmax_lastdim_kernel_impl",
        (false, true) => "softmax_lastdim_kernel_impl",
        (true, false) => "log_softmax_kernel_impl",
        (false, false) => "softmax_kernel_impl",
    };
    if t.numel() != 0 {
        dtype.check_float_kernel(name)?;
    }
    Ok((Plan::contiguous(t.shape(), dtype), d))
}

fn softmax(a: &calls::Softmax, dim: &usize, outs: &[Tensor]) -> Result<()> {
    kernels::softmax::forward(&outs[0], a.input, *dim, false)
}

fn log_softmax(a: &calls::LogSoftmax, dim: &usize, outs: &[Tensor]) -> Result<()> {
    kernels::softmax::forward(&outs[0], a.input, *dim, true)
}

/// A missing dimension is chosen by the number of dimensions.
fn legacy_dim(t: &Tensor, dim: Option<i64>, name: &str) -> i64 {
    dim.unwrap_or_else(|| {
        warning::say(&format!(
            "Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument."
        ));
        i64::from(!matches!(t.ndim(), 0 | 1 | 3))
    })
}
