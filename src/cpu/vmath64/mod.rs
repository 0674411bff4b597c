//! Elementary functions in double precision, branch-free so that loops over them vectorise; see [`super::vmath`].
//!
//! Each is within 2 ulp of the true value (most within 1.2; `bessel` and `gamma` say less) and right at infinities, NaN, zeros and
//! subnormals, but for `sin`, `cos` and `tan`, which are NaN beyond 4e5: the loops of those operators have a library compute such
//! elements. `tests/core/accuracy64.rs` holds the operators made of them to that.
//! The polynomials are least-maximum fits made for these files (Remez' exchange), their errors below 2^-55 of the result.

mod angles;
mod bessel;
mod errors;
mod gamma;
mod power;
mod stepped;

pub use angles::{acos, asin, atan, atan2, cos, hypot, sin, tan};
pub use bessel::{i0, i0e, i1, i1e, k0, k0e, k1, k1e};
pub use errors::{erfc, erfinv, erfinv_near, log_ndtr, ndtr, ndtri};
pub use gamma::{digamma, lgamma};
pub use power::pow;
use std::f64::consts::{LOG2_E, LOG10_E};
pub use stepped::{erf, short_complement};

/// Adding this to a double below 2^51 rounds it to an integer, which then sits in the low bits.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;
/// The same with 2046 added: the low bits then are the exponents, bias included, of two powers of two whose product is that of
/// the integer.
const ROUND_EXPONENT: f64 = ROUND + 2046.0;
const LN2_HI: f64 = 0.693_147_180_369_123_8;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
const LOG10_2_HI: f64 = 0.301_029_995_607_677_85;
const LOG10_2_LO: f64 = 5.630_334_806_675_098e-11;
/// What the doubles next to these logarithms of e leave out.
const LOG2_E_LO: f64 = 2.035_527_374_093_103_3e-17;
const LOG10_E_LO: f64 = 1.098_319_650_216_765e-17;
/// 2^52 and the bias of an exponent: what is added where an exponent's bits become a number's.
const BIASED: f64 = 4_503_599_627_370_496.0 + 1023.0;
/// The bits of 1.
const ONE: u64 = 1023 << 52;
/// The bits of the square root of a half.
const LOW: u64 = 0x3fe6_a09e_667f_3bcd;
/// From here on the square of a number plus one is its square, and its root the number.
const FAR: f64 = 268_435_456.0;

/// Coefficients at the end of a long polynomial that wait for each other, as what they round away stays small so.
const LAST: usize = 2;

/// A polynomial, highest coefficient first: Horner's rule, in the odd and the even powers of the long ones, of which a processor
/// then waits for but half of the steps.
#[inline(always)]
pub(super) fn poly<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    sum(x, &c)
}

#[inline(always)]
fn sum(x: f64, c: &[f64]) -> f64 {
    let n = c.len();
    let (mut y, mut i) = (c[0], 1);
    if n >= 6 + LAST {
        let (square, mut odd) = (x * x, c[1]);
        i = 2;
        while i + 1 < n - LAST {
            (y, odd) = (y.mul_add(square, c[i]), odd.mul_add(square, c[i + 1]));
            i += 2;
        }
        y = y.mul_add(x, odd);
    }
    while i < n {
        y = y.mul_add(x, c[i]);
        i += 1;
    }
    y
}

/// The same as a sum: nothing is rounded in the last step.
#[inline(always)]
fn poly_sum<const N: usize>(x: f64, c: [f64; N]) -> (f64, f64) {
    let (constant, p) = (c[N - 1], sum(x, &c[..N - 1]));
    let term = x * p;
    let sum = constant + term;
    (sum, (constant - sum) + term + x.mul_add(p, -term))
}

/// 2^n for `t = n + ROUND_EXPONENT`, n in -1023..=1023, with 0 for the first.
#[inline(always)]
fn pow2(t: f64) -> f64 {
    f64::from_bits(t.to_bits().wrapping_sub(1023) << 52)
}

/// `p * 2^n` for `t = n + ROUND_EXPONENT`, n in -2046..=2046, with one rounding. For n = -2046, where results are far below all
/// numbers, the powers are 0: a product that ends as 0 by rounding takes a processor ten times as long.
#[inline(always)]
fn scale(p: f64, t: f64) -> f64 {
    let sum = t.to_bits();
    let half = sum >> 1;
    p * f64::from_bits(half << 52) * f64::from_bits(sum.wrapping_sub(half) << 52)
}

