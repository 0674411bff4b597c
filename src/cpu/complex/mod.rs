//! Elementary functions of complex numbers in double precision. Infinities, NaN and the signs of zeros are those of C99,
//! annex G, on either side of a branch cut, but where a comment names what PyTorch does.

mod inverse;

pub use inverse::{acos, acosh, asin, asinh, atan, atanh};
use num_complex::{Complex, Complex32, Complex64};
use std::f64::consts::LN_2;

const fn c(re: f64, im: f64) -> Complex64 {
    Complex64::new(re, im)
}

/// i z.
fn turned(z: Complex64) -> Complex64 {
    c(-z.im, z.re)
}

/// -i z.
fn turned_back(z: Complex64) -> Complex64 {
    c(z.im, -z.re)
}

/// x^2 + y^2 - 1 with the digits that rounded squares would lose near the unit circle.
fn beyond_circle(x: f64, y: f64) -> f64 {
    let (large, small) = if x.abs() < y.abs() { (y, x) } else { (x, y) };
    let (p, q) = (large * large, small * small);
    let (p_rest, q_rest) = (large.mul_add(large, -p), small.mul_add(small, -q));
    let first = p - 1.0;
    let sum = first + q;
    let rest = q - (sum - first);
    sum + (rest + (p_rest + q_rest))
}

/// exp(x) (cos y + i sin y) times `scale`, where exp(x) alone may overflow.
fn spiral(x: f64, y: f64, scale: f64) -> Complex64 {
    const STEP: f64 = 700.0;
    let mut left = x;
    let (mut re, mut im) = (scale * y.cos(), scale * y.sin());
    let mut steps = 0;
    while left > STEP && steps < 3 {
        left -= STEP;
        re *= STEP.exp();
        im *= STEP.exp();
        steps += 1;
    }
    let rest = left.exp();
    c(re * rest, im * rest)
}

/// The exponential.
#[must_use]
pub fn exp(z: Complex64) -> Complex64 {
    if z.im == 0.0 {
        return c(z.re.exp(), z.im);
    }
    if !z.im.is_finite() && z.re.is_infinite() {
        return if z.re > 0.0 {
            c(z.re, f64::NAN)
        } else {
            c(0.0, 0f64.copysign(z.im))
        };
    }
    spiral(z.re, z.im, 1.0)
}

/// exp(z) - 1: no digits are lost near zero (Kahan's form with the sine of the half angle).
#[must_use]
pub fn expm1(z: Complex64) -> Complex64 {
    let half = (0.5 * z.im).sin();
    c(
        z.re.exp_m1() * z.im.cos() - 2.0 * half * half,
        z.re.exp() * z.im.sin(),
    )
}

/// The logarithm of the absolute value.
fn log_abs(x: f64, y: f64) -> f64 {
    let size = x.hypot(y);
    if (0.5..=2.0).contains(&size) {
        0.5 * beyond_circle(x, y).ln_1p()
    } else if size.is_infinite() && x.is_finite() && y.is_finite() {
        (0.5 * x).hypot(0.5 * y).ln() + LN_2
    } else {
        size.ln()
    }
}

/// The natural logarithm, cut along the negative real axis.
#[must_use]
pub fn ln(z: Complex64) -> Complex64 {
    c(log_abs(z.re, z.im), z.im.atan2(z.re))
}

/// log(1 + z), with the digits of a small z.
#[must_use]
pub fn ln_1p(z: Complex64) -> Complex64 {
    let angle = z.im.atan2(z.re + 1.0);
    if z.norm() < 0.5 {
        let t = z.re * (2.0 + z.re) + z.im * z.im;
        return c(if t == 0.0 { z.re } else { 0.5 * t.ln_1p() }, angle);
    }
    c(log_abs(z.re + 1.0, z.im), angle)
}

