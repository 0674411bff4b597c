//! Functions of single precision computed in double precision, so that the only rounding that counts is the last: within
//! 0.51 ulp, branch-free.
//!
//! Each polynomial is a least-maximum fit made for this file (Lawson iteration on Chebyshev nodes), its relative error below
//! 2^-34.

use crate::cpu::vmath64::{ROUND, parts, poly, short_complement};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, PI};

/// e^x; 0 and infinity of single precision beyond its range.
#[inline(always)]
fn exp_of(x: f64) -> f64 {
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    let t = x.mul_add(LOG2_E, ROUND);
    let r = (t - ROUND).mul_add(-LN_2, x);
    let p = poly(
        r,
        [
            1.991_787_374_881_825_8e-4,
            1.394_611_699_897_463_4e-3,
            8.333_265_339_558_95e-3,
            4.166_626_927_324_856e-2,
            1.666_666_685_614_531e-1,
            5.000_000_078_136_525e-1,
        ],
    );
    let power = f64::from_bits(t.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023) << 52);
    (r * r).mul_add(p, r + 1.0) * power
}

/// log(2^e (1 + f)).
#[inline(always)]
fn log_of_parts(e: f64, f: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let p = poly(
        z,
        [
            2.358_228_656_340_018e-1,
            2.853_730_181_203_496e-1,
            4.000_033_529_017_349e-1,
            6.666_666_564_504_883e-1,
        ],
    );
    e.mul_add(LN_2, s.mul_add(2.0, s * z * p))
}

/// log(x) for x >= 0.
#[inline(always)]
fn log_of(x: f64) -> f64 {
    let (e, f) = parts(x);
    let y = log_of_parts(e, f);
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x < f64::INFINITY { y } else { x }
}

/// log(1 + u) for u > -1, small ones too.
#[inline(always)]
fn log1p_of(u: f64) -> f64 {
    let (e, f) = parts(1.0 + u);
    let y = log_of_parts(e, if e == 0.0 { u } else { f });
    let y = if u == -1.0 { f64::NEG_INFINITY } else { y };
    let y = if u < -1.0 { f64::NAN } else { y };
    if u < f64::INFINITY { y } else { u }
}

/// atan(n / d) for 0 <= n <= d, d > 0.
#[inline(always)]
fn atan_of(n: f64, d: f64) -> f64 {
    let upper = n > 0.414_213_562_373_095_03 * d;
    let t = (if upper { n - d } else { n }) / (if upper { n + d } else { d });
    let z = t * t;
    let p = poly(
        z,
        [
            4.747_928_487_152_173e-2,
            -8.478_245_553_725_278e-2,
            1.104_506_608_403_960_1e-1,
            -1.428_203_996_500_939e-1,
            1.999_990_511_693_485_5e-1,
            -3.333_333_251_386_610_4e-1,
        ],
    );
    (t * z).mul_add(p, t) + if upper { FRAC_PI_4 } else { 0.0 }
}

/// The angle of the point (x, y).
#[inline(always)]
#[must_use]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (y, x) = (f64::from(y), f64::from(x));
    let clipped = |v: f64| if v.abs() > 1e90 { 1e90 } else { v.abs() };
    let (a, b) = (clipped(y), clipped(x));
    let steep = a > b;
    let (n, d) = (if steep { b } else { a }, if steep { a } else { b });
    let r = atan_of(n, if d == 0.0 { 1.0 } else { d });
    let r = if steep { FRAC_PI_2 - r } else { r };
    let r = if x.is_sign_negative() { PI - r } else { r };
    let r = r.copysign(y) as f32;
    // A NaN on either side, which the choices above may have dropped.
    if (y != y) | (x != x) { f32::NAN } else { r }
}

/// The length of the vector (x, y).
#[inline(always)]
#[must_use]
pub fn hypot(x: f32, y: f32) -> f32 {
    let (a, b) = (f64::from(x).abs(), f64::from(y).abs());
    let r = a.mul_add(a, b * b).sqrt();
    // Infinity beside NaN is infinity.
    let endless = (a == f64::INFINITY) | (b == f64::INFINITY);
    (if endless { f64::INFINITY } else { r }) as f32
}

/// The hyperbolic sine.
#[inline(always)]
#[must_use]
pub fn sinh(x: f32) -> f32 {
    let x = f64::from(x);
    let (e, z) = (exp_of(x.abs()), x * x);
    let p = poly(
        z,
        [
            2.817_439_654_504_101_5e-6,
            1.983_606_624_521_294_7e-4,
            8.333_350_598_078_16e-3,
            1.666_666_648_871_771_8e-1,
        ],
    );
    let small = (x * z).mul_add(p, x);
    let large = (0.5 * (e - 1.0 / e)).copysign(x);
    (if x.abs() < 1.0 { small } else { large }) as f32
}