/// `(e^r - 1 - r) / r^2` for |r| <= ln(2) / 2.
#[inline(always)]
fn exp_tail(r: f64) -> f64 {
    poly(
        r,
        [
            2.092_686_782_873_698_5e-9,
            2.511_227_136_784_054e-8,
            2.755_723_362_727_359_6e-7,
            2.755_723_414_873_653e-6,
            2.480_158_737_339_025_4e-5,
            1.984_126_989_714_422_5e-4,
            1.388_888_888_885_864_9e-3,
            8.333_333_333_316_706e-3,
            4.166_666_666_666_673e-2,
            0.166_666_666_666_666_85,
            0.5,
        ],
    )
}

/// The parts of x = n ln(2) + r, what was rounded away of r last; n as `n + ROUND_EXPONENT`.
#[inline(always)]
fn exp_reduce(x: f64) -> (f64, f64, f64) {
    let t = x.mul_add(LOG2_E, ROUND_EXPONENT);
    let n = t - ROUND_EXPONENT;
    let exact = n.mul_add(-LN2_HI, x);
    let r = n.mul_add(-LN2_LO, exact);
    (t, r, n.mul_add(-LN2_LO, exact - r))
}

/// `(e^r, n + ROUND_EXPONENT)` for x = n ln(2) + r.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, f64) {
    let (t, r, _) = exp_reduce(x);
    (exp_tail(r).mul_add(r, 1.0).mul_add(r, 1.0), t)
}

/// The least exponent whose power [`scale`] makes 0.
const LEAST: f64 = -1418.0;

/// Clamps, keeping NaN.
#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// e^x.
#[inline(always)]
#[must_use]
pub fn exp(x: f64) -> f64 {
    let (p, t) = exp_parts(clamp(x, LEAST, 710.0));
    scale(p, t)
}

/// e^x / 2 for x >= 0, which overflows later.
#[inline(always)]
fn half_exp(x: f64) -> f64 {
    let (p, t) = exp_parts(if x > 711.0 { 711.0 } else { x });
    scale(p, t - 1.0)
}

/// e^(x + low), where `low` is far smaller: nearly always the nearest number.
#[inline(always)]
fn exp_of_sum(x: f64, low: f64) -> f64 {
    let bounded = clamp(x, LEAST, 710.0);
    let (t, r, rest) = exp_reduce(bounded);
    let low = if bounded == x { rest + low } else { rest };
    let sum = r + low;
    let (r, low) = (sum, (r - sum) + low);
    let y = 1.0 + r;
    scale(y + ((1.0 - y) + r + (r * r).mul_add(exp_tail(r), low)), t)
}

/// 2^x.
#[inline(always)]
#[must_use]
pub fn exp2(x: f64) -> f64 {
    let x = clamp(x, -2046.0, 1024.0);
    let t = x + ROUND_EXPONENT;
    let r = x - (t - ROUND_EXPONENT);
    let p = poly(
        r,
        [
            2.573_781_350_209_713_3e-11,
            4.455_818_153_490_314_4e-10,
            7.054_891_467_811_115_4e-9,
            1.017_805_708_620_174_4e-7,
            1.321_548_682_329_621_6e-6,
            1.525_273_384_156_012_4e-5,
            1.540_353_039_335_477_5e-4,
            1.333_355_814_640_646_9e-3,
            9.618_129_107_628_487e-3,
            0.055_504_108_664_821_625,
            0.240_226_506_959_100_72,
            0.693_147_180_559_945_3,
        ],
    );
    scale(r.mul_add(p, 1.0), t)
}

/// e^x - 1, accurate near 0.
#[inline(always)]
#[must_use]
pub fn expm1(x: f64) -> f64 {
    let (t, r, low) = exp_reduce(clamp(x, -40.0, 710.0));
    let p = (r * r).mul_add(exp_tail(r), low);
    // Half the scale, so that 2^1024 is never formed.
    let s = pow2(t - 1.0);
    let whole = s - 0.5;
    let sum = s.mul_add(r, whole);
    let y = (sum + s.mul_add(p, s.mul_add(r, whole - sum))) * 2.0;
    (if t == ROUND_EXPONENT { r + p } else { y }).copysign(x)
}

/// `(e, f)` with x = 2^e (1 + f) and 1 + f next to 1, for positive normal x.
#[inline(always)]
pub(super) fn parts(x: f64) -> (f64, f64) {
    let biased = x.to_bits().wrapping_sub(LOW).wrapping_add(ONE) >> 52;
    let e = f64::from_bits(biased | 0x4330 << 48) - BIASED;
    let m = f64::from_bits(x.to_bits().wrapping_sub(biased << 52).wrapping_add(ONE));
    (e, m - 1.0)
}

