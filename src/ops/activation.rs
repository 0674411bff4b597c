//! Activations: pointwise loops under their own names, and the functions of `torch` and `nn.functional` around them.

use super::args::{Arg, Args};
use super::op::{F, FM, FMO, KernelBody, O, Op, OpDef, Plan, Ret, X, compose, kernel};
use super::pointwise::same;
use super::{dispatch, rules};
use crate::cpu::map::{Ctx, FromCtx as _};
use crate::cpu::math::Elementary as _;
use crate::{DType, Result, Tensor, bail, cpu, ensure, map_op, map_row, op, run1};
use num_complex::{Complex32, Complex64};

map_op!(
    Elu,
    1,
    [float] | x,
    c | if x < 0.0 {
        (x * T::ctx(c, 2)).expm1_() * T::ctx(c, 0)
    } else {
        x * T::ctx(c, 1)
    }
);
map_op!(Gelu, 1, [float] | x, c | x.gelu_());
map_op!(GeluTanh, 1, [float] | x, c | x.gelu_tanh_());
map_op!(Silu, 1, [float complex] |x, c| x / (1.0 + (-x).exp_()));
map_op!(Mish, 1, [float] | x, c | x * x.exp_().log1p_().tanh_());
map_op!(
    Hardtanh,
    1,
    [int] | x,
    c | if x < T::ctx(c, 0) {
        T::ctx(c, 0)
    } else if x > T::ctx(c, 1) {
        T::ctx(c, 1)
    } else {
        x
    },
    [float] | x,
    c | if x < T::ctx(c, 0) {
        T::ctx(c, 0)
    } else if x > T::ctx(c, 1) {
        T::ctx(c, 1)
    } else {
        x
    }
);
map_op!(Hardsigmoid, 1, [float] | x, c | clamp6(x + 3.0) / 6.0);
map_op!(Hardswish, 1, [float] | x, c | x * clamp6(x + 3.0) / 6.0);
map_op!(
    LeakyRelu,
    1,
    [float] | x,
    c | if x > 0.0 { x } else { x * T::ctx(c, 0) }
);
map_op!(
    Softplus,
    1,
    [float] | x,
    c | if x * T::ctx(c, 0) > T::ctx(c, 1) {
        x
    } else {
        (x * T::ctx(c, 0)).exp_().log1p_() / T::ctx(c, 0)
    }
);
map_op!(
    Softshrink,
    1,
    [float] | x,
    c | if x > T::ctx(c, 0) {
        x - T::ctx(c, 0)
    } else if x < -T::ctx(c, 0) {
        x + T::ctx(c, 0)
    } else {
        x * 0.0
    }
);
map_op!(
    Hardshrink,
    1,
    [float] | x,
    c | if x >= -T::ctx(c, 0) && x <= T::ctx(c, 0) {
        0.0
    } else {
        x
    }
);
map_op!(
    Threshold,
    1,
    [int] | x,
    c | if x <= T::ctx(c, 0) { T::ctx(c, 1) } else { x },
    [float] | x,
    c | if x <= T::ctx(c, 0) { T::ctx(c, 1) } else { x }
);
map_op!(
    LogSigmoid,
    1,
    [float] | x,
    c | (if x < 0.0 { x } else { 0.0 }) - (-x.abs()).exp_().log1p_()
);
map_op!(Glu, 2, [float] | x, y, c | x * y.sigmoid_());
map_op!(
    Prelu,
    2,
    [float] | x,
    y,
    c | if x > 0.0 { x } else { y * x }
);

/// Activations that single precision has branch-free forms of.
trait Smooth: Copy {
    fn gelu_(self) -> Self;
    fn gelu_tanh_(self) -> Self;
}

impl Smooth for f32 {
    #[inline(always)]
    fn gelu_(self) -> Self {
        crate::cpu::vmath::gelu(self)
    }
    #[inline(always)]
    fn gelu_tanh_(self) -> Self {
        crate::cpu::vmath::gelu_tanh(self)
    }
}

