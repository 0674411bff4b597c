//! Elementary functions in single precision, branch-free so that loops over them vectorise.
//!
//! Each is within 2 ulp of the true value (`tan` 2.4) and right at infinities, NaN, zeros and subnormals. `gelu` is within 20 ulp
//! down to -4 and 72 below; of `gelu_tanh` and the slopes the parts are.
//! `tests/core/accuracy.rs` holds the operators made of them to that. `sin`, `cos` and `tan` are NaN beyond 30,000: the loops of
//! those operators compute such elements in double precision.
//!
//! The polynomials are least-maximum fits made for this file (Lawson iteration on Chebyshev nodes); the range reductions are
//! Cody and Waite's.

mod angles;
mod errors;
pub mod widened;

pub use angles::{acos, asin, atan, cos, sin, tan};
pub use errors::{erf, gelu, gelu_of_bf16, gelu_slope};

use std::f32::consts::{LOG2_E, LOG10_E};

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

/// `p * 2^n` for `t = n + ROUND`, where neither p nor that is subnormal or infinite; not NaN for NaN.
#[inline(always)]
fn raised(p: f32, t: f32) -> f32 {
    f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23))
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

/// The natural logarithm of a positive finite number.
#[inline(always)]
fn log_positive(x: f32) -> f32 {
    let (f, e) = log_reduce(x);
    e.mul_add(LN2_HI, f + e.mul_add(LN2_LO, log1p_tail(f)))
}

/// The natural logarithm.
#[inline(always)]
#[must_use]
pub fn log(x: f32) -> f32 {
    log_edges(x, log_positive(x))
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

/// The hyperbolic tangent: a polynomial below 0.6, and above 1 - 2 / (e^2x + 1).
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    const TWICE_LOG2_E: f32 = 2.0 * LOG2_E;
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
    let inner = (x * z).mul_add(p, x);
    let a = x.abs();
    // From here on it is 1.
    let a = if a > 9.1 { 9.1 } else { a };
    let t = a.mul_add(TWICE_LOG2_E, ROUND);
    let r = a.mul_add(TWICE_LOG2_E, ROUND - t);
    let p = r.mul_add(poly(r, EXP2), 1.0);
    let outer = 1.0 - 2.0 / (raised(p, t) + 1.0);
    // NaN is no exponent to add to.
    (if a >= 0.6 { outer } else { inner }).copysign(x)
}

/// The logistic function 1 / (1 + e^-x).
#[inline(always)]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    // Of the two forms the one whose exponential cannot overflow, nor be subnormal where it is lost beside 1.
    let e = exp(-if x > 60.0 { 60.0 } else { x.abs() });
    let s = 1.0 + e;
    let y = (if x < 0.0 { e } else { 1.0 }) / s;
    // What the sum rounded away.
    y.mul_add((s - 1.0) - e, y)
}

/// The tanh approximation of [`gelu`].
#[inline(always)]
#[must_use]
pub fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769_1;
    let u = TWICE_SQRT_2_OVER_PI * (x * x * x).mul_add(0.044_715, x);
    x * sigmoid(u)
}
