//! Pointwise arithmetic of two and three operands.

use crate::cpu::complex;
use crate::cpu::map::{Ctx, FromCtx, Loop, both};
use crate::cpu::math::{ComplexFns as _, Elementary, RealFns, gcd, int_pow};
use crate::cpu::neighbour::Stepped as _;
use crate::ops::core::args::Args;
use crate::ops::core::fits::check_fits;
use crate::ops::core::op::{Batch, Cast, E, F, FMIO, FMO, J, Lies, N, O, OpDef, X, compose};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::pointwise::factors;
use crate::ops::pointwise::powers::ldexp;
use crate::ops::pointwise::rule::{float, same};
use crate::ops::pointwise::unary::{Reciprocal, Rsqrt, Sqrt, Square};
use crate::{DType, Result, Scalar, Tensor, bail, ensure, kernels, map_op, map_row};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

// PyTorch rounds sums with a factor once (real numbers only), and so do these.
map_op! {
    Add, sums,
    [int] |x, y, c| x.wrapping_add(y.wrapping_mul(T::ctx(c, 0))),
    [common] |x, y, c| y.mul_add(T::ctx(c, 0), x),
    [plainly] |x, y, c| x + y * T::ctx(c, 0),
    [boolean] |x, y, c| x | (y & T::ctx(c, 0))
}
map_op! {
    Sub, 2,
    [int] |x, y, c| x.wrapping_sub(y.wrapping_mul(T::ctx(c, 0))),
    [common] |x, y, c| (-y).mul_add(T::ctx(c, 0), x),
    [plainly] |x, y, c| x - y * T::ctx(c, 0)
}
map_op! { Mul, swaps, [int uint] |x, y, c| x.wrapping_mul(y), [common plainly] |x, y, c| x * y, [boolean] |x, y, c| both(x, y) }
map_op! { Div, 2, [common] |x, y, c| x / y, [complex] |x, y, c| complex::div(x, y) }
map_op! { DivTrunc, 2, [int_heavy] |x, y, c| if y == 0 { 0 } else { x.wrapping_div(y) }, [light] |x, y, c| (x / y).trunc() }
/// The remainder with the sign of the divisor, from that with the sign of the dividend.
macro_rules! signed_as {
    ($y:expr, $m:expr) => {{
        let (y, m) = ($y, $m);
        if (m != 0.0) & ((y < 0.0) != (m < 0.0)) {
            m + y
        } else {
            m
        }
    }};
}
/// The quotient rounded down, from the remainder: what is left of the dividend is divided exactly, but for rounding.
macro_rules! floor_of {
    ($x:expr, $y:expr, $m:expr) => {{
        let (x, y, m) = ($x, $y, $m);
        let d = (x - m) / y;
        let d = if (m != 0.0) & ((y < 0.0) != (m < 0.0)) {
            d - 1.0
        } else {
            d
        };
        let f = d.floor();
        let f = if d - f > 0.5 { f + 1.0 } else { f };
        if d == 0.0 {
            (0.0 as T).copysign(x / y)
        } else {
            f
        }
    }};
}
map_op! {
    DivFloor, 2,
    [int_heavy] |x, y, c| if y == 0 {
        0
    } else {
        let q = x.wrapping_div(y);
        if (x.wrapping_rem(y) != 0) && ((x < 0 as T) != (y < 0 as T)) {
            q.wrapping_sub(1)
        } else {
            q
        }
    },
    [float] |x, y, c| floor_of!(x, y, x.rem_(y)) => if y == 0.0 { x / y } else { floor_of!(x, y, x % y) }
}
map_op! {
    Remainder, 2,
    [int_heavy] |x, y, c| if y == 0 {
        0
    } else {
        let r = x.wrapping_rem(y);
        if r != 0 && ((r < 0 as T) != (y < 0 as T)) {
            r.wrapping_add(y)
        } else {
            r
        }
    },
    [float] |x, y, c| signed_as!(y, x.rem_(y)) => signed_as!(y, x % y)
}
map_op! { Fmod, 2, [int_heavy] |x, y, c| if y == 0 { 0 } else { x.wrapping_rem(y) }, [float] |x, y, c| x.rem_(y) => x % y }
map_op! {
    Pow, 2,
    [int_heavy] |x, y, c| int_pow(x as i64, y as i64) as T,
    [float] |x, y, c| x.pow_(y),
    [complex] |x, y, c| x.powc_(y)
}
map_op! { Atan2, 2, [float] |x, y, c| x.atan2_(y) }
map_op! { Hypot, 2, [float] |x, y, c| x.hypot_(y) }
map_op! { Copysign, 2, [signed] |x, y, c| x.copysign(y), [bits] |x, y, c| x & 0x7fff | y & 0x8000 }
/// How many bits of the numbers of an operator [`Stepped`] is told.
fn width(_: &calls::Nextafter, d: DType) -> Result<Ctx> {
    let kind = match d {
        DType::BF16 => 16.0,
        DType::F16 => 13.0,
        _ => 0.0,
    };
    Ok(Ctx {
        f: [kind, 0.0, 0.0],
        ..Ctx::default()
    })
}
map_op! {
    Nextafter, 2,
    [light] |x, y, c| if x.is_nan() || y.is_nan() {
        T::NAN
    } else if x == y {
        y
    } else if x == 0.0 {
        T::least(c.f[0]).copysign(y)
    } else {
        x.neighbour((y > x) == (x > 0.0), c.f[0]).copysign(x)
    }
}
map_op! {
    Logaddexp, 2,
    [float] |x, y, c| {
        let above = if x > y { x } else { y };
        let sum = above + (-(x - y).abs()).exp_().log1p_();
        if x == y { x + std::f64::consts::LN_2 as T } else { sum }
    },
    [complex] |x, y, c| x.logaddexp_(y)
}
map_op! {
    Logaddexp2, 2,
    [float] |x, y, c| {
        let above = if x > y { x } else { y };
        let more = (-(x - y).abs()).exp2_().log1p_() * (std::f64::consts::LOG2_E as T);
        if x == y { x + 1.0 } else { above + more }
    }
}
map_op! {
    Xlogy, 2,
    [float] |x, y, c| if y.is_nan() {
        y
    } else if x == 0.0 {
        0.0
    } else {
        x * y.log_()
    }
}
map_op! {
    Xlog1py, 2,
    [float] |x, y, c| if y.is_nan() {
        y
    } else if x == 0.0 {
        0.0
    } else {
        x * y.log1p_()
    }
}
map_op! {
    Heaviside, 2,
    [int] |x, y, c| if x == 0 { y } else { T::from(x > 0) },
    [light] |x, y, c| if x == 0.0 {
        y
    } else if x > 0.0 {
        1.0
    } else {
        0.0
    },
    [boolean] |x, y, c| x | y
}
map_op! { Gcd, 2, [int_heavy] |x, y, c| gcd(x as i64, y as i64) as T }
map_op! {
    Lcm, 2,
    [int_heavy] |x, y, c| {
        let g = gcd(x as i64, y as i64);
        if g == 0 {
            0
        } else {
            ((x as i64).wrapping_div(g).wrapping_mul(y as i64)).wrapping_abs() as T
        }
    }
}
map_op! {
    Lerp, 3,
    [light] |x, y, w, c| if w.abs() < 0.5 {
        w.mul_add(y - x, x)
    } else {
        (x - y).mul_add(1.0 - w, y)
    },
    [plainly] |x, y, w, c| {
        // As real numbers, so that nothing is chosen but factors.
        let near = w.norm_sqr() < 0.25;
        let (from, by) = if near { (x, w) } else { (y, w - T::new(1.0, 0.0)) };
        from + by * (y - x)
    }
}
map_op! {
    Addcmul, 3,
    [int] |x, y, z, c| x.wrapping_add(T::ctx(c, 0).wrapping_mul(y).wrapping_mul(z)),
    [light] |x, y, z, c| (T::ctx(c, 0) * y).mul_add(z, x),
    [complex] |x, y, z, c| x + T::ctx(c, 0) * y * z
}
map_op! { Addcdiv, 3, [common] |x, y, z, c| x + T::ctx(c, 0) * y / z, [complex] |x, y, z, c| x + complex::div(T::ctx(c, 0) * y, z) }

