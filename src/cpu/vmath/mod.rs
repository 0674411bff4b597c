//! Elementary functions in single precision, branch-free so that loops over them vectorise.
//!
//! Each is within 2 ulp of the true value and right at infinities, NaN, zeros and subnormals. `gelu` is within 20 ulp down to -4
//! and 72 below; of `gelu_tanh` and the slopes the parts are.
//! `tests/core/accuracy.rs` holds the operators made of them to that. `sin` and `cos` are NaN beyond 30,000, `tan` beyond 1e15: the
//! loops of those operators compute such elements in double precision.
//!
//! The polynomials are least-maximum fits made for this file (Lawson iteration on Chebyshev nodes); the range reductions are
//! Cody and Waite's.

pub mod widened;

use std::f32::consts::{LOG2_E, LOG10_E};

/// Largest magnitude for which [`sin`] and [`cos`] have a value.
const TRIG_LIMIT: f32 = 30_000.0;

/// Adding this to a float below 2^22 rounds it to an integer, which then sits in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The same with 254 added: the low bits then are the exponents, bias included, of two powers of two whose product is that
/// of the integer.
const ROUND_EXPONENT: f32 = ROUND + 254.0;
const LN2_HI: f32 = 0.693_359_375;
const LN2_LO: f32 = -2.121_944_4e-4;

/// Horner's rule with fused steps, highest coefficient first.
#[inline(always)]
fn poly<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[0];
    for &c in &c[1..] {
        y = y.mul_add(x, c);
    }
    y
}

/// Clamps, keeping NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// The nearest integer as a float and as an integer; garbage for NaN.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let t = x + ROUND;
    (
        t - ROUND,
        (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32),
    )
}

/// `p * 2^n` for `t = n + ROUND_EXPONENT`, n in -254..=254, with one rounding. For n = -254, where results are far below all
/// numbers, the powers are 0: a product that ends as 0 by rounding takes a processor ten times as long.
#[inline(always)]
fn scale(p: f32, t: f32) -> f32 {
    let sum = t.to_bits();
    let half = sum >> 1;
    p * f32::from_bits(half << 23) * f32::from_bits(sum.wrapping_sub(half) << 23)
}

/// 2^n for `t = n + ROUND_EXPONENT`, n in -127..=127, with 0 for the first.
#[inline(always)]
fn pow2(t: f32) -> f32 {
    f32::from_bits(t.to_bits().wrapping_sub(127) << 23)
}

/// `(e^r - 1 - r) / r^2` for |r| <= ln(2) / 2.
#[inline(always)]
fn exp_tail(r: f32) -> f32 {
    poly(
        r,
        [
            1.395_083_4e-3,
            8.369_089e-3,
            4.166_620_2e-2,
            1.666_651_7e-1,
            0.5,
        ],
    )
}

/// e^r for |r| <= ln(2) / 2.
#[inline(always)]
fn exp_core(r: f32) -> f32 {
    exp_tail(r).mul_add(r, 1.0).mul_add(r, 1.0)
}

/// `(r, n + ROUND_EXPONENT)` with x = n ln(2) + r.
#[inline(always)]
fn exp_reduce(x: f32) -> (f32, f32) {
    let t = x.mul_add(LOG2_E, ROUND_EXPONENT);
    let n = t - ROUND_EXPONENT;
    (n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, x)), t)
}

/// e^x.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    let (r, t) = exp_reduce(clamp(x, -176.0, 89.0));
    scale(exp_core(r), t)
}

/// (2^r - 1) / r for |r| <= 1/2.
const EXP2: [f32; 6] = [
    1.547_589_8e-4,
    1.340_028_4e-3,
    9.618_006e-3,
    5.550_328e-2,
    2.402_265_1e-1,
    6.931_471_8e-1,
];

/// 2^x.
#[inline(always)]
#[must_use]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -254.0, 129.0);
    let t = x + ROUND_EXPONENT;
    let r = x - (t - ROUND_EXPONENT);
    scale(r.mul_add(poly(r, EXP2), 1.0), t)
}

