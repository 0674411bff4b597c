//! Activations that are more than a map: softmax, glu, prelu, rrelu.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{
    F, FM, FMO, KernelBody, O, Op, OpDef, Plan, Ret, X, kernel, old_compose,
};
use crate::ops::core::rules;
use crate::ops::nn::activation::store;
use crate::{Result, Tensor, cpu, ensure, op, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.rrelu",
        "(Tensor self, float lower, float upper, *, Generator? generator=None)",
        0,
        KernelBody::new(infer_rrelu, |a, o| {
            cpu::activation::rrelu(
                &o[0],
                a.tensor(0)?,
                a.float(1)?,
                a.float(2)?,
                &crate::ops::random::generator(a),
            )
        })
        .random(None),
        "x where positive, else x times a random slope.",
    ),
    old_compose(
        "prelu",
        "(Tensor self, Tensor weight)",
        FM,
        prelu,
        "x where positive, else x times a weight for each channel.",
    ),
    old_compose(
        "rrelu",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        rrelu,
        "Leaky relu with a random slope.",
    ),
    old_compose(
        "rrelu_",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        |a| store(a, rrelu(a)?),
        "Leaky relu with a random slope, in place.",
    ),
    old_compose(
        "nn.functional.prelu",
        "(Tensor self, Tensor weight)",
        F,
        prelu,
        "x where positive, else x times a weight for each channel.",
    ),
    old_compose(
        "nn.functional.rrelu",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False, bool inplace=False)",
        F,
        |a| {
            let r = rrelu(a)?;
            if a.bool(4) { store(a, r) } else { Ok(r) }
        },
        "Leaky relu with a random slope.",
    ),
    old_compose(
        "nn.functional.rrelu_",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False)",
        F,
        |a| store(a, rrelu(a)?),
        "Leaky relu with a random slope, in place.",
    ),
    old_compose(
        "nn.functional.logsigmoid",
        "(Tensor self)",
        F | O | X,
        log_sigmoid,
        "The logarithm of sigmoid(x).",
    ),
    old_compose(
        "nn.functional.glu",
        "(Tensor self, int dim=-1)",
        F,
        glu,
        "The first half along a dimension times the sigmoid of the second.",
    ),
    kernel(
        "softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        FMO | X,
        KernelBody::new(infer_softmax, |a, o| run_softmax(a, o, false)),
        "exp(x) over the sum of exp(x) along a dimension.",
    ),
    kernel(
        "log_softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        FMO | X,
        KernelBody::new(infer_softmax, |a, o| run_softmax(a, o, true)),
        "The logarithm of softmax along a dimension.",
    ),
    old_compose(
        "nn.functional.softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| legacy_dim(a, op!("softmax")?, a.tensor(0)?),
        "exp(x) over the sum of exp(x) along a dimension.",
    ),
    old_compose(
        "nn.functional.log_softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| legacy_dim(a, op!("log_softmax")?, a.tensor(0)?),
        "The logarithm of softmax along a dimension.",
    ),
    old_compose(
        "nn.functional.softmin",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        softmin,
        "softmax of -x.",
    ),
];

pub(in crate::ops) fn prelu(a: &Args) -> Result<Ret> {
    let (t, w) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        t.dtype() == w.dtype(),
        Runtime,
        "prelu: Type promoting not supported. Got {} and {}",
        t.dtype().scalar_type(),
        w.dtype().scalar_type()
    );
    ensure!(
        w.ndim() <= 1,
        Runtime,
        "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {}",
        w.ndim()
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
    if w.ndim() == t.ndim() || (w.ndim() == 0) {
        return dispatch::run(op!("_nn.prelu")?, &a.values);
    }
    let mut shape = crate::Dims::filled(t.ndim(), 1);
    if t.ndim() > 1 {
        shape[1] = w.numel();
    }
    let w = run1!("reshape", w, shape)?;
    dispatch::run(op!("_nn.prelu")?, &[Arg::Tensor(t), Arg::Tensor(&w)])
}

fn rrelu(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let (lower, upper) = (a.float(1)?, a.float(2)?);
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
    if a.bool(3) {
        let generator = a
            .values
            .get(4)
            .filter(|g| matches!(g, Arg::Generator(_)))
            .cloned()
            .unwrap_or_default();
        return dispatch::run(
            op!("_nn.rrelu")?,
            &[
                Arg::Tensor(t),
                Arg::Float(lower),
                Arg::Float(upper),
                generator,
            ],
        );
    }
    let t = t.contiguous()?;
    dispatch::run(
        op!("_nn.leaky_relu")?,
        &[Arg::Tensor(&t), Arg::Float((lower + upper) / 2.0)],
    )
}

fn infer_rrelu(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    t.dtype().check_float_kernel("rrelu_with_noise_out_cpu")?;
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

pub(in crate::ops) fn log_sigmoid(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?.contiguous()?;
    dispatch::run(op!("_nn.log_sigmoid")?, &[Arg::Tensor(&t)])
}

pub(in crate::ops) fn glu(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() > 0,
        Runtime,
        "glu does not support scalars because halving size must be even"
    );
    let d = rules::dim(t, a.int(1)?)?;
    let n = t.shape()[d];
    ensure!(
        n % 2 == 0,
        Runtime,
        "Halving dimension must be even, but dimension {d} is size {n}"
    );
    let (x, y) = (t.narrowed(d, 0, n / 2), t.narrowed(d, n / 2, n / 2));
    dispatch::run(op!("_nn.glu")?, &[Arg::Tensor(&x), Arg::Tensor(&y)])
}

fn infer_softmax(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let d = rules::dim(t, a.int(1)?)?;
    let dtype = a.dtype(2).unwrap_or(t.dtype());
    let last = t.ndim() == 0 || d == t.ndim() - 1;
    let name = match (a.name() == "log_softmax", last) {
        (true, true) => "log_softmax_lastdim_kernel_impl",
        (false, true) => "softmax_lastdim_kernel_impl",
        (_, false) => "softmax_kernel_impl",
    };
    dtype.check_float_kernel(name)?;
    Ok(Plan::contiguous(t.shape(), dtype))
}

fn run_softmax(a: &Args, outs: &[Tensor], log: bool) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::softmax::softmax(&outs[0], t, rules::dim(t, a.int(1)?)?, log)
}

/// `nn.functional.softmax` and relatives: a missing dimension is chosen by the number of dimensions.
fn legacy_dim(a: &Args, op: &'static Op, t: &Tensor) -> Result<Ret> {
    let dim = a
        .opt_int(1)
        .unwrap_or(i64::from(!matches!(t.ndim(), 0 | 1 | 3)));
    dispatch::run(op, &[Arg::Tensor(t), Arg::Int(dim), a.values[3].clone()])
}

fn softmin(a: &Args) -> Result<Ret> {
    let t = run1!("neg", a.tensor(0)?)?;
    legacy_dim(a, op!("softmax")?, &t)
}