impl Smooth for f64 {
    fn gelu_(self) -> Self {
        self * 0.5 * (1.0 + libm::erf(self * std::f64::consts::FRAC_1_SQRT_2))
    }
    fn gelu_tanh_(self) -> Self {
        0.5 * self
            * (1.0 + (0.797_884_560_802_865_4 * (self + 0.044_715 * self * self * self)).tanh())
    }
}

/// A value limited to 0..6; NaN stays.
#[inline(always)]
fn clamp6<T: PartialOrd + From<u8>>(x: T) -> T {
    if x < T::from(0) {
        T::from(0)
    } else if x > T::from(6) {
        T::from(6)
    } else {
        x
    }
}

/// The numbers of a call from position 1 on.
fn numbers(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    for (i, v) in a.values.iter().skip(1).take(3).enumerate() {
        if let Some(s) = super::pointwise::scalar_of(v) {
            (ctx.f[i], ctx.i[i]) = (s.to_f64(), s.to_i64());
        }
    }
    Ok(ctx)
}

/// `elu(alpha, scale, input_scale)`: the loop wants the products.
fn elu_ctx(a: &Args, d: DType) -> Result<Ctx> {
    let mut ctx = numbers(a, d)?;
    ctx.f[0] *= ctx.f[1];
    Ok(ctx)
}

fn shrink_ctx(a: &Args, d: DType) -> Result<Ctx> {
    let lambd = a.float(1)?;
    ensure!(
        lambd >= 0.0,
        Runtime,
        "lambda must be in range [0, {}] for input dtype {}, but found {lambd}",
        match d {
            DType::F16 => "65504",
            DType::BF16 => "3.38953e+38",
            DType::F64 => "1.79769e+308",
            _ => "3.40282e+38",
        },
        d.scalar_type()
    );
    numbers(a, d)
}

fn hardtanh_ctx(a: &Args, d: DType) -> Result<Ctx> {
    let ctx = numbers(a, d)?;
    ensure!(
        d != DType::U8 || (ctx.f[0] >= 0.0 && ctx.f[1] >= 0.0),
        Runtime,
        "cannot do hardtanh on an unsigned type with negative limits"
    );
    Ok(ctx)
}

/// The in-place call of `op` on the leading arguments of `a`; gives argument 0 back.
fn here(a: &Args, op: &'static Op, n: usize) -> Result<Ret> {
    let target = a.tensor(0)?;
    dispatch::call_inplace(&Args::new(op, a.values[..n].iter().cloned())?)?;
    Ok(target.clone().into())
}

/// The call of `op` on the first `n` arguments, in place if argument `n` says so.
fn flagged(a: &Args, op: &'static Op, n: usize) -> Result<Ret> {
    if a.bool(n) {
        return here(a, op, n);
    }
    dispatch::call(&Args::new(op, a.values[..n].iter().cloned())?)
}

/// A function with an `inplace` flag after `n` arguments.
macro_rules! flag {
    ($base:literal, $n:literal) => {
        |a: &Args| flagged(a, op!($base)?, $n)
    };
    ($base:literal, $n:literal, $check:expr) => {
        |a: &Args| {
            let check: fn(&Args) -> Result<()> = $check;
            check(a)?;
            flagged(a, op!($base)?, $n)
        }
    };
}

/// An in-place function.
macro_rules! in_place {
    ($base:literal, $n:literal) => {
        |a: &Args| here(a, op!($base)?, $n)
    };
}

fn no_bool(a: &Args) -> Result<()> {
    ensure!(
        a.tensor(0)?.dtype() != DType::Bool,
        Runtime,
        "Bool inputs not supported for hardtanh"
    );
    ensure!(
        !a.tensor(0)?.dtype().is_complex(),
        NotImplemented,
        "clamp is not supported for complex types"
    );
    Ok(())
}

fn hardtanh_checks(a: &Args) -> Result<()> {
    ensure!(
        a.float(1)? <= a.float(2)?,
        Value,
        "min_val cannot be greater than max_val"
    );
    no_bool(a)
}