/// Refuses differences of truth values.
///
/// # Errors
/// If one of the operands has them.
pub fn subtractable(x: bool, y: bool) -> Result<()> {
    ensure!(
        !(x && y),
        Runtime,
        "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
    );
    ensure!(
        !(x || y),
        Runtime,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the \
         `~` or `logical_not()` operator instead."
    );
    Ok(())
}

/// `alpha` of sub, which truth values do not have.
fn sub_alpha(a: &calls::Sub, d: DType) -> Result<Ctx> {
    let is_bool = |x: Operand| match x {
        Operand::Tensor(t) => t.dtype() == DType::Bool,
        Operand::Scalar(s) => matches!(s, Scalar::Bool(_)),
    };
    subtractable(is_bool(a.input), is_bool(a.other))?;
    factors::taken(a.alpha, d)
}

/// Products, quotients and interpolations with a number keep it in single precision beside 16-bit tensors.
/// lerp does not promote, but for a weight without dimensions.
fn one_type(a: &calls::Lerp, _: DType) -> Result<Ctx> {
    let own = a.input.dtype();
    let (weight, kernel) = match a.weight {
        Operand::Tensor(w) => ((w.ndim() > 0).then_some(w), "lerp_kernel_tensor"),
        Operand::Scalar(_) => (None, "lerp_kernel_scalar"),
    };
    for (t, name) in [(Some(a.end), "end"), (weight, "weight")] {
        let given = t.map_or(own, Tensor::dtype);
        ensure!(
            given == own,
            Runtime,
            "expected dtype {} for `{name}` but got dtype {}",
            own.cpp_name(),
            given.cpp_name()
        );
    }
    own.check_kernel(!own.is_integral(true), kernel)?;
    Ok(Ctx {
        wide_numbers: true,
        ..Ctx::default()
    })
}