/// The square root with a real part that is not negative.
#[must_use]
pub fn sqrt(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y.is_infinite() {
        return c(f64::INFINITY, y);
    }
    if x == f64::INFINITY {
        return c(x, if y.is_nan() { y } else { 0f64.copysign(y) });
    }
    if x == f64::NEG_INFINITY {
        return c(if y.is_nan() { y } else { 0.0 }, f64::INFINITY.copysign(y));
    }
    if x == 0.0 && y == 0.0 {
        return c(0.0, y);
    }
    // A power of four keeps x + |z| away from overflow, and small parts away from subnormal numbers.
    let size = x.abs().max(y.abs());
    let (scale, back) = if size > 1e300 {
        (0.0625, 4.0)
    } else if size < 1e-290 {
        (2f64.powi(108), 2f64.powi(-54))
    } else {
        (1.0, 1.0)
    };
    let (x, y) = (x * scale, y * scale);
    let t = (0.5 * (x.abs() + x.hypot(y))).sqrt();
    let other = 0.5 * (y / t);
    if x >= 0.0 {
        c(t * back, other * back)
    } else {
        c(other.abs() * back, t.copysign(y) * back)
    }
}

/// The hyperbolic sine.
#[must_use]
pub fn sinh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        return c(x.sinh(), y);
    }
    if x == 0.0 {
        return c(if y.is_finite() { x * y.cos() } else { x }, y.sin());
    }
    if x.is_infinite() && !y.is_finite() {
        return c(f64::INFINITY, f64::NAN);
    }
    if x.abs() > 40.0 {
        let w = spiral(x.abs(), y, 0.5);
        return c(w.re.copysign(w.re * x), w.im);
    }
    c(x.sinh() * y.cos(), x.cosh() * y.sin())
}

/// The hyperbolic cosine.
#[must_use]
pub fn cosh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        return c(x.cosh(), if x.is_nan() { y } else { y * 1f64.copysign(x) });
    }
    if x == 0.0 {
        return c(y.cos(), if y.is_finite() { x * y.sin() } else { 0.0 });
    }
    if x.is_infinite() && !y.is_finite() {
        return c(f64::INFINITY, f64::NAN);
    }
    if x.abs() > 40.0 {
        let w = spiral(x.abs(), y, 0.5);
        return c(w.re, w.im.copysign(w.im * x));
    }
    c(x.cosh() * y.cos(), x.sinh() * y.sin())
}

/// The hyperbolic tangent.
#[must_use]
pub fn tanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if x.is_infinite() {
        let side = if y.is_finite() && y.abs() > 1.0 {
            y.sin() * y.cos()
        } else {
            y
        };
        return c(1f64.copysign(x), 0f64.copysign(side));
    }
    if y == 0.0 {
        return c(x.tanh(), y);
    }
    if !y.is_finite() || x.is_nan() {
        return c(if x == 0.0 { x } else { f64::NAN }, f64::NAN);
    }
    let (sin, cos) = y.sin_cos();
    if x.abs() > 20.0 {
        // Beyond 20 the denominator is a square of exp(|x|) / 2 to the last digit.
        return c(1f64.copysign(x), 4.0 * sin * cos * (-2.0 * x.abs()).exp());
    }
    let (s, h) = (x.sinh(), x.cosh());
    let below = s * s + cos * cos;
    c(s * h / below, sin * cos / below)
}

/// The sine.
#[must_use]
pub fn sin(z: Complex64) -> Complex64 {
    if !z.re.is_finite() && z.im.is_infinite() {
        return c(f64::NAN, f64::INFINITY);
    }
    turned_back(sinh(turned(z)))
}

/// The cosine.
#[must_use]
pub fn cos(z: Complex64) -> Complex64 {
    cosh(turned(z))
}

/// The tangent.
#[must_use]
pub fn tan(z: Complex64) -> Complex64 {
    turned_back(tanh(turned(z)))
}

