//! The power, by a logarithm in twice the digits.

use super::{LN2_HI, LN2_LO, clamp, exp_of_sum, parts_of_any, poly};

/// log(x) as a sum, for positive finite x; within 2^-64 of it.
#[inline(always)]
fn log(x: f64) -> (f64, f64) {
    const THIRD: f64 = 1.0 / 3.0;
    const THIRD_LO: f64 = 1.850_371_707_708_594e-17;
    let (e, f) = parts_of_any(x);
    // s = f / (2 + f); the logarithm is 2 (s + s^3 (1 / 3 + ...)).
    let d = 2.0 + f;
    let d_low = f - (d - 2.0);
    let inverse = 1.0 / d;
    let s = f * inverse;
    let s_low = inverse * (-s).mul_add(d_low, (-s).mul_add(d, f));
    let z = s * s;
    let z_low = (2.0 * s).mul_add(s_low, s.mul_add(s, -z));
    let tail = z * poly(
        z,
        [
            0.066_011_324_007_687_64,
            0.066_280_988_644_928_58,
            0.076_933_915_202_861_97,
            0.090_908_919_154_401_2,
            0.111_111_112_628_877_56,
            0.142_857_142_850_342_46,
            0.200_000_000_000_011_59,
        ],
    );
    let factor = THIRD + tail;
    let factor_low = (THIRD - factor) + tail + THIRD_LO;
    let cube = z * s;
    let cube_low = z.mul_add(s_low, z_low.mul_add(s, z.mul_add(s, -cube)));
    let term = cube * factor;
    let term_low = cube.mul_add(
        factor_low,
        cube_low.mul_add(factor, cube.mul_add(factor, -term)),
    );
    let sum = s + term;
    let sum_low = (s - sum) + term + (s_low + term_low);
    let whole = e * LN2_HI;
    let y = 2.0f64.mul_add(sum, whole);
    let low = 2.0f64.mul_add(sum, whole - y) + 2.0f64.mul_add(sum_low, e * LN2_LO);
    (y + low, (y - (y + low)) + low)
}

/// The power; the base's sign counts for whole exponents. Squares are what products are.
#[inline(always)]
#[must_use]
pub fn pow(x: f64, y: f64) -> f64 {
    // Beyond this the power of anything but 1 is 0 or infinity.
    const MOST: f64 = 1e20;
    let base = x.abs();
    let (log, log_low) = log(base);
    let exponent = clamp(y, -MOST, MOST);
    let product = exponent * log;
    let low = exponent.mul_add(log_low, exponent.mul_add(log, -product));
    let power = exp_of_sum(product, low);
    let end = if (base == 0.0) == (y < 0.0) {
        f64::INFINITY
    } else {
        0.0
    };
    let power = if (base == 0.0) | (base == f64::INFINITY) {
        end
    } else {
        power
    };
    let (whole, even) = (y.trunc() == y, (0.5 * y).trunc() == 0.5 * y);
    let power = if x.is_sign_negative() & whole & !even {
        -power
    } else {
        power
    };
    let nameless = (x < 0.0) & !whole & (base < f64::INFINITY);
    let power = if nameless | (x != x) | (y != y) {
        f64::NAN
    } else {
        power
    };
    let power = if y == 2.0 { x * x } else { power };
    let power = if y == 1.0 { x } else { power };
    if (y == 0.0) | (x == 1.0) { 1.0 } else { power }
}