/// The same for subnormal numbers too.
#[inline(always)]
fn parts_of_any(x: f64) -> (f64, f64) {
    let tiny = x < f64::MIN_POSITIVE;
    let (e, f) = parts(if tiny {
        x * 18_014_398_509_481_984.0
    } else {
        x
    });
    (if tiny { e - 54.0 } else { e }, f)
}

/// `atanh(s) / s - 1` for s^2 = z up to the square of 0.172.
#[inline(always)]
fn atanh_tail(z: f64) -> f64 {
    z * poly(
        z,
        [
            0.066_286_778_527_055_6,
            0.066_247_312_503_170_9,
            0.076_935_597_412_571_55,
            0.090_908_875_087_055_6,
            0.111_111_113_273_885_48,
            0.142_857_142_845_168_57,
            0.200_000_000_000_032_04,
            0.333_333_333_333_333_3,
        ],
    )
}

/// `log(1 + f) - f`, and what is to be added to it.
#[inline(always)]
fn log_tail(f: f64, c: f64) -> f64 {
    let s = f / (2.0 + f);
    let half = 0.5 * f * f;
    let tail = 2.0 * atanh_tail(s * s);
    s.mul_add(half + tail, c) - half
}

/// log(2^e (1 + f)) + c, where c is small.
#[inline(always)]
fn log_of_parts(e: f64, f: f64, c: f64) -> f64 {
    e.mul_add(LN2_HI, f + log_tail(f, e.mul_add(LN2_LO, c)))
}

/// log(x) for positive finite x, as a sum.
#[inline(always)]
fn log_sum(x: f64) -> (f64, f64) {
    let (e, f) = parts_of_any(x);
    let tail = log_tail(f, e * LN2_LO);
    let part = f + tail;
    let y = e.mul_add(LN2_HI, part);
    (y, (e.mul_add(LN2_HI, -y) + part) + ((f - part) + tail))
}

/// Puts in the values of a logarithm at 0, infinity, and outside its domain.
#[inline(always)]
fn log_edges(x: f64, y: f64) -> f64 {
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

/// The natural logarithm.
#[inline(always)]
#[must_use]
pub fn log(x: f64) -> f64 {
    let (e, f) = parts_of_any(x);
    log_edges(x, log_of_parts(e, f, 0.0))
}

/// The logarithm to a base, from those of 2 and e to that base, each as a sum; multiples of the first number are exact.
#[inline(always)]
fn log_by(x: f64, two: (f64, f64), base: (f64, f64)) -> f64 {
    let (e, f) = parts_of_any(x);
    let p = f * base.0;
    let low = f.mul_add(base.1, f.mul_add(base.0, -p));
    let low = log_tail(f, 0.0).mul_add(base.0, e.mul_add(two.1, low));
    let sum = e.mul_add(two.0, p);
    log_edges(x, sum + (e.mul_add(two.0, -sum) + p + low))
}

/// The logarithm to base 2.
#[inline(always)]
#[must_use]
pub fn log2(x: f64) -> f64 {
    log_by(x, (1.0, 0.0), (LOG2_E, LOG2_E_LO))
}

/// The logarithm to base 10.
#[inline(always)]
#[must_use]
pub fn log10(x: f64) -> f64 {
    log_by(x, (LOG10_2_HI, LOG10_2_LO), (LOG10_E, LOG10_E_LO))
}

/// `(w, c)` so that log(1 + u + low) = log(w) + c, for u > -1.
#[inline(always)]
fn one_more(u: f64, low: f64) -> (f64, f64) {
    let w = 1.0 + u;
    // What the addition rounded away, brought back to first order.
    let lost = if u > 1.0 {
        1.0 - (w - u)
    } else {
        u - (w - 1.0)
    };
    (w, (lost + low) / w)
}

/// log(1 + x), accurate near 0.
#[inline(always)]
#[must_use]
pub fn log1p(x: f64) -> f64 {
    let (w, c) = one_more(x, 0.0);
    let (e, f) = parts(w);
    let y = log_edges(w, log_of_parts(e, f, c));
    if x == 0.0 { x } else { y }
}

/// The hyperbolic sine.
#[inline(always)]
#[must_use]
pub fn sinh(x: f64) -> f64 {
    let a = x.abs();
    let (half, z) = (half_exp(a), x * x);
    let p = poly(
        z,
        [
            7.759_296_838_044_373e-13,
            1.605_724_095_830_800_4e-10,
            2.505_212_338_900_486_2e-8,
            2.755_731_915_540_830_5e-6,
            1.984_126_984_143_741_8e-4,
            8.333_333_333_333_139e-3,
            0.166_666_666_666_666_69,
        ],
    );
    let small = (x * z).mul_add(p, x);
    let large = (half - 0.25 / half).copysign(x);
    if a < 1.0 { small } else { large }
}

/// The hyperbolic cosine.
#[inline(always)]
#[must_use]
pub fn cosh(x: f64) -> f64 {
    let half = half_exp(x.abs());
    half + 0.25 / half
}

/// The hyperbolic tangent.
#[inline(always)]
#[must_use]
pub fn tanh(x: f64) -> f64 {
    let (a, z) = (x.abs(), x * x);
    let p = poly(
        z,
        [
            5.109_637_667_075_251e-5,
            -2.104_157_942_496_102_6e-4,
            5.792_098_734_646_122e-4,
            -1.453_242_615_647_071_3e-3,
            3.591_725_224_424_738e-3,
            -8.863_195_231_144_065e-3,
            2.186_948_603_248_809_3e-2,
            -0.053_968_253_878_663_8,
            0.133_333_333_331_743_74,
            -0.333_333_333_333_323_54,
        ],
    );
    // Here it is 1.
    let (e, t) = exp_parts(2.0 * if a > 20.0 { 20.0 } else { a });
    let large = 1.0 - 2.0 / e.mul_add(pow2(t), 1.0);
    (if a < 0.55 {
        (a * z).mul_add(p, a)
    } else {
        large
    })
    .copysign(x)
}

/// log(w) + c, or log(2 a) where a is beyond [`FAR`].
#[inline(always)]
fn log_or_far(a: f64, (w, c): (f64, f64)) -> f64 {
    let far = a > FAR;
    let (e, f) = parts(if far { a } else { w });
    let y = log_of_parts(if far { e + 1.0 } else { e }, f, if far { 0.0 } else { c });
    if a < f64::INFINITY { y } else { a }
}

/// The inverse hyperbolic sine.
#[inline(always)]
#[must_use]
pub fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let square = a * a;
    let v = square / (1.0 + (1.0 + square).sqrt());
    let u = a + v;
    let y = log_or_far(a, one_more(u, v - (u - a)));
    (if a == 0.0 { a } else { y }).copysign(x)
}