fn relu_checks(a: &Args) -> Result<()> {
    ensure!(
        a.tensor(0)?.dtype() != DType::Bool,
        Runtime,
        "Boolean inputs not supported for relu"
    );
    ensure!(
        !a.tensor(0)?.dtype().is_complex(),
        NotImplemented,
        "clamp is not supported for complex types"
    );
    Ok(())
}

/// The family's rows.
pub static OPS: &[OpDef] = &[
    map_row!(Elu "_nn.elu", 1, same, elu_ctx, 0, "a < T(0) ? expm1(a * f2) * f0 : a * f1", "(Tensor self, float alpha=1, float scale=1, float input_scale=1)", "x where positive, else alpha * (exp(x) - 1)."),
    map_row!(Gelu "_nn.gelu", 1, same, 0, "a * T(0.5) * (T(1) + erf(a * T(0.70710678118654752440)))", "(Tensor self)", "x times the normal distribution function of x."),
    map_row!(GeluTanh "_nn.gelu#tanh", 1, same, 0, "T(0.5) * a * (T(1) + tanh(T(0.79788456080286535588) * (a + T(0.044715) * a * a * a)))", "(Tensor self)", "x times the normal distribution function of x, by its tanh approximation."),
    map_row!(Silu "_nn.silu", 1, same, 0, "a / (T(1) + exp(-a))", "(Tensor self)", "x * sigmoid(x)."),
    map_row!(Mish "_nn.mish", 1, same, 0, "a * tanh(log1p(exp(a)))", "(Tensor self)", "x * tanh(softplus(x))."),
    map_row!(Hardtanh "_nn.hardtanh", 1, same, hardtanh_ctx, 0, "a < f0 ? f0 : a > f1 ? f1 : a", "(Tensor self, Scalar min_val=-1, Scalar max_val=1)", "x limited to a range."),
    map_row!(Hardsigmoid "_nn.hardsigmoid", 1, same, 0, "clamp6_(a + T(3)) / T(6)", "(Tensor self)", "A sigmoid made of straight lines."),
    map_row!(Hardswish "_nn.hardswish", 1, same, 0, "a * clamp6_(a + T(3)) / T(6)", "(Tensor self)", "x * hardsigmoid(x)."),
    map_row!(LeakyRelu "_nn.leaky_relu", 1, same, numbers, 0, "a > T(0) ? a : a * f0", "(Tensor self, float negative_slope=0.01)", "x where positive, else x times a slope."),
    map_row!(Softplus "_nn.softplus", 1, same, numbers, 0, "a * f0 > f1 ? a : log1p(exp(a * f0)) / f0", "(Tensor self, float beta=1, float threshold=20)", "log(1 + exp(x)), smoothly from 0 to x."),
    map_row!(Softshrink "_nn.softshrink", 1, same, shrink_ctx, 0, "a > f0 ? a - f0 : a < -f0 ? a + f0 : a * T(0)", "(Tensor self, float lambd=0.5)", "x moved towards 0 by lambd."),
    map_row!(Hardshrink "hardshrink", 1, same, numbers, FMO, "a >= -f0 && a <= f0 ? T(0) : a", "(Tensor self, float lambd=0.5)", "x, or 0 where it is within lambd of 0."),
    map_row!(Threshold "threshold", 1, same, numbers, F | O, "a <= f0 ? f1 : a", "(Tensor self, Scalar threshold, Scalar value)", "x where above the threshold, else a value."),
    map_row!(LogSigmoid "_nn.log_sigmoid", 1, same, 0, "min_(a, T(0)) - log1p(exp(-abs_(a)))", "(Tensor self)", "The logarithm of sigmoid(x)."),
    map_row!(Glu "_nn.glu", 2, same, 0, "a * sigmoid_(b)", "(Tensor self, Tensor gate)", "The first operand times the sigmoid of the second."),
    map_row!(Prelu "_nn.prelu", 2, same, 0, "a > T(0) ? a : b * a", "(Tensor self, Tensor weight)", "x where positive, else x times a weight."),
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
                &super::random::generator(a),
            )
        })
        .random(None),
        "x where positive, else x times a random slope.",
    ),
    compose("selu", "(Tensor self)", F, selu, "Scaled elu."),
    compose(
        "selu_",
        "(Tensor self)",
        F,
        |a| {
            let r = a.tensor(0)?;
            elu_here(r, SELU)
        },
        "Scaled elu, in place.",
    ),
    compose(
        "celu",
        "(Tensor self, float alpha=1.0)",
        F,
        celu,
        "elu that is smooth for any alpha.",
    ),
    compose(
        "celu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| elu_here(a.tensor(0)?, celu_numbers(a)?),
        "elu that is smooth for any alpha, in place.",
    ),
    compose(
        "threshold_",
        "(Tensor self, Scalar threshold, Scalar value)",
        F,
        in_place!("threshold", 3),
        "A value where x is not above the threshold, in place.",
    ),
    compose(
        "relu_",
        "(Tensor self)",
        F,
        in_place!("relu", 1),
        "0 where x is negative, in place.",
    ),
    compose(
        "prelu",
        "(Tensor self, Tensor weight)",
        FM,
        prelu,
        "x where positive, else x times a weight for each channel.",
    ),
    compose(
        "rrelu",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        rrelu,
        "Leaky relu with a random slope.",
    ),
    compose(
        "rrelu_",
        "(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None)",
        F,
        |a| store(a, rrelu(a)?),
        "Leaky relu with a random slope, in place.",
    ),
    compose(
        "nn.functional.relu",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("relu", 1, relu_checks),
        "x, or 0 where it is negative.",
    ),
    compose(
        "nn.functional.relu_",
        "(Tensor self)",
        F,
        in_place!("relu", 1),
        "0 where x is negative, in place.",
    ),
    compose(
        "nn.functional.relu6",
        "(Tensor self, bool inplace=False)",
        F,
        |a| {
            no_bool(a)?;
            hard(a, 0, 6, a.bool(1))
        },
        "x limited to 0..6.",
    ),
    compose(
        "nn.functional.elu",
        "(Tensor self, float alpha=1.0, bool inplace=False)",
        F,
        flag!("_nn.elu", 2),
        "x where positive, else alpha * (exp(x) - 1).",
    ),
    compose(
        "nn.functional.elu_",
        "(Tensor self, float alpha=1.0)",
        F,
        in_place!("_nn.elu", 2),
        "elu in place.",
    ),
    compose(
        "nn.functional.selu",
        "(Tensor self, bool inplace=False)",
        F,
        |a| {
            if a.bool(1) {
                elu_here(a.tensor(0)?, SELU)
            } else {
                selu(a)
            }
        },
        "Scaled elu.",
    ),
    compose(
        "nn.functional.selu_",
        "(Tensor self)",
        F,
        |a| elu_here(a.tensor(0)?, SELU),
        "Scaled elu in place.",
    ),
    compose(
        "nn.functional.celu",
        "(Tensor self, float alpha=1.0, bool inplace=False)",
        F,
        |a| {
            if a.bool(2) {
                elu_here(a.tensor(0)?, celu_numbers(a)?)
            } else {
                celu(a)
            }
        },
        "elu that is smooth for any alpha.",
    ),
    compose(
        "nn.functional.celu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| elu_here(a.tensor(0)?, celu_numbers(a)?),
        "celu in place.",
    ),
    compose(
        "nn.functional.gelu",
        "(Tensor self, *, str approximate='none')",
        F | O | X,
        gelu,
        "x times the normal distribution function of x.",
    ),
    compose(
        "nn.functional.silu",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.silu", 1),
        "x * sigmoid(x).",
    ),
    compose(
        "nn.functional.mish",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.mish", 1),
        "x * tanh(softplus(x)).",
    ),
    compose(
        "nn.functional.hardtanh",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0, bool inplace=False)",
        F,
        flag!("_nn.hardtanh", 3, hardtanh_checks),
        "x limited to a range.",
    ),
    compose(
        "nn.functional.hardtanh_",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0)",
        F,
        in_place!("_nn.hardtanh", 3),
        "x limited to a range, in place.",
    ),
    compose(
        "nn.functional.hardsigmoid",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.hardsigmoid", 1),
        "A sigmoid made of straight lines.",
    ),
    compose(
        "nn.functional.hardswish",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.hardswish", 1),
        "x * hardsigmoid(x).",
    ),
    compose(
        "nn.functional.leaky_relu",
        "(Tensor self, float negative_slope=0.01, bool inplace=False)",
        F,
        flag!("_nn.leaky_relu", 2),
        "x where positive, else x times a slope.",
    ),
    compose(
        "nn.functional.leaky_relu_",
        "(Tensor self, float negative_slope=0.01)",
        F,
        in_place!("_nn.leaky_relu", 2),
        "Leaky relu in place.",
    ),
    compose(
        "nn.functional.prelu",
        "(Tensor self, Tensor weight)",
        F,
        prelu,
        "x where positive, else x times a weight for each channel.",
    ),
    compose(
        "nn.functional.rrelu",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False, bool inplace=False)",
        F,
        |a| {
            let r = rrelu(a)?;
            if a.bool(4) { store(a, r) } else { Ok(r) }
        },
        "Leaky relu with a random slope.",
    ),
    compose(
        "nn.functional.rrelu_",
        "(Tensor self, float lower=0.125, float upper=0.3333333333333333, bool training=False)",
        F,
        |a| store(a, rrelu(a)?),
        "Leaky relu with a random slope, in place.",
    ),
    compose(
        "nn.functional.softplus",
        "(Tensor self, float beta=1, float threshold=20)",
        F | O | X,
        |a| dispatch::run(op!("_nn.softplus")?, &a.values),
        "log(1 + exp(x)), smoothly from 0 to x.",
    ),
    compose(
        "nn.functional.softshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| dispatch::run(op!("_nn.softshrink")?, &a.values),
        "x moved towards 0 by lambd.",
    ),
    compose(
        "nn.functional.hardshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| dispatch::run(op!("hardshrink")?, &a.values),
        "x, or 0 where it is within lambd of 0.",
    ),
    compose(
        "nn.functional.tanhshrink",
        "(Tensor self)",
        F,
        |a| Ok(run1!("sub", a.tensor(0)?, &run1!("tanh", a.tensor(0)?)?)?.into()),
        "x - tanh(x).",
    ),
    compose(
        "nn.functional.softsign",
        "(Tensor self)",
        F,
        |a| {
            let d = run1!("add", &run1!("abs", a.tensor(0)?)?, 1i64)?;
            Ok(run1!("div", a.tensor(0)?, &d)?.into())
        },
        "x / (1 + |x|).",
    ),
    compose(
        "nn.functional.sigmoid",
        "(Tensor self)",
        F,
        |a| dispatch::run(op!("sigmoid")?, &a.values),
        "1 / (1 + exp(-x)).",
    ),
    compose(
        "nn.functional.tanh",
        "(Tensor self)",
        F,
        |a| dispatch::run(op!("tanh")?, &a.values),
        "The hyperbolic tangent.",
    ),
    compose(
        "nn.functional.threshold",
        "(Tensor self, Scalar threshold, Scalar value, bool inplace=False)",
        F,
        flag!("threshold", 3),
        "x where above the threshold, else a value.",
    ),
    compose(
        "nn.functional.threshold_",
        "(Tensor self, Scalar threshold, Scalar value)",
        F,
        in_place!("threshold", 3),
        "A value where x is not above the threshold, in place.",
    ),
    compose(
        "nn.functional.logsigmoid",
        "(Tensor self)",
        F | O | X,
        log_sigmoid,
        "The logarithm of sigmoid(x).",
    ),
    compose(
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
    compose(
        "special.softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        F,
        |a| dispatch::run(op!("softmax")?, &a.values),
        "exp(x) over the sum of exp(x) along a dimension.",
    ),
    compose(
        "special.log_softmax",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        F,
        |a| dispatch::run(op!("log_softmax")?, &a.values),
        "The logarithm of softmax along a dimension.",
    ),
    compose(
        "nn.functional.softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| legacy_dim(a, op!("softmax")?, a.tensor(0)?),
        "exp(x) over the sum of exp(x) along a dimension.",
    ),
    compose(
        "nn.functional.log_softmax",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        |a| legacy_dim(a, op!("log_softmax")?, a.tensor(0)?),
        "The logarithm of softmax along a dimension.",
    ),
    compose(
        "nn.functional.softmin",
        "(Tensor self, int? dim=None, int _stacklevel=3, dtype? dtype=None)",
        F,
        softmin,
        "softmax of -x.",
    ),
];

