//! Activations: pointwise loops under their own names, and the functions around them. `in_place` has those that write
//! into their input.

use crate::cpu::complex;
use crate::cpu::halves::rounded;
use crate::cpu::map::{Ctx, FromCtx as _, Loop, both};
use crate::cpu::math::{Elementary as _, RealFns as _};
use crate::ops::core::op::{Cast, F, FMO, Lies, O, OpDef, X, compose};
use crate::ops::f;
use crate::ops::pointwise::factors::held;
use crate::ops::pointwise::rule::same;
use crate::{DType, Result, Scalar, Tensor, bail, ensure, map_op, map_row};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

/// tanh(log(1 + e^x)), a quotient of sums of n = e^x without a difference.
macro_rules! tanh_of_softplus {
    ($x:expr) => {{
        // From here on it is 1.
        let x = $x;
        let n = (if x > 20.0 { 20.0 } else { x }).exp_();
        let sum = n * (n + 2.0);
        sum / (sum + 2.0)
    }};
}
pub(in crate::ops) use tanh_of_softplus;

map_op! {
    Elu, 1,
    [float] |x, c| if x < 0.0 {
        (x * T::ctx(c, 2)).expm1_() * T::ctx(c, 0)
    } else {
        x * T::ctx(c, 1)
    }
}

map_op! { Gelu, 1, [float] |x, c| x.gelu_() }

map_op! { GeluOfBf16, 1, [float] |x, c| x.gelu_of_bf16_() }

/// One or the other.
struct GeluOf;

impl GeluOf {
    fn kernel(d: DType) -> Option<&'static Loop> {
        match d {
            DType::BF16 => GeluOfBf16::kernel(d),
            _ => Gelu::kernel(d),
        }
    }
}

map_op! { GeluTanh, 1, [float] |x, c| x.gelu_tanh_() }

map_op! { Silu, 1, [float] |x, c| x / (1.0 + (-x).exp_()), [complex] |x, c| complex::div(x, T::new(1.0, 0.0) + (-x).exp_()) }

map_op! { Mish, 1, [float] |x, c| x * tanh_of_softplus!(x) }

map_op! {
    Hardtanh, 1,
    [int] |x, c| if x < T::ctx(c, 0) {
        T::ctx(c, 0)
    } else if x > T::ctx(c, 1) {
        T::ctx(c, 1)
    } else {
        x
    },
    [exact] |x, c| if x < T::ctx(c, 0) {
        T::ctx(c, 0)
    } else if x > T::ctx(c, 1) {
        T::ctx(c, 1)
    } else {
        x
    }
}

map_op! { Hardsigmoid, 1, [common] |x, c| clamp6(x + 3.0) / 6.0 }

map_op! { Hardswish, 1, [common] |x, c| x * clamp6(x + 3.0) / 6.0 }

map_op! { LeakyRelu, 1, [common] |x, c| if x > 0.0 { x } else { x * T::ctx(c, 0) } }

map_op! {
    Softplus, 1,
    [float] |x, c| if x * T::ctx(c, 0) > T::ctx(c, 1) {
        x
    } else {
        (x * T::ctx(c, 0)).exp_().log1p_() / T::ctx(c, 0)
    }
}

map_op! {
    Softshrink, 1,
    [light] |x, c| if x > T::ctx(c, 0) {
        x - T::ctx(c, 0)
    } else if x < -T::ctx(c, 0) {
        x + T::ctx(c, 0)
    } else {
        x * 0.0
    }
}

map_op! {
    Hardshrink, 1,
    [light] |x, c| if both(x >= -T::ctx(c, 0), x <= T::ctx(c, 0)) { 0.0 } else { x }
}

map_op! {
    Threshold, 1,
    [int] |x, c| if x <= T::ctx(c, 0) { T::ctx(c, 1) } else { x },
    [light] |x, c| if x <= T::ctx(c, 0) { T::ctx(c, 1) } else { x }
}

map_op! { LogSigmoid, 1, [float] |x, c| (if x < 0.0 { x } else { 0.0 }) - (-x.abs()).exp_().log1p_() }

map_op! { Glu, 2, [float] |x, y, c| x * y.sigmoid_() }