/// The product in which infinities count before NaN (C99, annex G.5.1).
fn mul_infinite<T: num_traits::Float>(x: Complex<T>, y: Complex<T>) -> Complex<T> {
    let plain = x * y;
    let unbounded = |z: Complex<T>| z.re.is_infinite() || z.im.is_infinite();
    if !(plain.re.is_nan() && plain.im.is_nan() && (unbounded(x) || unbounded(y))) {
        return plain;
    }
    // An infinite operand becomes a corner or side of the unit square, and a NaN beside it a zero.
    let signed = |size: T, v: T| if v.is_sign_negative() { -size } else { size };
    let boxed = |z: Complex<T>| {
        let place = |v: T| {
            if v.is_infinite() {
                signed(T::one(), v)
            } else if v.is_nan() || unbounded(z) {
                signed(T::zero(), v)
            } else {
                v
            }
        };
        Complex::new(place(z.re), place(z.im))
    };
    let (x, y) = (boxed(x), boxed(y));
    Complex::new(
        T::infinity() * (x.re * y.re - x.im * y.im),
        T::infinity() * (x.re * y.im + x.im * y.re),
    )
}

/// The power, exp(y log x): NaN where both are zero, as in PyTorch.
#[must_use]
pub fn powc(x: Complex64, y: Complex64) -> Complex64 {
    exp(mul_infinite(y, ln(x)))
}

/// [`powc`] in single precision, which decides what leaves the range of numbers on the way.
#[must_use]
pub fn powc_single(x: Complex32, y: Complex32) -> Complex32 {
    narrowed(exp(wide(mul_infinite(y, narrowed(ln(wide(x)))))))
}

/// In double precision.
#[must_use]
pub fn wide(z: Complex32) -> Complex64 {
    c(f64::from(z.re), f64::from(z.im))
}

/// Rounded to single precision.
#[must_use]
pub fn narrowed(z: Complex64) -> Complex32 {
    Complex32::new(z.re as f32, z.im as f32)
}

/// The quotient by Smith's algorithm (CACM 5, 1962), which no square leaves the range of numbers in; over zero each part
/// is a real quotient. The parts are chosen without branches, so that loops vectorise.
#[must_use]
#[inline(always)]
pub fn div<T: num_traits::Float>(n: Complex<T>, d: Complex<T>) -> Complex<T> {
    let real = d.re.abs() >= d.im.abs();
    let (large, small) = if real { (d.re, d.im) } else { (d.im, d.re) };
    let (a, b) = if real { (n.re, n.im) } else { (n.im, -n.re) };
    let ratio = small / large;
    let scale = (large + small * ratio).recip();
    let ratio = if real { ratio } else { -ratio };
    let zero = large.is_zero();
    let by_zero = d.re.abs();
    Complex::new(
        if zero {
            n.re / by_zero
        } else {
            (a + b * ratio) * scale
        },
        if zero {
            n.im / by_zero
        } else {
            (b - a * ratio) * scale
        },
    )
}

/// One over `z`.
#[must_use]
#[inline(always)]
pub fn reciprocal<T: num_traits::Float>(z: Complex<T>) -> Complex<T> {
    div(Complex::new(T::one(), T::zero()), z)
}

/// 1 / (1 + exp(-z)).
#[must_use]
pub fn sigmoid(z: Complex64) -> Complex64 {
    reciprocal(1.0 + exp(-z))
}

/// log(exp(x) + exp(y)) without overflow; where both real parts are -inf the angle of the sum is unknown and the
/// smaller operand stands for it, as in PyTorch.
#[must_use]
pub fn logaddexp(x: Complex64, y: Complex64) -> Complex64 {
    if x.is_nan() || y.is_nan() {
        return c(f64::NAN, f64::NAN);
    }
    let (low, high) = if x.re < y.re { (x, y) } else { (y, x) };
    if low.re.is_finite() || low.re != high.re {
        ln_1p(exp(low - high)) + high
    } else if low.re < 0.0 {
        low
    } else {
        ln(exp(low) + exp(high))
    }
}