const SELU: [f64; 3] = [1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0];

fn elu_values<'a>(t: &'a Tensor, n: [f64; 3]) -> [Arg<'a>; 4] {
    [
        Arg::Tensor(t),
        Arg::Float(n[0]),
        Arg::Float(n[1]),
        Arg::Float(n[2]),
    ]
}

fn elu_here(t: &Tensor, n: [f64; 3]) -> Result<Ret> {
    dispatch::call_inplace(&Args::new(op!("_nn.elu")?, elu_values(t, n))?)?;
    Ok(t.clone().into())
}

fn selu(a: &Args) -> Result<Ret> {
    dispatch::run(op!("_nn.elu")?, &elu_values(a.tensor(0)?, SELU))
}

fn celu_numbers(a: &Args) -> Result<[f64; 3]> {
    let alpha = a.float(1)?;
    ensure!(
        alpha != 0.0,
        Runtime,
        "ZeroDivisionError: alpha cannot be 0 for CELU"
    );
    Ok([alpha, 1.0, 1.0 / alpha])
}

fn celu(a: &Args) -> Result<Ret> {
    dispatch::run(op!("_nn.elu")?, &elu_values(a.tensor(0)?, celu_numbers(a)?))
}

fn hard(a: &Args, low: i64, high: i64, in_place: bool) -> Result<Ret> {
    let t = a.tensor(0)?;
    let args = Args::new(
        op!("_nn.hardtanh")?,
        [Arg::Tensor(t), Arg::Int(low), Arg::Int(high)],
    )?;
    if in_place {
        dispatch::call_inplace(&args)?;
        return Ok(t.clone().into());
    }
    dispatch::call(&args)
}

