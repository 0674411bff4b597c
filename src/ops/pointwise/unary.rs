//! Pointwise operators of one operand. A row here is all an operator needs; see `docs/adding_an_op.md`.

use crate::cpu::map::Ctx;
use crate::cpu::math::{Elementary as _, RealFns as _};
use crate::cpu::vmath64;
use crate::cpu::{complex, halves};
use crate::ops::core::op::{Cast, E, F, FM, FMIO, FMO, I, J, Lies, M, OpDef, Ret, X, compose};
use crate::ops::pointwise::rule::{compare, equal, float, magnitude, same};
use crate::{DType, Result, Scalar, ensure, map_op, map_row};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

map_op! {
    Abs, 1 => real,
    [int] |x, c| if x < 0 as T { (0 as T).wrapping_sub(x) } else { x },
    [signed] |x, c| x.abs(),
    [bits] |x, c| x & 0x7fff,
    [complex] |x, c| x.norm()
}
map_op! { Neg, 1, [int] |x, c| (0 as T).wrapping_sub(x), [signed complex] |x, c| -x, [bits] |x, c| x ^ 0x8000 }
/// 1, -1 or, of what is neither more nor less, 0.
macro_rules! sign {
    ($x:ident) => {
        if $x > 0.0 {
            1.0
        } else if $x < 0.0 {
            -1.0
        } else {
            0.0
        }
    };
}
map_op! {
    Sign, 1,
    [int] |x, c| T::from(x > 0) - if x < 0 as T { 1 } else { 0 },
    [light] |x, c| sign!(x),
    [boolean] |x, c| x
}
map_op! {
    Sgn, 1,
    [int] |x, c| T::from(x > 0) - if x < 0 as T { 1 } else { 0 },
    [light] |x, c| sign!(x),
    [boolean] |x, c| x,
    [paired] |x, c| {
        let norm = x.re.hypot_(x.im);
        x / if norm == 0.0 { 1.0 } else { norm }
    }
}
map_op! { Ceil, 1, [int uint] |x, c| x, [whole] |x, c| x.ceil() }
map_op! { Floor, 1, [int uint] |x, c| x, [whole] |x, c| x.floor() }
map_op! { Trunc, 1, [int uint] |x, c| x, [whole] |x, c| x.trunc() }
map_op! { Round, 1, [int uint] |x, c| x, [whole] |x, c| x.round_ties_even() }
map_op! { Frac, 1, [light] |x, c| x - x.trunc() }
map_op! { Square, 1, [int] |x, c| x.wrapping_mul(x), [common complex] |x, c| x * x, [boolean] |x, c| x }
map_op! { Sqrt, 1, [common complex] |x, c| x.sqrt_() }
map_op! { Rsqrt, 1, [common] |x, c| 1.0 / x.sqrt_(), [complex] |x, c| complex::reciprocal(x.sqrt_()) }
map_op! { Reciprocal, 1, [common] |x, c| 1.0 / x, [paired] |x, c| complex::reciprocal(x) }
map_op! { Exp, 1, [float complex] |x, c| x.exp_() }
map_op! { Exp2, 1, [float complex] |x, c| x.exp2_() }
map_op! { Expm1, 1, [float complex] |x, c| x.expm1_() }
map_op! { Log, 1, [float complex] |x, c| x.log_() }
map_op! { Log2, 1, [float complex] |x, c| x.log2_() }
map_op! { Log10, 1, [float complex] |x, c| x.log10_() }
map_op! { Log1p, 1, [float complex] |x, c| x.log1p_() }
map_op! { Sin, 1, [float] |x, c| x.sin_() => (x as f64).sin() as T, [complex] |x, c| x.sin_() }
map_op! { Cos, 1, [float] |x, c| x.cos_() => (x as f64).cos() as T, [complex] |x, c| x.cos_() }
map_op! { Tan, 1, [float] |x, c| x.tan_() => (x as f64).tan() as T, [complex] |x, c| x.tan_() }
map_op! { Asin, 1, [float complex] |x, c| x.asin_() }
map_op! { Acos, 1, [float complex] |x, c| x.acos_() }
map_op! { Atan, 1, [float complex] |x, c| x.atan_() }
map_op! { Sinh, 1, [float complex] |x, c| x.sinh_() }
map_op! { Cosh, 1, [float complex] |x, c| x.cosh_() }
map_op! { Tanh, 1, [float complex] |x, c| x.tanh_() }
map_op! { Asinh, 1, [float complex] |x, c| x.asinh_() }
map_op! { Acosh, 1, [float complex] |x, c| x.acosh_() }
map_op! { Atanh, 1, [float complex] |x, c| x.atanh_() }
map_op! { Sigmoid, 1, [float complex] |x, c| x.sigmoid_() }
map_op! { Erf, 1, [float] |x, c| x.erf_() }
map_op! { Erfc, 1, [float] |x, c| x.erfc_() }
map_op! { Erfinv, 1, [float] |x, c| x.erfinv_() => vmath64::erfinv(f64::from(x)) as T }
map_op! { Lgamma, 1, [float] |x, c| vmath64::lgamma(f64::from(x)) as T }
map_op! { Digamma, 1, [float] |x, c| vmath64::digamma(f64::from(x)) as T }
map_op! { Relu, 1, [int] |x, c| if x > 0 as T { x } else { 0 }, [exact] |x, c| if x < 0.0 { 0.0 } else { x } }
map_op! { BitwiseNot, 1, [int boolean] |x, c| !x }
map_op! {
    LogicalNot, 1 => bool,
    [int uint] |x, c| x == 0,
    [light] |x, c| x == 0.0,
    [complex] |x, c| x.re == 0.0 && x.im == 0.0,
    [boolean] |x, c| !x
}
map_op! { Isnan, 1 => bool, [int uint boolean] |x, c| false, [light] |x, c| x.is_nan(), [complex] |x, c| x.is_nan() }
map_op! { Isinf, 1 => bool, [int uint boolean] |x, c| false, [light] |x, c| x.is_infinite(), [complex] |x, c| x.re.is_infinite() || x.im.is_infinite() }
map_op! { Isfinite, 1 => bool, [int uint boolean] |x, c| true, [light] |x, c| x.is_finite(), [complex] |x, c| x.is_finite() }
map_op! { Isposinf, 1 => bool, [int uint boolean] |x, c| false, [light] |x, c| x == T::INFINITY }
map_op! { Isneginf, 1 => bool, [int uint boolean] |x, c| false, [light] |x, c| x == T::NEG_INFINITY }
map_op! { Signbit, 1 => bool, [int] |x, c| x < 0 as T, [light] |x, c| x.is_sign_negative(), [boolean] |x, c| false }
map_op! {
    RoundTo, 1,
    [int] |x, c| x,
    [light] |x, c| {
        let ten = c.f[0] as T;
        if c.i[0] < 0 {
            (x / ten).round_ties_even() * ten
        } else {
            (x * ten).round_ties_even() / ten
        }
    }
}
map_op! {
    NanToNum, 1,
    [int uint boolean] |x, c| x,
    [whole] |x, c| if x.is_nan() { c.f[0] as T } else if x == T::INFINITY { c.f[1] as T } else if x == T::NEG_INFINITY { c.f[2] as T } else { x },
    [paired] |x, c| {
        let f = |v: f64| if v.is_nan() { c.f[0] } else if v == f64::INFINITY { c.f[1] } else if v == f64::NEG_INFINITY { c.f[2] } else { v };
        T::new(f(x.re as f64) as _, f(x.im as f64) as _)
    }
}
map_op! { Isreal, 1 => bool, [int uint light boolean] |x, c| true, [complex] |x, c| x.im == 0.0 }
map_op! {
    Angle, 1 => real,
    [light] |x, c| if x.is_nan() { x } else if x < 0.0 { std::f64::consts::PI as T } else { 0.0 },
    [paired] |x, c| x.im.atan2_(x.re)
}
map_op! { Deg2rad, 1, [light] |x, c| x * (std::f64::consts::PI / 180.0) as T }
map_op! { Rad2deg, 1, [light] |x, c| x * (180.0 / std::f64::consts::PI) as T }
map_op! {
    Logit, 1,
    [float] |x, c| {
        let z = if c.i[0] != 0 {
            let (lo, hi) = (c.f[0] as T, (1.0 - c.f[0] as T));
            if x < lo {
                lo
            } else if x > hi {
                hi
            } else {
                x
            }
        } else {
            x
        };
        (z / (1.0 - z)).log_()
    }
}
map_op! {
    Sinc, 1,
    [float] |x, c| {
        let p = std::f64::consts::PI * f64::from(x);
        let y = (vmath64::sin(p) / p) as T;
        if x == 0.0 { 1.0 } else { y }
    } => {
        let p = std::f64::consts::PI * f64::from(x);
        (p.sin() / p) as T
    },
    [complex] |x, c| if x.re == 0.0 && x.im == 0.0 {
        T::new(1.0, 0.0)
    } else {
        let p = x * T::new(std::f64::consts::PI as _, 0.0);
        complex::div(p.sin_(), p)
    }
}

