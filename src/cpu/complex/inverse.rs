//! Inverse circular and hyperbolic functions.

use super::{beyond_circle, c, turned, turned_back};
use num_complex::Complex64;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// What the inverse sines and cosines of x + i y have in common, for x and y >= 0.
struct Inverse {
    /// The real part of the arcsine.
    asin: f64,
    /// The real part of the arccosine.
    acos: f64,
    /// The imaginary part of the arcsine.
    im: f64,
}

/// The algorithm of Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using exception
/// handling" (ACM TOMS 23, 1997): no cancellation near the branch points, no overflow far away. Both parts are finite.
fn inverse(x: f64, y: f64) -> Inverse {
    const A_CROSSOVER: f64 = 1.5;
    const B_CROSSOVER: f64 = 0.6417;
    let (largest, smallest) = (f64::MAX.sqrt() / 8.0, f64::MIN_POSITIVE.sqrt() * 4.0);
    let inside = smallest..largest;
    if !inside.contains(&x) || !inside.contains(&y) {
        return far_inverse(x, y, largest, smallest);
    }
    let (r, s) = ((x + 1.0).hypot(y), (x - 1.0).hypot(y));
    let a = 0.5 * (r + s);
    let b = x / a;
    let square = y * y;
    let (asin, acos) = if b <= B_CROSSOVER {
        (b.asin(), b.acos())
    } else {
        let apx = a + x;
        let opposite = if x <= 1.0 {
            (0.5 * apx * (square / (r + x + 1.0) + (s + (1.0 - x)))).sqrt()
        } else {
            y * (0.5 * (apx / (r + x + 1.0) + apx / (s + (x - 1.0)))).sqrt()
        };
        ((x / opposite).atan(), (opposite / x).atan())
    };
    let im = if a <= A_CROSSOVER {
        let am1 = if x < 1.0 {
            0.5 * (square / (r + x + 1.0) + square / (s + (1.0 - x)))
        } else {
            0.5 * (square / (r + x + 1.0) + (s + (x - 1.0)))
        };
        (am1 + (am1 * (a + 1.0)).sqrt()).ln_1p()
    } else {
        (a + (a * a - 1.0).sqrt()).ln()
    };
    Inverse { asin, acos, im }
}

/// [`inverse`] where a square would leave the range of numbers.
fn far_inverse(x: f64, y: f64, largest: f64, smallest: f64) -> Inverse {
    let xm1 = x - 1.0;
    if y < f64::EPSILON * xm1.abs() {
        if x < 1.0 {
            let im = y / ((1.0 - x) * (1.0 + x)).sqrt();
            return Inverse {
                asin: x.asin(),
                acos: x.acos(),
                im,
            };
        }
        let im = if xm1 < largest {
            (xm1 + (xm1 * (x + 1.0)).sqrt()).ln_1p()
        } else {
            LN_2 + x.ln()
        };
        let acos = y / (xm1.sqrt() * (x + 1.0).sqrt());
        return Inverse {
            asin: FRAC_PI_2,
            acos,
            im,
        };
    }
    if y <= smallest {
        let root = y.sqrt();
        return Inverse {
            asin: FRAC_PI_2 - root,
            acos: root,
            im: root,
        };
    }
    if f64::EPSILON * y - 1.0 >= x {
        return Inverse {
            asin: x / y,
            acos: FRAC_PI_2,
            im: LN_2 + y.ln(),
        };
    }
    if x > 1.0 {
        let ratio = x / y;
        let im = LN_2 + y.ln() + 0.5 * (ratio * ratio).ln_1p();
        return Inverse {
            asin: ratio.atan(),
            acos: (y / x).atan(),
            im,
        };
    }
    let a = (1.0 + y * y).sqrt();
    let im = 0.5 * (2.0 * y * (y + a)).ln_1p();
    Inverse {
        asin: x / a,
        acos: FRAC_PI_2,
        im,
    }
}