/// Writes a result into argument 0 and gives that back.
fn store(a: &Args, r: Ret) -> Result<Ret> {
    let t = a.tensor(0)?;
    dispatch::check_writable(t)?;
    super::call::copy_(t, &r.one()?)?;
    Ok(t.clone().into())
}

fn gelu(a: &Args) -> Result<Ret> {
    let t = [Arg::Tensor(a.tensor(0)?)];
    match a.str(1) {
        Some("none") => dispatch::run(op!("_nn.gelu")?, &t),
        Some("tanh") => dispatch::run(op!("_nn.gelu#tanh")?, &t),
        _ => bail!(Runtime, "approximate argument must be either none or tanh."),
    }
}

fn prelu(a: &Args) -> Result<Ret> {
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
    ensure!(
        matches!(
            t.dtype(),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64
        ),
        NotImplemented,
        "\"rrelu_with_noise_out_cpu\" not implemented for '{}'",
        t.dtype().scalar_type()
    );
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn log_sigmoid(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?.contiguous()?;
    dispatch::run(op!("_nn.log_sigmoid")?, &[Arg::Tensor(&t)])
}

fn glu(a: &Args) -> Result<Ret> {
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
    let log = if a.name() == "log_softmax" {
        "log_"
    } else {
        ""
    };
    ensure!(
        matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
        NotImplemented,
        "\"{}\" not implemented for '{}'",
        if last {
            format!("{log}softmax_lastdim_kernel_impl")
        } else {
            "softmax_kernel_impl".to_owned()
        },
        dtype.scalar_type()
    );
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