map_op! { Prelu, 2, [light] |x, y, c| if x > 0.0 { x } else { y * x } }

/// Activations that single precision has branch-free forms of.
pub(in crate::ops) trait Smooth: Copy {
    fn gelu_(self) -> Self;
    /// The same with as many digits as bf16 has.
    fn gelu_of_bf16_(self) -> Self;
    /// The derivative of `gelu_`.
    fn gelu_slope_(self) -> Self;
    fn gelu_tanh_(self) -> Self;
}

impl Smooth for f32 {
    #[inline(always)]
    fn gelu_(self) -> Self {
        crate::cpu::vmath::gelu(self)
    }
    #[inline(always)]
    fn gelu_of_bf16_(self) -> Self {
        crate::cpu::vmath::gelu_of_bf16(self)
    }
    #[inline(always)]
    fn gelu_slope_(self) -> Self {
        crate::cpu::vmath::gelu_slope(self)
    }
    #[inline(always)]
    fn gelu_tanh_(self) -> Self {
        crate::cpu::vmath::gelu_tanh(self)
    }
}

impl Smooth for f64 {
    #[inline(always)]
    fn gelu_(self) -> Self {
        self * 0.5 * (1.0 + (self * std::f64::consts::FRAC_1_SQRT_2).erf_())
    }
    #[inline(always)]
    fn gelu_of_bf16_(self) -> Self {
        self.gelu_()
    }
    #[inline(always)]
    fn gelu_slope_(self) -> Self {
        const INV_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
        let below = 0.5 * (1.0 + (self * std::f64::consts::FRAC_1_SQRT_2).erf_());
        below + self * INV_SQRT_TAU * (-0.5 * self * self).exp_()
    }
    #[inline(always)]
    fn gelu_tanh_(self) -> Self {
        0.5 * self
            * (1.0 + (0.797_884_560_802_865_4 * (self + 0.044_715 * self * self * self)).tanh_())
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

/// Numbers for a loop, in every form a loop may want.
pub(in crate::ops) fn numbers<const N: usize>(values: [Scalar; N]) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    for (i, s) in values.into_iter().enumerate() {
        (ctx.f[i], ctx.i[i]) = (s.to_f64(), s.to_i64());
    }
    Ok(ctx)
}

/// The loop wants the products.
fn elu_ctx(a: &calls::_NnElu, _: DType) -> Result<Ctx> {
    numbers([
        (a.alpha * a.scale).into(),
        a.scale.into(),
        a.input_scale.into(),
    ])
}

fn leaky_relu_ctx(a: &calls::_NnLeakyRelu, _: DType) -> Result<Ctx> {
    numbers([a.negative_slope.into()])
}

fn softplus_ctx(a: &calls::_NnSoftplus, _: DType) -> Result<Ctx> {
    numbers([a.beta.into(), a.threshold.into()])
}

/// Bounds are numbers of the operand's own type, so that an element made from the same number lies within.
fn hardshrink_ctx(a: &calls::Hardshrink, d: DType) -> Result<Ctx> {
    numbers([rounded(a.lambd.into(), d)])
}

fn threshold_ctx(a: &calls::Threshold, d: DType) -> Result<Ctx> {
    held([a.threshold, a.value], d)?;
    numbers([a.threshold, a.value])
}

fn shrink_ctx(a: &calls::_NnSoftshrink, d: DType) -> Result<Ctx> {
    let lambd = a.lambd;
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
    numbers([lambd.into()])
}

fn hardtanh_ctx(a: &calls::_NnHardtanh, d: DType) -> Result<Ctx> {
    let mut limits = [a.min_val, a.max_val];
    if d.is_integral(true) {
        held(limits, DType::I64)?;
        limits = limits.map(|v| Scalar::Int(v.to_i64()));
        ensure!(
            d != DType::U8 || limits.iter().all(|v| v.to_i64() >= 0),
            Runtime,
            "cannot do hardtanh on an unsigned type with negative limits"
        );
    }
    held(limits, d)?;
    // Limits of the result's type: what is between them has no digits to round.
    numbers(limits.map(|v| rounded(v, d)))
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Elu "_nn.elu", 1, same, typed!(elu_ctx, DType), 0, "a < T(0) ? expm1(a * f2) * f0 : a * f1", "(Tensor self, float alpha=1, float scale=1, float input_scale=1)", "x where positive, else alpha * (exp(x) - 1).").samples("f32[3, 4]; f64[3], 2.0").grad("in place EluBackward1 | self: elu_backward(grad, alpha, scale, input_scale, False, self) || self: elu_backward(grad, alpha, scale, input_scale, True, result)"),
    map_row!(GeluOf "_nn.gelu", 1, same, 0, "a * T(0.5) * (T(1) + erf(a * T(0.70710678118654752440)))", "(Tensor self)", "x times the normal distribution function of x.").samples("f32[3, 4]; bf16[3]").grad("self: gelu_backward(grad, self, approximate='none')"),
    map_row!(GeluTanh "_nn.gelu#tanh", 1, same, 0, "T(0.5) * a * (T(1) + tanh(T(0.79788456080286535588) * (a + T(0.044715) * a * a * a)))", "(Tensor self)", "x times the normal distribution function of x, by its tanh approximation.").samples("f32[3, 4]; bf16[3]").grad("self: gelu_backward(grad, self, approximate='tanh')"),
    map_row!(Silu "_nn.silu", 1, same, 0, "a / (T(1) + exp(-a))", "(Tensor self)", "x * sigmoid(x).").samples("f32[3, 4]; c64[3]").grad("self: silu_backward(grad, self); complex: never"),
    map_row!(Mish "_nn.mish", 1, same, 0, "a * tanh(log1p(exp(a)))", "(Tensor self)", "x * tanh(softplus(x)).").samples("f32[3, 4]").grad("self: mish_backward(grad, self)"),
    map_row!(Hardtanh "_nn.hardtanh", 1, same, typed!(hardtanh_ctx, DType), 0, "a < f0 ? f0 : a > f1 ? f1 : a", "(Tensor self, Scalar min_val=-1, Scalar max_val=1)", "x limited to a range.").lies(Lies::Like(|_| true)).samples("f32[3, 4]; i64[3], -1, 2").grad("self: hardtanh_backward(grad, self, min_val, max_val)"),
    map_row!(Hardsigmoid "_nn.hardsigmoid", 1, same, 0, "clamp6_(a + T(3)) / T(6)", "(Tensor self)", "A sigmoid made of straight lines.").samples("f32[3, 4]").grad("self: hardsigmoid_backward(grad, self)"),
    map_row!(Hardswish "_nn.hardswish", 1, same, 0, "a * clamp6_(a + T(3)) / T(6)", "(Tensor self)", "x * hardsigmoid(x).").samples("f32[3, 4]").grad("self: hardswish_backward(grad, self)"),
    map_row!(LeakyRelu "_nn.leaky_relu", 1, same, typed!(leaky_relu_ctx, DType), 0, "a > T(0) ? a : a * f0", "(Tensor self, float negative_slope=0.01)", "x where positive, else x times a slope.").samples("f32[3, 4]; bf16[3], 0.2").grad("in place LeakyReluBackward1 | self: leaky_relu_backward(grad, self, negative_slope, False) || self: leaky_relu_backward(grad, result, negative_slope, True)"),
    map_row!(Softplus "_nn.softplus", 1, same, typed!(softplus_ctx, DType), 0, "a * f0 > f1 ? a : log1p(exp(a * f0)) / f0", "(Tensor self, float beta=1, float threshold=20)", "log(1 + exp(x)), smoothly from 0 to x.").samples("f32[3, 4]; f64[3], 2.0, 1.0").grad("self: softplus_backward(grad, self, beta, threshold)"),
    map_row!(Softshrink "_nn.softshrink", 1, same, typed!(shrink_ctx, DType), 0, "a > f0 ? a - f0 : a < -f0 ? a + f0 : a * T(0)", "(Tensor self, float lambd=0.5)", "x moved towards 0 by lambd.").samples("f32[3, 4]; bf16[3], 1.0").grad("self: softshrink_backward(grad, self, lambd)"),
    map_row!(Hardshrink "hardshrink", 1, same, typed!(hardshrink_ctx, DType), FMO | X, "a >= -f0 && a <= f0 ? T(0) : a", "(Tensor self, float lambd=0.5)", "x, or 0 where it is within lambd of 0.").samples("f32[3, 4]; bf16[3], 1.0").grad("self: hardshrink_backward(grad, self, lambd)"),
    map_row!(Threshold "threshold", 1, same, typed!(threshold_ctx, DType), F | O, "a <= f0 ? f1 : a", "(Tensor self, Scalar threshold, Scalar value)", "x where above the threshold, else a value.").samples("f32[3, 4], 0.5, 2.0; i64[3], 1, 7").overlaps().grad("in place ThresholdBackward1 | self: threshold_backward(grad, self, threshold)"),
    map_row!(LogSigmoid "_nn.log_sigmoid", 1, same, 0, "min_(a, T(0)) - log1p(exp(-abs_(a)))", "(Tensor self)", "The logarithm of sigmoid(x).").samples("f32[3, 4]").grad("self: log_sigmoid_backward(grad, self, self)"),
    map_row!(Glu "_nn.glu", 2, same, 0, "a * sigmoid_(b)", "(Tensor self, Tensor gate)", "The first operand times the sigmoid of the second.").samples("f32[3, 4], f32[3, 4]").grad("self: glu_backward(grad, gate); gate: glu_backward(grad, self, gate)"),
    map_row!(Prelu "_nn.prelu", 2, same, 0, "a > T(0) ? a : b * a", "(Tensor self, Tensor weight)", "x where positive, else x times a weight.").samples("f32[3, 4], f32[4]").grad("PreluKernelBackward0 | self, weight: _prelu_kernel_backward(grad, self, weight)"),
    compose(
        "nn.functional.gelu",
        "(Tensor self, *, str approximate='none')",
        F | O | X,
        |a| gelu(a.input, a.approximate),
        "x times the normal distribution function of x.",
    ).alike(1)
    .samples("f32[3, 4]; f32[3, 4], approximate='tanh'"),
    compose(
        "nn.functional.softplus",
        "(Tensor self, float beta=1, float threshold=20)",
        F | O | X,
        |a| {
            f::_NnSoftplus::new(a.input)
                .beta(a.beta)
                .threshold(a.threshold)
                .call()
        },
        "log(1 + exp(x)), smoothly from 0 to x.",
    ).alike(1)
    .samples("f32[3, 4], beta=3, threshold=0.2")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "nn.functional.softshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| f::_NnSoftshrink::new(a.input).lambd(a.lambd).call(),
        "x moved towards 0 by lambd.",
    ).alike(1)
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.hardshrink",
        "(Tensor self, float lambd=0.5)",
        F | O | X,
        |a| f::Hardshrink::new(a.input).lambd(a.lambd).call(),
        "x, or 0 where it is within lambd of 0.",
    ).alike(1)
    .samples("f32[3, 4]; f32[3, 4], lambd=0.0"),
    compose(
        "nn.functional.tanhshrink",
        "(Tensor self)",
        F,
        |a| f::sub(a.input, &f::tanh(a.input)?),
        "x - tanh(x).",
    ).samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "nn.functional.softsign",
        "(Tensor self)",
        F,
        |a| f::div(a.input, &f::add(&f::abs(a.input)?, 1i64)?),
        "x / (1 + |x|).",
    ).samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "nn.functional.sigmoid",
        "(Tensor self)",
        F,
        |a| f::sigmoid(a.input),
        "1 / (1 + exp(-x)).",
    ).samples("f32[3, 4]"),
    compose(
        "nn.functional.tanh",
        "(Tensor self)",
        F,
        |a| f::tanh(a.input),
        "The hyperbolic tangent.",
    ).samples("f32[3, 4]; c64[2]"),
];

fn gelu(t: &Tensor, approximate: &str) -> Result<Tensor> {
    match approximate {
        "none" => f::_nn_gelu(t),
        "tanh" => f::_nn_gelu_tanh(t),
        _ => bail!(Runtime, "approximate argument must be either none or tanh."),
    }
}