/// e^x - 1, accurate near 0.
#[inline(always)]
#[must_use]
pub fn expm1(x: f32) -> f32 {
    let (r, t) = exp_reduce(clamp(x, -30.0, 89.0));
    let p = (r * r).mul_add(exp_tail(r), r);
    // Half the scale, so that 2^128 is never formed.
    let s = pow2(t - 1.0);
    let y = s.mul_add(p, s - 0.5) * 2.0;
    let y = if t == ROUND_EXPONENT { p } else { y };
    y.copysign(x)
}

/// `(f, e)` with x = (1 + f) 2^e and 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x.
#[inline(always)]
fn log_reduce(x: f32) -> (f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let bits = (if tiny { x * 8_388_608.0 } else { x }).to_bits();
    // 0x3f3504f3 is sqrt(1/2): the subtraction carries into the exponent just where the mantissa passes it.
    let e = (bits.wrapping_sub(0x3f35_04f3) as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((e << 23) as u32));
    (m - 1.0, e as f32 - if tiny { 23.0 } else { 0.0 })
}

/// `log(1 + f) - f` for f in [sqrt(1/2) - 1, sqrt(2) - 1).
#[inline(always)]
fn log1p_tail(f: f32) -> f32 {
    let p = poly(
        f,
        [
            -7.636_254e-2,
            1.276_363_3e-1,
            -1.316_051_3e-1,
            1.420_150_8e-1,
            -1.662_33e-1,
            2.000_123_6e-1,
            -2.500_082e-1,
            3.333_333e-1,
        ],
    );
    let z = f * f;
    (p * f).mul_add(z, -0.5 * z)
}

/// Puts in the values of a logarithm at 0, infinity, and outside its domain.
#[inline(always)]
fn log_edges(x: f32, y: f32) -> f32 {
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// The natural logarithm.
#[inline(always)]
#[must_use]
pub fn log(x: f32) -> f32 {
    let (f, e) = log_reduce(x);
    log_edges(x, e.mul_add(LN2_HI, f + e.mul_add(LN2_LO, log1p_tail(f))))
}

/// log(1 + x), accurate near 0.
#[inline(always)]
#[must_use]
pub fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    // What the addition rounded away, brought back to first order.
    let lost = if x > 1.0 {
        1.0 - (u - x)
    } else {
        x - (u - 1.0)
    };
    let usable = u > 0.0 && u < f32::INFINITY;
    let c = if usable { lost / u } else { 0.0 };
    let (f, e) = log_reduce(u);
    let y = e.mul_add(LN2_HI, f + e.mul_add(LN2_LO, log1p_tail(f) + c));
    let y = log_edges(u, y);
    if x.abs() < 1e-7 { x } else { y }
}

/// The logarithm to base 2.
#[inline(always)]
#[must_use]
pub fn log2(x: f32) -> f32 {
    let (f, e) = log_reduce(x);
    let t = log1p_tail(f);
    // log2(e) - 1, so that the leading terms stay exact.
    const LOG2_E_M1: f32 = 0.442_695_04;
    let y = (t.mul_add(LOG2_E_M1, f * LOG2_E_M1) + t) + f + e;
    log_edges(x, y)
}

/// The logarithm to base 10.
#[inline(always)]
#[must_use]
pub fn log10(x: f32) -> f32 {
    const LOG10_2_HI: f32 = 0.301_025_39;
    const LOG10_2_LO: f32 = 4.605_039e-6;
    let (f, e) = log_reduce(x);
    let t = log1p_tail(f);
    let y = e.mul_add(
        LOG10_2_HI,
        f.mul_add(LOG10_E, t.mul_add(LOG10_E, e * LOG10_2_LO)),
    );
    log_edges(x, y)
}