/// The inverse hyperbolic cosine.
#[inline(always)]
#[must_use]
pub fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    let square = t.mul_add(t, 2.0 * t);
    let lost = t.mul_add(t, 2.0 * t - square);
    let r = square.sqrt();
    let low = ((-r).mul_add(r, square) + lost) * 0.5 / r;
    let u = t + r;
    let y = log_or_far(x, one_more(u, t - (u - r) + low));
    let y = if t == 0.0 { t } else { y };
    if t < 0.0 { f64::NAN } else { y }
}

/// The inverse hyperbolic tangent: of half the logarithm of (1 + a) / (1 - a), which is 2^e times what is next to 1.
#[inline(always)]
#[must_use]
pub fn atanh(x: f64) -> f64 {
    let a = x.abs();
    let (p, q) = (1.0 + a, 1.0 - a);
    let (p_low, q_low) = (a - (p - 1.0), (1.0 - q) - a);
    let (e, f) = parts(q);
    // The halving that brings the quotient down to the root of 2.
    let more = p > std::f64::consts::SQRT_2 * (1.0 + f);
    let e = if more { e - 1.0 } else { e };
    let d = if more { 2.0 + 2.0 * f } else { 1.0 + f };
    let q_low = q_low * pow2(ROUND_EXPONENT - e);
    let (n, sum) = (p - d, p + d);
    let (n_low, sum_low) = (p_low - q_low, (p - (sum - d)) + (p_low + q_low));
    let inverse = 1.0 / sum;
    let s = n * inverse;
    let low = inverse * (-s).mul_add(sum_low, (-s).mul_add(sum, n) + n_low);
    let (s, low) = if e == 0.0 { (a, 0.0) } else { (s, low) };
    let low = s.mul_add(atanh_tail(s * s), low - e * (0.5 * LN2_LO));
    let base = e * (-0.5 * LN2_HI);
    let sum = base + s;
    let y = sum + ((base - sum) + s + low);
    let y = if a == 1.0 { f64::INFINITY } else { y };
    (if a > 1.0 { f64::NAN } else { y }).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exp_is_accurate_everywhere() {
        for k in -75_000..72_000 {
            let x = f64::from(k) * 0.009_87;
            let (want, got) = (x.exp(), exp(x));
            if want.is_infinite() || want == 0.0 {
                assert_eq!(want, got, "{x}");
            } else {
                assert!(
                    (want - got).abs() <= want * 3e-16 + 5e-324,
                    "{x}: {want:e} {got:e}"
                );
            }
        }
        assert!(exp(f64::NAN).is_nan());
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }
}