fn wide_numbers(_: &Args, _: DType) -> Result<Ctx> {
    Ok(Ctx {
        wide_numbers: true,
        ..Ctx::default()
    })
}

/// heaviside does not promote.
fn one_dtype(a: &calls::Heaviside, _: DType) -> Result<Ctx> {
    let complex = |t: &Tensor| t.dtype().is_complex();
    ensure!(
        !complex(a.input) && !complex(a.values),
        Runtime,
        "heaviside is not yet implemented for complex tensors."
    );
    ensure!(
        a.input.dtype() == a.values.dtype(),
        Runtime,
        "heaviside is not yet implemented for tensors with different dtypes."
    );
    Ok(Ctx::default())
}

/// Division with `rounding_mode`.
fn div_mode(a: &calls::DivMode) -> Result<Tensor> {
    match a.rounding_mode {
        None => f::div(a.input, a.other),
        Some("trunc") => f::_div_trunc(a.input, a.other),
        Some("floor") => f::floor_divide(a.input, a.other),
        Some(other) => bail!(
            Runtime,
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
        ),
    }
}

/// Integer division by zero is an error, as in Python, if anything is divided.
fn nonzero(divided: Operand, divisor: Operand, d: DType) -> Result<()> {
    let empty = |o| matches!(o, Operand::Tensor(t) if t.numel() == 0);
    if !d.is_integral(true) || empty(divided) || empty(divisor) {
        return Ok(());
    }
    let zero = match divisor {
        Operand::Tensor(t) => kernels::any_zero(t),
        // Of an integer too large for the type its lowest bits are left.
        Operand::Scalar(s) => s.to_i64() << (64 - 8 * d.size()) == 0,
    };
    ensure!(!zero, Runtime, "ZeroDivisionError");
    Ok(())
}

map_op! { One, 1, [light] |x, c| 1.0, [complex] |x, c| T::new(1.0, 0.0) }
map_op! { Cube, 1, [light complex] |x, c| x * x * x }
map_op! { Same, 1, [light complex] |x, c| x }
map_op! { InverseSquare, 1, [light] |x, c| 1.0 / (x * x), [complex] |x, c| complex::reciprocal(x * x) }

/// The loops of exponents that need no logarithm; PyTorch has the same.
fn power_by_number(exponent: Scalar, d: DType) -> Option<&'static Loop> {
    let exponent = exponent.to_c64();
    if d.is_integral(false) && exponent == Complex64::new(2.0, 0.0) {
        return Square::kernel(d);
    }
    if !(d.is_float() || d.is_complex()) || exponent.im != 0.0 {
        return None;
    }
    match exponent.re {
        0.0 => One::kernel(d),
        0.5 => Sqrt::kernel(d),
        1.0 => Same::kernel(d),
        2.0 => Square::kernel(d),
        3.0 => Cube::kernel(d),
        -0.5 => Rsqrt::kernel(d),
        -1.0 => Reciprocal::kernel(d),
        -2.0 => InverseSquare::kernel(d),
        _ => None,
    }
}