/// `(sin r, cos r, quadrant)` for x = quadrant * pi / 2 + r.
#[inline(always)]
fn trig(x: f32) -> (f32, f32, i32) {
    let x = if x.abs() <= TRIG_LIMIT { x } else { f32::NAN };
    let (n, q) = nearest(x * std::f32::consts::FRAC_2_PI);
    let r = n.mul_add(-1.570_796_25, x);
    let r = n.mul_add(-7.549_789_4e-8, r);
    let r = n.mul_add(-5.390_302_5e-15, r);
    let z = r * r;
    let s = poly(
        z,
        [2.717_874_8e-6, -1.983_929e-4, 8.333_329e-3, -1.666_666_7e-1],
    );
    let s = (r * z).mul_add(s, r);
    let c = poly(z, [2.443_421_4e-5, -1.388_733_2e-3, 4.166_664_6e-2]);
    let c = (z * z).mul_add(c, (-0.5f32).mul_add(z, 1.0));
    (s, c, q)
}

/// The sine, for |x| up to 30,000.
#[inline(always)]
#[must_use]
pub fn sin(x: f32) -> f32 {
    let (s, c, q) = trig(x);
    let y = if q & 1 == 0 { s } else { c };
    let y = f32::from_bits(y.to_bits() ^ ((q as u32 & 2) << 30));
    if x == 0.0 { x } else { y }
}

/// The cosine, for |x| up to 30,000.
#[inline(always)]
#[must_use]
pub fn cos(x: f32) -> f32 {
    let (s, c, q) = trig(x);
    let y = if q & 1 == 0 { c } else { s };
    f32::from_bits(y.to_bits() ^ ((q.wrapping_add(1) as u32 & 2) << 30))
}

/// The hyperbolic tangent.
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = poly(
        z,
        [
            -5.905_860_6e-3,
            2.080_537_8e-2,
            -5.378_668e-2,
            1.333_195_9e-1,
            -3.333_33e-1,
        ],
    );
    let e = exp_negative(-2.0 * x.abs());
    let y = 1.0 - 2.0 * e / (1.0 + e);
    let y = if x.abs() < 0.6 {
        (x * z).mul_add(p, x)
    } else {
        y
    };
    y.copysign(x)
}

/// The logistic function 1 / (1 + e^-x).
#[inline(always)]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    // Of the two forms the one whose exponential cannot overflow.
    let e = exp(-x.abs());
    let s = 1.0 + e;
    let y = (if x < 0.0 { e } else { 1.0 }) / s;
    // What the sum rounded away.
    y.mul_add((s - 1.0) - e, y)
}

/// erfc(x) for x >= 0: exp(-x^2) times a polynomial in 1 / (1 + 0.4 x).
#[inline(always)]
fn erfc_positive(x: f32) -> f32 {
    // It is 0 long before, but not the exponential.
    let x = clamp(x, 0.0, 13.4);
    let t = 1.0 / 0.4f32.mul_add(x, 1.0);
    let p = poly(
        t,
        [
            -2.920_546_6e-2,
            1.959_011_3e-1,
            -4.938_448_4e-1,
            5.408_123e-1,
            -2.788_589_6e-1,
            2.691_106_2e-1,
            1.307_009_5e-1,
            2.147_003_7e-1,
            2.249_783_3e-1,
            2.257_055_6e-1,
        ],
    );
    let hi = x * x;
    let lo = x.mul_add(x, -hi);
    let e = exp(-hi);
    (-e).mul_add(lo, e) * (p * t)
}

/// erf(x) for |x| <= 1.
#[inline(always)]
fn erf_small(x: f32) -> f32 {
    let p = poly(
        x * x,
        [
            7.854_025e-5,
            -8.010_247_3e-4,
            5.188_334_3e-3,
            -2.685_381_7e-2,
            1.128_358_5e-1,
            -3.761_262_6e-1,
            1.283_791_7e-1,
        ],
    );
    x.mul_add(p, x)
}

/// The error function.
#[inline(always)]
#[must_use]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    if a < 1.0 {
        erf_small(x)
    } else {
        // From here on it is 1.
        (1.0 - erfc_positive(if a > 4.0 { 4.0 } else { a })).copysign(x)
    }
}

/// e^x for x <= 0, with 0 for what is subnormal.
#[inline(always)]
fn exp_negative(x: f32) -> f32 {
    let (r, t) = exp_reduce(if x < -88.3 { -88.3 } else { x });
    exp_core(r) * pow2(t)
}

