//! Activations: pointwise loops under their own names, and the functions of `torch` and `nn.functional` around them.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::cpu::math::Elementary as _;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, FMO, O, Op, OpDef, Ret, X, old_compose};
use crate::ops::pointwise::rule::same;
use crate::{DType, Result, Tensor, bail, ensure, map_op, map_row, op, run1};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

map_op!(
    Elu,
    1,
    [single] | x,
    c | if x < 0.0 {
        (x * T::ctx(c, 2)).expm1_() * T::ctx(c, 0)
    } else {
        x * T::ctx(c, 1)
    }
);

map_op!(Gelu, 1, [single] | x, c | x.gelu_());

map_op!(GeluTanh, 1, [single] | x, c | x.gelu_tanh_());

map_op!(Silu, 1, [float complex] |x, c| x / (1.0 + (-x).exp_()));

map_op!(Mish, 1, [single] | x, c | x * x.exp_().log1p_().tanh_());

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
    [light] | x,
    c | if x < T::ctx(c, 0) {
        T::ctx(c, 0)
    } else if x > T::ctx(c, 1) {
        T::ctx(c, 1)
    } else {
        x
    }
);

map_op!(Hardsigmoid, 1, [light] | x, c | clamp6(x + 3.0) / 6.0);

map_op!(Hardswish, 1, [light] | x, c | x * clamp6(x + 3.0) / 6.0);

map_op!(
    LeakyRelu,
    1,
    [light] | x,
    c | if x > 0.0 { x } else { x * T::ctx(c, 0) }
);

map_op!(
    Softplus,
    1,
    [single] | x,
    c | if x * T::ctx(c, 0) > T::ctx(c, 1) {
        x
    } else {
        (x * T::ctx(c, 0)).exp_().log1p_() / T::ctx(c, 0)
    }
);

map_op!(
    Softshrink,
    1,
    [light] | x,
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
    [light] | x,
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
    [light] | x,
    c | if x <= T::ctx(c, 0) { T::ctx(c, 1) } else { x }
);

map_op!(
    LogSigmoid,
    1,
    [single] | x,
    c | (if x < 0.0 { x } else { 0.0 }) - (-x.abs()).exp_().log1p_()
);

map_op!(Glu, 2, [float] | x, y, c | x * y.sigmoid_());