/// The inverse hyperbolic sine.
#[must_use]
pub fn asinh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y.is_infinite() {
        let angle = if x.is_infinite() {
            FRAC_PI_4
        } else {
            FRAC_PI_2
        };
        let angle = if x.is_nan() { x } else { angle.copysign(y) };
        return c(f64::INFINITY.copysign(x), angle);
    }
    if x.is_infinite() {
        return c(x, if y.is_nan() { y } else { 0f64.copysign(y) });
    }
    if x.is_nan() || y.is_nan() {
        return c(f64::NAN, if y == 0.0 { y } else { f64::NAN });
    }
    if x == 0.0 && y == 0.0 {
        return z;
    }
    let parts = inverse(y.abs(), x.abs());
    c(parts.im.copysign(x), parts.asin.copysign(y))
}

/// The arcsine.
#[must_use]
pub fn asin(z: Complex64) -> Complex64 {
    turned_back(asinh(turned(z)))
}

/// The arccosine: a quarter turn less the arcsine, as PyTorch has it, so that a zero imaginary part has no sign; the digits
/// near 1 are the arccosine's own.
#[must_use]
pub fn acos(z: Complex64) -> Complex64 {
    let sine = asin(z);
    let re = if z.re.is_finite() && z.im.is_finite() {
        let re = inverse(z.re.abs(), z.im.abs()).acos;
        if z.re.is_sign_negative() { PI - re } else { re }
    } else {
        FRAC_PI_2 - sine.re
    };
    c(re, 0.0 - sine.im)
}

/// The inverse hyperbolic cosine.
#[must_use]
pub fn acosh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y.is_infinite() {
        let angle = if x == f64::INFINITY {
            FRAC_PI_4
        } else if x == f64::NEG_INFINITY {
            PI - FRAC_PI_4
        } else {
            FRAC_PI_2
        };
        return c(
            f64::INFINITY,
            if x.is_nan() { x } else { angle.copysign(y) },
        );
    }
    if x.is_infinite() {
        let angle = if x > 0.0 { 0.0 } else { PI };
        return c(
            f64::INFINITY,
            if y.is_nan() { y } else { angle.copysign(y) },
        );
    }
    if x.is_nan() || y.is_nan() {
        return c(f64::NAN, if x == 0.0 { FRAC_PI_2 } else { f64::NAN });
    }
    let parts = inverse(x.abs(), y.abs());
    let angle = if x.is_sign_negative() {
        PI - parts.acos
    } else {
        parts.acos
    };
    c(parts.im, angle.copysign(y))
}

/// The inverse hyperbolic tangent.
#[must_use]
pub fn atanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y.is_infinite() {
        return c(0f64.copysign(x), FRAC_PI_2.copysign(y));
    }
    if x.is_infinite() || x == 0.0 {
        let angle = if y.is_nan() || x == 0.0 {
            y.atan()
        } else {
            FRAC_PI_2.copysign(y)
        };
        return c(0f64.copysign(x), angle);
    }
    if x.is_nan() || y.is_nan() {
        return c(f64::NAN, f64::NAN);
    }
    const FAR: f64 = 16.0 / f64::EPSILON;
    if x.abs() >= FAR || y.abs() >= FAR {
        let size = (0.5 * x).hypot(0.5 * y);
        return c(x / size / size * 0.25, FRAC_PI_2.copysign(y));
    }
    let square = y * y;
    let below = (1.0 - x.abs()) * (1.0 - x.abs()) + square;
    let re = if below == 0.0 {
        // x is one, and y too small for a square.
        0.5 * (LN_2 - y.abs().ln())
    } else {
        0.25 * (4.0 * x.abs() / below).ln_1p()
    };
    let angle = 0.5 * (2.0 * y).atan2(0.0 - beyond_circle(x, y));
    c(re.copysign(x), angle)
}

/// The arctangent.
#[must_use]
pub fn atan(z: Complex64) -> Complex64 {
    turned_back(atanh(turned(z)))
}