/// Integers to negative integer powers have no integer result.
fn natural_exponent(a: &calls::Pow, d: DType) -> Result<()> {
    if d.is_integral(true)
        && let Operand::Scalar(e) = a.exponent
    {
        check_fits(e, DType::I64)?;
        ensure!(
            e.to_i64() >= 0,
            Runtime,
            "Integers to negative integer powers are not allowed."
        );
        check_fits(e, d)?;
    }
    Ok(())
}

/// The power in double precision, complex if an operand is.
fn float_power(base: Operand, exponent: Operand) -> Result<Tensor> {
    let is_complex = |o: Operand| match o {
        Operand::Tensor(t) => t.dtype().is_complex(),
        Operand::Scalar(s) => matches!(s, Scalar::Complex(_)),
    };
    let complex = is_complex(base) || is_complex(exponent);
    let d = if complex { DType::C128 } else { DType::F64 };
    let number = |s: Scalar| {
        if complex {
            Scalar::Complex(s.to_c64())
        } else {
            Scalar::Float(s.to_f64())
        }
    };
    match (base, exponent) {
        (Operand::Tensor(x), Operand::Tensor(y)) => f::pow(&x.to_dtype(d)?, &y.to_dtype(d)?),
        (Operand::Tensor(x), Operand::Scalar(y)) => f::pow(&x.to_dtype(d)?, number(y)),
        (Operand::Scalar(x), Operand::Tensor(y)) => f::pow(number(x), &y.to_dtype(d)?),
        (Operand::Scalar(x), Operand::Scalar(y)) => f::pow(number(x), number(y)),
    }
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_add_number",
        "(Tensor self, Scalar other)",
        0,
        |a| f::add(a.input, a.other),
        "A number added, inside of another operator.",
    )
    .samples("f32[3], 2.0")
    .grad("AddBackward1 | self: grad"),
    compose(
        "_sub_number",
        "(Tensor self, Scalar other)",
        0,
        |a| f::sub(a.input, a.other),
        "A number taken off, inside of another operator.",
    )
    .samples("f32[3], 2.0")
    .grad("SubBackward1 | self: grad"),
    compose(
        "_mul_number",
        "(Tensor self, Scalar other)",
        0,
        |a| f::mul(a.input, a.other),
        "The product with a number, inside of another operator.",
    )
    .samples("f32[3], 2.0")
    .grad("MulBackward1 | self: grad * other.conj()"),
    compose(
        "_div_number",
        "(Tensor self, Scalar other)",
        0,
        |a| f::div(a.input, a.other),
        "The quotient by a number, inside of another operator.",
    )
    .samples("f32[3], 2.0")
    .grad("DivBackward1 | self: grad / other.conj()"),
    map_row!(Add "add", 2, same, typed!(|a, d| factors::narrow(a.alpha, d), DType), FMIO | N, "a + b * alpha", "(Operand self, Operand other, *, Scalar alpha=1)", "The sum, the second operand times `alpha`.").grad("self: grad; other: _grad.scale(grad, alpha.conj()); jvp: self_t + _grad.scale(other_t, alpha)"),
    map_row!(Sub "sub", 2, same, typed!(sub_alpha, DType), FMIO | N, "a - b * alpha", "(Operand self, Operand other, *, Scalar alpha=1)", "The difference, the second operand times `alpha`.").checked_first().grad("SubBackward0 / SubBackward0 / RsubBackward1 | self: grad; other: _grad.scale(-grad, alpha.conj()); jvp: self_t - _grad.scale(other_t, alpha)"),
    compose(
        "rsub",
        "(Tensor self, Operand other, *, Scalar alpha=1)",
        F,
        |a| f::Sub::new(a.other, a.input).alpha(a.alpha).call(),
        "The second operand minus the first times `alpha`.",
    )
    .samples("f32[5], f32[()]; c64[5, 10, 5], c64[5, 10, 5]")
    .grad("RsubBackward0 / RsubBackward1 | self: _grad.scale(-grad, alpha.conj()); other: grad"),
    map_row!(Mul "mul", 2, same, wide_numbers, FMIO | N, "a * b", "(Operand self, Operand other)", "The product.").grad("self: grad * other.conj(); other: grad * self.conj(); jvp: other_t * self + self_t * other"),
    map_row!(Div "div", 2, float, wide_numbers, FMIO | N, "a / b", "(Operand self, Operand other)", "The quotient; integers are divided as floats.").grad("self: grad / other.conj(); other: -grad * ((self / other) / other).conj(); jvp: (self_t - other_t * result) / other"),
    compose(
        "div#mode",
        "(Operand self, Operand other, *, str? rounding_mode)",
        FMIO,
        div_mode,
        "The quotient, rounded by `trunc` towards zero, by `floor` down.",
    )
    .alike(0b11)
    .samples("f32[5], f32[()], rounding_mode='floor'")
    .grad("DivBackward2 | self: zeros_like(grad) if rounding_mode.given else grad / other.conj(); other: zeros_like(grad) if rounding_mode.given else -grad * ((self / other) / other).conj()")
    .batch(Batch::Pointwise),
    map_row!(DivTrunc "_div_trunc", 2, same, with wide_numbers, check typed!(|a, d| nonzero(a.input, a.other, d), DType), N, "trunc_div(a, b)", "(Operand self, Operand other)", "The quotient cut off towards zero.").no_grad(),
    map_row!(DivFloor "floor_divide", 2, same, with wide_numbers, check typed!(|a, d| nonzero(a.input, a.other, d), DType), FMIO | N, "floor_div(a, b)", "(Operand self, Operand other)", "The quotient rounded down.").refused(),
    map_row!(Remainder "remainder", 2, same, check typed!(|a, d| nonzero(a.input, a.other, d), DType), FMIO, "py_mod(a, b)", "(Operand self, Operand other)", "The remainder with the sign of the divisor.").grad("RemainderBackward1 / RemainderBackward0 | self: grad; other: -grad * self.div(other, rounding_mode='floor')"),
    map_row!(Fmod "fmod", 2, same, check typed!(|a, d| nonzero(Operand::Tensor(a.input), a.other, d), DType), FMIO, "c_mod(a, b)", "(Tensor self, Operand other)", "The remainder with the sign of the dividend.").grad("FmodBackward1 / FmodBackward0 | self: grad; other: -grad * self.div(other, rounding_mode='trunc')"),
    map_row!(Pow "pow", 2, same, beside power_by_number, check typed!(natural_exponent, DType), FMIO, "pow_(a, b)", "(Operand self, Operand exponent)", "The first operand to the power of the second.").lies(Lies::Tensors).grad("PowBackward1 / PowBackward0 / PowBackward2 | self: _grad.pow_base(grad, self, exponent); exponent: _grad.pow_exponent(grad, self, exponent, result)").amp(Cast::Kept, Cast::Single),
    compose(
        "float_power",
        "(Tensor self, Operand exponent)",
        FMIO | X | E,
        |a| float_power(a.input.into(), a.exponent),
        "The power in double precision.",
    )
    .samples("f32[5].unit, f32[()].unit"),
    compose(
        "float_power#scalar",
        "(Scalar self, Tensor exponent)",
        F | O | X,
        |a| float_power(a.input.into(), a.exponent.into()),
        "The power in double precision.",
    )
    .samples("2.0, f32[3].pos; (1+1j), c64[2]"),
    compose(
        "ldexp",
        "(Tensor self, Tensor other)",
        FMIO | J,
        |a| ldexp(a.input, a.other),
        "self * 2 ** other.",
    )
    .alike(0b11)
    .samples("f32[5], f32[()]; f16[5], i64([-20, -1, 0, 3, 14]); f64[3], i32([-1070, 0, 1030])")
    .grad("self: ldexp(grad, other.conj()); other: grad * (result * 0.6931471805599453).conj()"),
    map_row!(Atan2 "atan2", 2, float, FMIO, "atan2(a, b)", "(Tensor self, Tensor other)", "The angle of the point (other, self).").grad("self: grad * other * _grad.nearness(self, other); other: grad * -self * _grad.nearness(self, other)").amp(Cast::Kept, Cast::Widest),
    map_row!(Hypot "hypot", 2, same, FMIO, "hypot(a, b)", "(Tensor self, Tensor other)", "The length of the hypotenuse.").grad("self: grad * self / result; other: grad * other / result"),
    map_row!(Copysign "copysign", 2, float, FMIO, "copysign(a, b)", "(Tensor self, Operand other)", "The magnitude of the first operand with the sign of the second.").grad("CopysignBackward0 / CopysignBackward1 | self: _grad.copysign(grad, self, result); other: zeros_like(grad)"),
    map_row!(Nextafter "nextafter", 2, same, typed!(width, DType), FMIO, "nextafter_(a, b, f0)", "(Tensor self, Tensor other)", "The next float after the first operand towards the second.").grad("self: where(self == other, 0, grad); other: zeros_like(grad)"),
    map_row!(Logaddexp "logaddexp", 2, same, FMO, "logaddexp_(a, b)", "(Tensor self, Tensor other)", "The logarithm of the sum of exponentials.").grad("self: grad / (1 + exp(other - self)).conj(); other: grad / (1 + exp(self - other)).conj()"),
    map_row!(Logaddexp2 "logaddexp2", 2, same, FMO, "logaddexp2_(a, b)", "(Tensor self, Tensor other)", "The base-2 logarithm of the sum of powers of 2.").grad("self: grad / (1 + pow(2, other - self)); other: grad / (1 + pow(2, self - other))"),
    map_row!(Xlogy "xlogy", 2, float, FMIO | J, "xlogy_(a, b)", "(Operand self, Operand other)", "x * log(y), 0 where x is 0.").grad("XlogyBackward0 / XlogyBackward2 / XlogyBackward1 | self: xlogy(grad, other).masked_fill(bitwise_and(self == 0.0, other.le(0.0)), 0.0) if other.given else None; other: grad * self / other"),
    map_row!(Xlog1py "special.xlog1py", 2, float, F | O, "xlog1py_(a, b)", "(Operand self, Operand other)", "x * log1p(y), 0 where x is 0.").grad("SpecialXlog1PyBackward0 / SpecialXlog1PyBackward2 / SpecialXlog1PyBackward1 | self: special.xlog1py(grad, other).masked_fill(bitwise_and(self == 0.0, other.le(-1.0)), 0.0); other: grad * self / (other + 1)"),
    map_row!(Heaviside "heaviside", 2, same, typed!(one_dtype, DType), FMIO | X, "a == T(0) ? b : T(a > T(0))", "(Tensor self, Tensor values)", "0, `values` or 1 by the sign of the element.").checked_first().refused(),
    map_row!(Gcd "gcd", 2, same, FMIO | J, "gcd_(a, b)", "(Tensor self, Tensor other)", "The greatest common divisor.").no_grad(),
    map_row!(Lcm "lcm", 2, same, FMIO | J, "lcm_(a, b)", "(Tensor self, Tensor other)", "The least common multiple.").no_grad(),
    map_row!(Lerp "lerp", 3, same, typed!(one_type, DType), FMIO | X, "lerp_(a, b, c)", "(Tensor self, Tensor end, Operand weight)", "The point between two operands at `weight`.").checked_first().lies(Lies::Tensors).grad("LerpBackward1 / LerpBackward0 | self: grad * (1 - weight).conj(); end: grad * weight.conj(); weight: grad * (end - self).conj()"),
    map_row!(Addcmul "addcmul", 3, same, typed!(|a, d| factors::value(a.value, d), DType), FMIO, "a + alpha * b * c", "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", "self + value * tensor1 * tensor2.").grad("self: grad; tensor1: grad * (tensor2 * value).conj(); tensor2: grad * (tensor1 * value).conj()").amp(Cast::Kept, Cast::Widest),
    map_row!(Addcdiv "addcdiv", 3, same, typed!(|a, d| factors::divided(a.value, [a.tensor1, a.tensor2], d), DType), FMIO, "a + alpha * (b / c)", "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", "self + value * tensor1 / tensor2.").checked_first().grad("self: grad; tensor1: grad * (value / tensor2).conj(); tensor2: -grad * (value * tensor1 / (tensor2 * tensor2)).conj()").amp(Cast::Kept, Cast::Widest),
];