/// The normal distribution function of -a for a >= 0, which is exp(-a^2 / 2) times a polynomial in 1 / (1 + 0.3 a); and that
/// exponential.
#[inline(always)]
fn normal_tail(a: f32) -> (f32, f32) {
    let t = 1.0 / 0.3f32.mul_add(a, 1.0);
    let g = poly(
        t,
        [
            3.833_440_7e-2,
            -1.689_526e-1,
            2.282_185_9e-1,
            -7.600_097e-2,
            1.421_859_4e-1,
            9.483_263e-2,
            1.218_821_4e-1,
            1.194_930_5e-1,
            6.853_478e-6,
        ],
    );
    let e = exp_negative(-0.5 * a * a);
    (g * e, e)
}

/// x times the normal distribution function, from `tail`: polynomials for those of -|x|, which is exp(-x^2 / 2) times the one in
/// 1 / (1 + `step` |x|), and for (2^r - 1) / r.
#[inline(always)]
fn times_normal<const N: usize, const M: usize>(
    x: f32,
    step: f32,
    tail: [f32; N],
    exp2: [f32; M],
) -> f32 {
    // What is left beyond here is too small for any number.
    const FAR: f32 = 14.7;
    const HALF_LOG2_E: f32 = 0.721_347_5;
    // Adds the exponent that `far` has taken from the polynomial: no power on the way is subnormal.
    const ROUND_FAR: f32 = ROUND + 64.0;
    let a = x.abs();
    let a = if a > FAR { FAR } else { a };
    let g = poly(1.0 / step.mul_add(a, 1.0), tail);
    let z = a * a;
    let t = z.mul_add(-HALF_LOG2_E, ROUND_FAR);
    let r = z.mul_add(-HALF_LOG2_E, ROUND_FAR - t);
    let p = r.mul_add(poly(r, exp2), 1.0);
    let below = g * f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23));
    x * if x < 0.0 { below } else { 1.0 - below }
}

/// Coefficients times 2^-64.
const fn far<const N: usize>(mut c: [f32; N]) -> [f32; N] {
    let mut i = 0;
    while i < N {
        c[i] *= 1.0 / 18_446_744_073_709_551_616.0;
        i += 1;
    }
    c
}

/// x times the normal distribution function.
#[inline(always)]
#[must_use]
pub fn gelu(x: f32) -> f32 {
    const TAIL: [f32; 9] = far([
        3.758_398_5e-2,
        -1.653_086_5e-1,
        2.207_053_8e-1,
        -6.743_53e-2,
        1.362_983_9e-1,
        9.732_291e-2,
        1.212_509_8e-1,
        1.195_805_8e-1,
        1.742_919_7e-6,
    ]);
    times_normal(x, 0.3, TAIL, EXP2)
}

/// The same with fewer terms, for numbers in bf16: in that type the results are the nearest ones. The coefficients are a
/// solution of the inequalities that this makes, one for each number.
#[inline(always)]
#[must_use]
pub fn gelu_of_bf16(x: f32) -> f32 {
    const TAIL: [f32; 6] = far([
        -9.346_685e-2,
        2.400_457_4e-1,
        5.015_856_2e-2,
        1.615_545_8e-1,
        1.416_295e-1,
        7.844_2e-5,
    ]);
    const EXP2: [f32; 4] = [9.582_85e-3, 5.590_643e-2, 2.402_41e-1, 6.931_241_8e-1];
    times_normal(x, 0.36, TAIL, EXP2)
}

/// The derivative of [`gelu`].
#[inline(always)]
#[must_use]
pub fn gelu_slope(x: f32) -> f32 {
    const INV_SQRT_TAU: f32 = 0.398_942_3;
    let (tail, e) = normal_tail(x.abs());
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    (x * INV_SQRT_TAU).mul_add(e, below)
}

/// The tanh approximation of [`gelu`].
#[inline(always)]
#[must_use]
pub fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769_1;
    let u = TWICE_SQRT_2_OVER_PI * (x * x * x).mul_add(0.044_715, x);
    x * sigmoid(u)
}