fn positive(a: &calls::Positive) -> Result<Ret> {
    ensure!(
        a.input.dtype() != DType::Bool,
        Runtime,
        "The `+` operator, on a bool tensor is not supported."
    );
    Ok(Ret::Same(0))
}

/// `eps` of logit.
fn margin(a: &calls::Logit, _: DType) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    if let Some(eps) = a.eps.filter(|e| *e >= 0.0) {
        (ctx.f[0], ctx.i[0]) = (eps, 1);
    }
    Ok(ctx)
}

/// The largest finite number of a type.
fn largest(d: DType) -> f64 {
    match d.to_real() {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// What NaN and the infinities become.
fn replacements(a: &calls::NanToNum, d: DType) -> Result<Ctx> {
    let f = [
        a.nan.unwrap_or(0.0),
        a.posinf.unwrap_or(largest(d)),
        a.neginf.unwrap_or(-largest(d)),
    ];
    // In the type of the elements, so that results have no more digits than those.
    let rounded = |v: f64| halves::rounded(Scalar::Float(f64::from(v as f32)), d).to_f64();
    Ok(Ctx {
        f: if d.is_reduced_float() {
            f.map(rounded)
        } else {
            f
        },
        ..Ctx::default()
    })
}

/// A number of decimals, and its power of ten.
fn decimals(a: &calls::RoundDecimals, dtype: DType) -> Result<Ctx> {
    let kernel = if a.decimals == 0 {
        "round_vml_cpu"
    } else {
        "round_cpu"
    };
    dtype.check_kernel(!dtype.is_integral(false), kernel)?;
    let mut ctx = Ctx::default();
    let power = 10f64.powi(a.decimals.unsigned_abs().min(400) as i32);
    (ctx.i[0], ctx.f[0]) = (a.decimals, power);
    Ok(ctx)
}

fn angle_types(d: DType) -> (DType, DType) {
    let (d, _) = float(d);
    (d, d.to_real())
}

/// Truth values are multiplied as integers.
fn squared(d: DType) -> (DType, DType) {
    same(if d == DType::Bool { DType::I64 } else { d })
}

/// Truth values stay; everything else is computed in its own type.
fn signed(d: DType) -> (DType, DType) {
    (d, d)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Abs "abs", 1, magnitude, FMIO | X | E | J, "abs_(a)", "(Tensor self)", "The absolute value of each element.").lies(Lies::Like(DType::is_complex)).grad("self: grad * self.sgn()"),
    map_row!(Neg "neg", 1, same, FMIO | X | J, "-a", "(Tensor self)", "Each element negated.").grad("self: grad.neg(); jvp: linear"),
    compose(
        "positive",
        "(Tensor self)",
        FM,
        positive,
        "The tensor itself; truth values are refused.",
    ).samples("f32[3, 4]; c64[3, 4]"),
    map_row!(Sign "sign", 1, signed, FMIO | X, "sgn_(a)", "(Tensor self)", "-1, 0 or 1 by the sign of each element.").grad("self: zeros_like(grad); jvp: pointwise"),
    map_row!(Sgn "sgn", 1, same, FMIO | X, "sgn_(a)", "(Tensor self)", "The sign; for complex elements the point of the unit circle in their direction.").grad("self: _grad.sgn(self, grad, result); jvp: _grad.sgn(self, self_t, result)"),
    map_row!(Ceil "ceil", 1, same, FMIO | X | J, "ceil_(a)", "(Tensor self)", "The least integer not below each element.").grad("self: zeros_like(grad); jvp: pointwise"),
    map_row!(Floor "floor", 1, same, FMIO | X | J, "floor_(a)", "(Tensor self)", "The greatest integer not above each element.").grad("self: zeros_like(grad); jvp: pointwise"),
    map_row!(Trunc "trunc", 1, same, FMIO | X | J, "trunc_(a)", "(Tensor self)", "Each element without its fraction.").grad("self: zeros_like(grad); jvp: pointwise"),
    map_row!(Round "round", 1, same, FMIO | X | J, "round_(a)", "(Tensor self)", "The nearest integer, ties to even.").grad("self: zeros_like(grad); jvp: pointwise"),
    map_row!(Frac "frac", 1, same, FMIO | X | J, "a - trunc_(a)", "(Tensor self)", "The fraction of each element.").grad("self: grad; jvp: pointwise"),
    map_row!(Square "square", 1, squared, FMIO | J, "a * a", "(Tensor self)", "Each element times itself.").grad("PowBackward0 | self: _grad.pow_scalar(grad, self, 2); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Sqrt "sqrt", 1, float, FMIO | J, "sqrt(a)", "(Tensor self)", "The square root of each element.").grad("self: grad / (2 * result.conj()); jvp: pointwise"),
    map_row!(Rsqrt "rsqrt", 1, float, FMIO | J, "rsqrt(a)", "(Tensor self)", "One over the square root of each element.").grad("self: -0.5 * grad * result.pow(3).conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Reciprocal "reciprocal", 1, float, FMIO | J, "T(1) / a", "(Tensor self)", "One over each element.").grad("self: -grad * (result * result).conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Exp "exp", 1, float, FMIO | J, "exp(a)", "(Tensor self)", "e to the power of each element.").grad("self: grad * result.conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Exp2 "exp2", 1, float, FMIO | J, "exp2(a)", "(Tensor self)", "2 to the power of each element.").grad("self: grad * result.conj() * 0.6931471805599453; jvp: pointwise"),
    map_row!(Expm1 "expm1", 1, float, FMIO | J, "expm1(a)", "(Tensor self)", "e to the power of each element, minus one.").grad("self: grad * (result.conj() + 1); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Log "log", 1, float, FMIO | J, "log(a)", "(Tensor self)", "The natural logarithm of each element.").grad("self: grad.div(self.conj()); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Log2 "log2", 1, float, FMIO | J, "log2(a)", "(Tensor self)", "The logarithm to base 2 of each element.").grad("self: grad / (self.conj() * 0.6931471805599453); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Log10 "log10", 1, float, FMIO | J, "log10(a)", "(Tensor self)", "The logarithm to base 10 of each element.").grad("self: grad / (self.conj() * 2.3025850929940455); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Log1p "log1p", 1, float, FMIO | J, "log1p(a)", "(Tensor self)", "The natural logarithm of one plus each element.").grad("self: grad / (self + 1).conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Sin "sin", 1, float, FMIO | J, "sin(a)", "(Tensor self)", "The sine of each element.").grad("self: grad * self.cos().conj(); jvp: pointwise"),
    map_row!(Cos "cos", 1, float, FMIO | J, "cos(a)", "(Tensor self)", "The cosine of each element.").grad("self: grad * -self.sin().conj(); jvp: pointwise"),
    map_row!(Tan "tan", 1, float, FMIO | J, "tan(a)", "(Tensor self)", "The tangent of each element.").grad("self: grad * (1 + result.pow(2)).conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Asin "asin", 1, float, FMIO | J, "asin(a)", "(Tensor self)", "The arcsine of each element.").grad("self: grad * (-self * self + 1).rsqrt().conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Acos "acos", 1, float, FMIO | J, "acos(a)", "(Tensor self)", "The arccosine of each element.").grad("self: grad * -(-self * self + 1).rsqrt().conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Atan "atan", 1, float, FMIO | J, "atan(a)", "(Tensor self)", "The arctangent of each element.").grad("self: grad / (self * self + 1).conj(); jvp: pointwise"),
    map_row!(Sinh "sinh", 1, float, FMIO | J, "sinh(a)", "(Tensor self)", "The hyperbolic sine of each element.").grad("self: grad * self.cosh().conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Cosh "cosh", 1, float, FMIO | J, "cosh(a)", "(Tensor self)", "The hyperbolic cosine of each element.").grad("self: grad * self.sinh().conj(); jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Tanh "tanh", 1, float, FMIO | J, "tanh(a)", "(Tensor self)", "The hyperbolic tangent of each element.").grad("self: tanh_backward(grad, result); jvp: pointwise"),
    map_row!(Asinh "asinh", 1, float, FMIO | J, "asinh(a)", "(Tensor self)", "The inverse hyperbolic sine of each element.").grad("self: grad * (self.pow(2) + 1).rsqrt().conj(); jvp: pointwise"),
    map_row!(Acosh "acosh", 1, float, FMIO | J, "acosh(a)", "(Tensor self)", "The inverse hyperbolic cosine of each element.").grad("self: grad / ((self + 1).sqrt() * (self - 1).sqrt()).conj() if self.complex else grad * (self * self - 1).rsqrt(); jvp: pointwise"),
    map_row!(Atanh "atanh", 1, float, FMIO | J, "atanh(a)", "(Tensor self)", "The inverse hyperbolic tangent of each element.").grad("self: grad * 1 / (1 - self.pow(2)).conj(); jvp: pointwise"),
    map_row!(Sigmoid "sigmoid", 1, float, FMIO | J, "T(1) / (T(1) + exp(-a))", "(Tensor self)", "1 / (1 + exp(-x)) of each element.").grad("self: sigmoid_backward(grad, result); jvp: pointwise"),
    map_row!(Erf "erf", 1, float, FMIO | J, "erf(a)", "(Tensor self)", "The error function of each element.").grad("self: 1.1283791670955126 * exp(-self.pow(2)) * grad; jvp: pointwise"),
    map_row!(Erfc "erfc", 1, float, FMIO | J, "erfc(a)", "(Tensor self)", "One minus the error function of each element.").grad("self: -1.1283791670955126 * exp(-self.pow(2)) * grad; jvp: pointwise"),
    map_row!(Erfinv "erfinv", 1, float, FMIO, "erfinv(a)", "(Tensor self)", "The inverse error function of each element.").grad("self: 0.8862269254527579 * exp(self.erfinv().pow(2)) * grad; jvp: pointwise").amp(Cast::Kept, Cast::Single),
    map_row!(Lgamma "lgamma", 1, float, FMIO, "lgamma(a)", "(Tensor self)", "The logarithm of the absolute gamma function of each element.").grad("self: grad * digamma(self); jvp: pointwise"),
    map_row!(Digamma "digamma", 1, float, FMIO, "digamma_(a)", "(Tensor self)", "The logarithmic derivative of the gamma function of each element.").grad("self: grad * polygamma(1, self); jvp: pointwise"),
    map_row!(Relu "relu", 1, same, F | M | I | J, "a < T(0) ? T(0) : a", "(Tensor self)", "Each element, or 0 where it is negative.").grad("self: threshold_backward(grad, result, 0)"),
    map_row!(BitwiseNot "bitwise_not", 1, same, FMIO | X, "bitnot_(a)", "(Tensor self)", "Each bit flipped; truth values negated.").no_grad(),
    map_row!(LogicalNot "logical_not", 1, compare, FMIO, "!(a != T(0))", "(Tensor self)", "True where the element is zero.").no_grad(),
    map_row!(Isnan "isnan", 1, equal, FM, "isnan_(a)", "(Tensor self)", "True where the element is not a number.").no_grad(),
    map_row!(Isinf "isinf", 1, equal, FM, "isinf_(a)", "(Tensor self)", "True where the element is infinite.").lies(Lies::Like(|d| d.is_integral(true))).no_grad(),
    map_row!(Isfinite "isfinite", 1, equal, FM, "isfinite_(a)", "(Tensor self)", "True where the element is neither infinite nor NaN.").lies(Lies::Like(|d| d.is_integral(true))).no_grad(),
    map_row!(Isposinf "isposinf", 1, compare, FMO | X, "isposinf_(a)", "(Tensor self)", "True where the element is positive infinity.").no_grad(),
    map_row!(Isneginf "isneginf", 1, compare, FMO | X, "isneginf_(a)", "(Tensor self)", "True where the element is negative infinity.").no_grad(),
    map_row!(Signbit "signbit", 1, compare, FMO | X, "signbit_(a)", "(Tensor self)", "True where the sign bit is set.").no_grad(),
    map_row!(RoundTo "round#decimals", 1, same, typed!(decimals, DType), FMIO | X | J, "", "(Tensor self, *, int decimals)", "Rounded to a number of decimals.").samples("f32[3, 4], decimals=0").grad("RoundBackward1 | self: zeros_like(grad); jvp: pointwise"),
    map_row!(NanToNum "nan_to_num", 1, same, typed!(replacements, DType), FMIO | X | J, "nan_to_num_(a, f0, f1, f2)", "(Tensor self, float? nan=None, float? posinf=None, float? neginf=None)", "Infinities and NaN replaced by numbers.").lies(Lies::Like(|_| true)).grad("self: grad * isfinite(self); complex: never; jvp: pointwise || self: grad * isfinite(self)"),
    map_row!(Isreal "isreal", 1, equal, FM, "isreal_(a)", "(Tensor self)", "True where the imaginary part is zero.").lies(Lies::Like(|d| !d.is_complex())).no_grad(),
    map_row!(Angle "angle", 1, angle_types, FMO, "angle_(a)", "(Tensor self)", "The angle of each element in the complex plane.").lies(Lies::DenseOfComplex).grad("self: _grad.angle(grad, self)"),
    map_row!(Deg2rad "deg2rad", 1, float, FMIO | J, "a * T(0.017453292519943295)", "(Tensor self)", "Degrees as radians.").lies(Lies::Like(|_| true)).grad("self: grad * 0.017453292519943295; jvp: pointwise"),
    map_row!(Rad2deg "rad2deg", 1, float, FMIO | J, "a * T(57.29577951308232)", "(Tensor self)", "Radians as degrees.").lies(Lies::Like(|_| true)).grad("self: grad * 57.29577951308232; jvp: pointwise"),
    map_row!(Logit "logit", 1, float, typed!(margin, DType), FMIO | J, "", "(Tensor self, float? eps=None)", "log(x / (1 - x)), with x kept `eps` away from 0 and 1.").grad("self: logit_backward(grad, self, eps)"),
    map_row!(Sinc "sinc", 1, float, FMIO | J, "sinc_(a)", "(Tensor self)", "sin(pi x) / (pi x).").grad("self: _grad.sinc(grad, self); jvp: pointwise"),
];