map_op!(
    Prelu,
    2,
    [light] | x,
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
pub(in crate::ops) fn numbers(a: &Args, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    for (i, v) in a.values.iter().skip(1).take(3).enumerate() {
        if let Some(s) = crate::ops::pointwise::rule::scalar_of(v) {
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
    dispatch::run(op, &a.values[..n])
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
#[operators]
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
    old_compose("selu", "(Tensor self)", F, selu, "Scaled elu."),
    old_compose(
        "selu_",
        "(Tensor self)",
        F,
        |a| {
            let r = a.tensor(0)?;
            elu_here(r, SELU)
        },
        "Scaled elu, in place.",
    ),
    old_compose(
        "celu",
        "(Tensor self, float alpha=1.0)",
        F,
        celu,
        "elu that is smooth for any alpha.",
    ),
    old_compose(
        "celu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| elu_here(a.tensor(0)?, celu_numbers(a)?),
        "elu that is smooth for any alpha, in place.",
    ),
    old_compose(
        "threshold_",
        "(Tensor self, Scalar threshold, Scalar value)",
        F,
        in_place!("threshold", 3),
        "A value where x is not above the threshold, in place.",
    ),
    old_compose(
        "relu_",
        "(Tensor self)",
        F,
        in_place!("relu", 1),
        "0 where x is negative, in place.",
    ),
    old_compose(
        "nn.functional.relu",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("relu", 1, relu_checks),
        "x, or 0 where it is negative.",
    ),
    old_compose(
        "nn.functional.relu_",
        "(Tensor self)",
        F,
        in_place!("relu", 1),
        "0 where x is negative, in place.",
    ),
    old_compose(
        "nn.functional.relu6",
        "(Tensor self, bool inplace=False)",
        F,
        |a| {
            no_bool(a)?;
            hard(a, 0, 6, a.bool(1))
        },
        "x limited to 0..6.",
    ),
    old_compose(
        "nn.functional.elu",
        "(Tensor self, float alpha=1.0, bool inplace=False)",
        F,
        flag!("_nn.elu", 2),
        "x where positive, else alpha * (exp(x) - 1).",
    ),
    old_compose(
        "nn.functional.elu_",
        "(Tensor self, float alpha=1.0)",
        F,
        in_place!("_nn.elu", 2),
        "elu in place.",
    ),
    old_compose(
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
    old_compose(
        "nn.functional.selu_",
        "(Tensor self)",
        F,
        |a| elu_here(a.tensor(0)?, SELU),
        "Scaled elu in place.",
    ),
    old_compose(
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
    old_compose(
        "nn.functional.celu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| elu_here(a.tensor(0)?, celu_numbers(a)?),
        "celu in place.",
    ),
    old_compose(
        "nn.functional.gelu",
        "(Tensor self, *, str approximate='none')",
        F | O | X,
        gelu,
        "x times the normal distribution function of x.",
    ),
    old_compose(
        "nn.functional.silu",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.silu", 1),
        "x * sigmoid(x).",
    ),
    old_compose(
        "nn.functional.mish",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.mish", 1),
        "x * tanh(softplus(x)).",
    ),
    old_compose(
        "nn.functional.hardtanh",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0, bool inplace=False)",
        F,
        flag!("_nn.hardtanh", 3, hardtanh_checks),
        "x limited to a range.",
    ),
    old_compose(
        "nn.functional.hardtanh_",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0)",
        F,
        in_place!("_nn.hardtanh", 3),
        "x limited to a range, in place.",
    ),
    old_compose(
        "nn.functional.hardsigmoid",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.hardsigmoid", 1),
        "A sigmoid made of straight lines.",
    ),
    old_compose(
        "nn.functional.hardswish",
        "(Tensor self, bool inplace=False)",
        F,
        flag!("_nn.hardswish", 1),
        "x * hardsigmoid(x).",
    ),
    old_compose(
        "nn.functional.leaky_relu",
        "(Tensor self, float negative_slope=0.01, bool inplace=False)",
        F,
        flag!("_nn.leaky_relu", 2),
        "x where positive, else x times a slope.",
    ),
    old_compose(
        "nn.functional.leaky_relu_",
        "(Tensor self, float negative_slope=0.01)",
        F,
        in_place!("_nn.leaky_relu", 2),
        "Leaky relu in place.",
    ),
    old_compose(
        "nn.functional.softplus",
        "(Tensor self, float beta=1, float threshold=20)",
        F | O | X,
        |a| dispatch::run(op!("_nn.softplus")?, &a.values),
        "log(1 + exp(x)), smoothly from 0 to x.",
    ),
    old_compose(
        "nn.functional.softshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| dispatch::run(op!("_nn.softshrink")?, &a.values),
        "x moved towards 0 by lambd.",
    ),
    old_compose(
        "nn.functional.hardshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| dispatch::run(op!("hardshrink")?, &a.values),
        "x, or 0 where it is within lambd of 0.",
    ),
    old_compose(
        "nn.functional.tanhshrink",
        "(Tensor self)",
        F,
        |a| Ok(run1!("sub", a.tensor(0)?, &run1!("tanh", a.tensor(0)?)?)?.into()),
        "x - tanh(x).",
    ),
    old_compose(
        "nn.functional.softsign",
        "(Tensor self)",
        F,
        |a| {
            let d = run1!("add", &run1!("abs", a.tensor(0)?)?, 1i64)?;
            Ok(run1!("div", a.tensor(0)?, &d)?.into())
        },
        "x / (1 + |x|).",
    ),
    old_compose(
        "nn.functional.sigmoid",
        "(Tensor self)",
        F,
        |a| dispatch::run(op!("sigmoid")?, &a.values),
        "1 / (1 + exp(-x)).",
    ),
    old_compose(
        "nn.functional.tanh",
        "(Tensor self)",
        F,
        |a| dispatch::run(op!("tanh")?, &a.values),
        "The hyperbolic tangent.",
    ),
    old_compose(
        "nn.functional.threshold",
        "(Tensor self, Scalar threshold, Scalar value, bool inplace=False)",
        F,
        flag!("threshold", 3),
        "x where above the threshold, else a value.",
    ),
    old_compose(
        "nn.functional.threshold_",
        "(Tensor self, Scalar threshold, Scalar value)",
        F,
        in_place!("threshold", 3),
        "A value where x is not above the threshold, in place.",
    ),
    old_compose(
        "special.softmax",
        "(Tensor self, int dim, dtype? dtype=None)",
        F,
        |a| dispatch::run(op!("softmax")?, &a.values),
        "exp(x) over the sum of exp(x) along a dimension.",
    ),
    old_compose(
        "special.log_softmax",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        F,
        |a| dispatch::run(op!("log_softmax")?, &a.values),
        "The logarithm of softmax along a dimension.",
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
    dispatch::run(args.op, &args.values)
}

/// Writes a result into argument 0 and gives that back.
pub(in crate::ops) fn store(a: &Args, r: Ret) -> Result<Ret> {
    let t = a.tensor(0)?;
    crate::ops::core::writable::check_target(t)?;
    crate::ops::core::helpers::copy_(t, &r.one()?)?;
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