/// The hyperbolic cosine.
#[inline(always)]
#[must_use]
pub fn cosh(x: f32) -> f32 {
    let e = exp_of(f64::from(x).abs());
    (0.5 * (e + 1.0 / e)) as f32
}

/// The inverse hyperbolic sine.
#[inline(always)]
#[must_use]
pub fn asinh(x: f32) -> f32 {
    let a = f64::from(x).abs();
    let square = a * a;
    let y = log1p_of(a + square / (1.0 + (1.0 + square).sqrt()));
    // The square of infinity over its root is none.
    (if a < f64::INFINITY { y } else { a }).copysign(f64::from(x)) as f32
}

/// The inverse hyperbolic cosine.
#[inline(always)]
#[must_use]
pub fn acosh(x: f32) -> f32 {
    let t = f64::from(x) - 1.0;
    let y = log1p_of(t + (t * (t + 2.0)).sqrt());
    (if t < 0.0 { f64::NAN } else { y }) as f32
}

/// The inverse hyperbolic tangent.
#[inline(always)]
#[must_use]
pub fn atanh(x: f32) -> f32 {
    let a = f64::from(x).abs();
    let y = 0.5 * log1p_of(2.0 * a / (1.0 - a));
    let y = if a == 1.0 { f64::INFINITY } else { y };
    (if a > 1.0 { f64::NAN } else { y }).copysign(f64::from(x)) as f32
}

/// One minus the error function.
#[inline(always)]
fn erfc_of(x: f64) -> f64 {
    let y = short_complement(x.abs());
    if x < 0.0 { 2.0 - y } else { y }
}

/// One minus the error function.
#[inline(always)]
#[must_use]
pub fn erfc(x: f32) -> f32 {
    erfc_of(f64::from(x)) as f32
}

/// The normal distribution function.
#[inline(always)]
#[must_use]
pub fn ndtr(x: f32) -> f32 {
    (0.5 * erfc_of(f64::from(x) * -FRAC_1_SQRT_2)) as f32
}

/// The inverse error function: x times polynomials of w = -log(1 - x^2), a variable of Giles ("Approximating the erfinv function",
/// 2010), and far out of 1 / (1 + s) for its root s; by interpolation in Chebyshev nodes.
#[inline(always)]
#[must_use]
pub fn erfinv(x: f32) -> f32 {
    const NEAR: f64 = 6.0;
    let x = f64::from(x);
    let w = -log_of((1.0 - x) * (1.0 + x));
    let near = poly(
        w - 3.0,
        [
            1.296_174_803_839_904_6e-13,
            1.189_214_635_021_319_4e-12,
            -1.863_748_238_551_682e-11,
            -1.240_185_824_245_711_8e-11,
            1.118_690_923_748_373_9e-9,
            -5.593_270_701_360_593e-9,
            -2.371_560_306_891_766e-8,
            4.504_397_688_878_656e-7,
            -1.747_953_668_352_602_8e-6,
            -1.271_727_019_185_545_3e-5,
            0.000_195_061_285_145_610_83,
            -0.000_836_181_075_853_848_7,
            -0.005_738_135_211_645_762,
            0.241_630_403_997_668_83,
            1.623_542_006_464_829_8,
        ],
    );
    let s = w.sqrt();
    let far = poly(
        1.0 / (1.0 + s) - 0.24,
        [
            -45_931_420.427_404_85,
            2_083_726.027_684_199_4,
            1_019_718.513_223_740_5,
            -27_595.663_876_810_213,
            -17_000.414_346_540_314,
            -429.825_507_351_098_9,
            213.918_452_996_759_04,
            30.749_850_434_654_416,
            3.979_900_304_945_937,
            0.464_627_904_301_753_5,
            -1.184_344_153_058_220_4,
            0.720_036_870_233_376_5,
        ],
    );
    let y = x * if w < NEAR { near } else { s.mul_add(far, far) };
    let y = if x.abs() == 1.0 {
        f64::INFINITY.copysign(x)
    } else {
        y
    };
    (if x.abs() > 1.0 { f64::NAN } else { y }) as f32
}

/// The power; the base's sign counts for whole exponents.
#[inline(always)]
#[must_use]
pub fn pow(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    let base = x.abs();
    let exponent = y * log_of(base);
    let power = exp_of(if (base == 1.0) | (y == 0.0) {
        0.0
    } else {
        exponent
    });
    let (whole, even) = (y.trunc() == y, (0.5 * y).trunc() == 0.5 * y);
    let power = if x.is_sign_negative() & whole & !even {
        -power
    } else {
        power
    };
    let power = if (x < 0.0) & !whole & (base < f64::INFINITY) {
        f64::NAN
    } else {
        power
    };
    (if (y == 0.0) | (x == 1.0) { 1.0 } else { power }) as f32
}
