//! Angles, and the length of a vector.

use super::{ROUND, poly};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4};

/// Largest magnitude for which [`sin`], [`cos`] and [`tan`] have a value: so many quarter turns that their product with
/// [`FRAC_PI_2_MID`] is exact.
const REACH: f64 = 4e5;
/// What the double next to pi / 2 leaves out, and what that leaves out.
const FRAC_PI_2_LO: f64 = 6.123_233_995_736_766e-17;
const FRAC_PI_2_LOWEST: f64 = -1.497_384_904_859_169_8e-33;
/// The first 34 bits of [`FRAC_PI_2_LO`], and what they leave out.
const FRAC_PI_2_MID: f64 = 6.123_233_995_384_61e-17;
const FRAC_PI_2_REST: f64 = FRAC_PI_2_LO - FRAC_PI_2_MID + FRAC_PI_2_LOWEST;

/// A number and what was rounded away of it.
type Sum = (f64, f64);

/// Sine and cosine of r, and the quadrant, for x = quadrant * pi / 2 + r; both as what their second part is taken from.
#[inline(always)]
fn trig(x: f64) -> (Sum, Sum, u64) {
    let x = if x.abs() <= REACH { x } else { f64::NAN };
    let t = x.mul_add(FRAC_2_PI, ROUND);
    let n = t - ROUND;
    // Exact: both are multiples of 2^-53, and the difference is small.
    let a = n.mul_add(-FRAC_PI_2, x);
    let r = n.mul_add(-FRAC_PI_2_MID, a);
    // Exact: r is near a, or all three are multiples of 2^-87 and small.
    let low = n.mul_add(FRAC_PI_2_REST, n.mul_add(FRAC_PI_2_MID, r - a));
    let z = r * r;
    let s = poly(
        z,
        [
            -1.589_652_147_517_338_2e-10,
            2.505_075_363_377_633_7e-8,
            -2.755_731_366_504_804e-6,
            1.984_126_982_973_585_7e-4,
            -8.333_333_333_322_332e-3,
            0.166_666_666_666_666_32,
        ],
    );
    let c = poly(
        z,
        [
            1.135_944_973_624_771_4e-11,
            -2.087_571_959_703_571_7e-9,
            2.755_731_432_649_263_3e-7,
            -2.480_158_728_939_739e-5,
            1.388_888_888_887_399_7e-3,
            -4.166_666_666_666_66e-2,
        ],
    );
    let one = (-0.5f64).mul_add(z, 1.0);
    let sin = (r * z).mul_add(s, low * one);
    let cos = (z * z).mul_add(c, (-r).mul_add(low, 0.5f64.mul_add(z, one - 1.0)));
    ((r, sin), (one, cos), t.to_bits())
}

/// The difference of two numbers, rounded once, and what is rounded away.
#[inline(always)]
fn less((a, b): Sum) -> Sum {
    let y = a - b;
    (y, (a - y) - b)
}

/// One of two sums.
#[inline(always)]
fn choose(first: bool, a: Sum, b: Sum) -> Sum {
    (if first { a.0 } else { b.0 }, if first { a.1 } else { b.1 })
}

/// With the sign changed where the second bit of a quadrant says so.
#[inline(always)]
fn signed(y: f64, quadrant: u64) -> f64 {
    f64::from_bits(y.to_bits() ^ ((quadrant & 2) << 62))
}

/// The sine, for |x| up to [`REACH`].
#[inline(always)]
#[must_use]
pub fn sin(x: f64) -> f64 {
    let (s, c, q) = trig(x);
    signed(less(choose(q & 1 == 0, s, c)).0, q)
}

/// The cosine, for |x| up to [`REACH`].
#[inline(always)]
#[must_use]
pub fn cos(x: f64) -> f64 {
    let (s, c, q) = trig(x);
    signed(less(choose(q & 1 == 0, c, s)).0, q.wrapping_add(1))
}

/// The tangent, for |x| up to [`REACH`].
#[inline(always)]
#[must_use]
pub fn tan(x: f64) -> f64 {
    let (s, c, q) = trig(x);
    let odd = q & 1 == 1;
    let (n, n_low) = less(choose(odd, c, s));
    let (d, d_low) = less(choose(odd, s, c));
    let inverse = inverse(d);
    let y = n * inverse;
    let over = y.mul_add(d, -n) + y.mul_add(d_low, -n_low);
    let y = (-inverse).mul_add(over, y);
    f64::from_bits(y.to_bits() ^ (q << 63))
}

/// `1 / d` to nearly all digits, for what single precision has numbers of: its division takes a third of the time.
#[inline(always)]
fn inverse(d: f64) -> f64 {
    let y = f64::from(1.0 / d as f32);
    y.mul_add((-y).mul_add(d, 1.0), y)
}

/// The root of z as a sum, for numbers as above, from that of single precision. Of 0 it is 0.
#[inline(always)]
fn root(z: f64) -> Sum {
    let short = z as f32;
    let half = f64::from(0.5 / (if short > 1e-30 { short } else { 1e-30 }).sqrt());
    let s = z * (half + half);
    let s = half.mul_add((-s).mul_add(s, z), s);
    (s, half * (-s).mul_add(s, z))
}

/// `(outer, s, rest)`: whether a is above a half, and the arcsine of a, or then half the angle from pi / 2 to it, as a sum.
#[inline(always)]
fn arc(a: f64) -> (bool, f64, f64) {
    let outer = a > 0.5;
    let z = if outer { (1.0 - a) * 0.5 } else { a * a };
    let (root, lost) = root(z);
    let lost = if outer { lost } else { 0.0 };
    let s = if outer { root } else { a };
    let p = poly(
        z,
        [
            3.269_445_788_836_375_4e-2,
            -2.110_372_802_021_096_7e-2,
            2.178_100_052_529_024_7e-2,
            3.676_334_867_279_438_7e-3,
            1.078_817_634_718_107_7e-2,
            1.139_750_482_609_793_6e-2,
            1.398_099_184_604_365_9e-2,
            1.735_159_778_202_850_4e-2,
            2.237_221_577_653_359_2e-2,
            3.038_194_267_992_479e-2,
            4.464_285_717_518_87e-2,
            0.074_999_999_999_702_01,
            0.166_666_666_666_667_63,
        ],
    );
    (outer, s, ((s + lost) * z).mul_add(p, lost))
}

/// The arcsine.
#[inline(always)]
#[must_use]
pub fn asin(x: f64) -> f64 {
    let a = x.abs();
    let (outer, s, rest) = arc(a);
    let far = FRAC_PI_2 - 2.0 * s;
    let far = far + ((FRAC_PI_2 - far) - 2.0 * s + 2.0f64.mul_add(-rest, FRAC_PI_2_LO));
    let y = if outer { far } else { s + rest };
    (if a > 1.0 { f64::NAN } else { y }).copysign(x)
}

/// The arccosine.
#[inline(always)]
#[must_use]
pub fn acos(x: f64) -> f64 {
    let (outer, s, rest) = arc(x.abs());
    // From a quarter turn back by x; from none or half a turn by twice the half angle.
    let turn = if outer {
        if x < 0.0 { 2.0 } else { 0.0 }
    } else {
        1.0
    };
    let by = if outer { -2.0 } else { 1.0 };
    let by = if x < 0.0 { -by } else { by };
    let (s, rest) = (s * by, rest * by);
    let base = turn * FRAC_PI_2;
    let sum = base - s;
    let y = sum + ((base - sum) - s + (turn * FRAC_PI_2_LO - rest));
    if x.abs() > 1.0 { f64::NAN } else { y }
}

/// The angle of (d, n) for 0 <= n <= d, as seen from the ray at `turn` eighths of a turn, in the direction `way`.
#[inline(always)]
fn angle(n: f64, d: f64, turn: f64, way: f64) -> f64 {
    let upper = n > 0.414_213_562_373_095_03 * d;
    let (u, v) = if upper { (n - d, n + d) } else { (n, d) };
    let u_low = if upper { n - (u + d) } else { 0.0 };
    let v_low = if upper { n - (v - d) } else { 0.0 };
    let inverse = 1.0 / v;
    let t = u * inverse;
    let low = ((-t).mul_add(v, u) + (-t).mul_add(v_low, u_low)) * inverse;
    let z = t * t;
    let p = poly(
        z,
        [
            -1.792_209_761_291_795e-2,
            3.807_852_191_260_613_4e-2,
            -0.050_398_688_040_038_435,
            0.058_480_176_754_038_74,
            -0.066_631_220_963_589_5,
            0.076_920_618_325_629_49,
            -0.090_908_978_498_452,
            0.111_111_107_866_781_7,
            -0.142_857_142_802_604_86,
            0.199_999_999_999_542_07,
            -0.333_333_333_333_332,
        ],
    );
    let (t, rest) = (t * way, (t * z).mul_add(p, low) * way);
    let turn = if upper { turn + way } else { turn };
    let base = turn * FRAC_PI_4;
    let base_low = turn.mul_add(FRAC_PI_4, -base) + turn * (0.5 * FRAC_PI_2_LO);
    let sum = base + t;
    sum + (((base - sum) + t) + (rest + base_low))
}

/// The arctangent.
#[inline(always)]
#[must_use]
pub fn atan(x: f64) -> f64 {
    let a = x.abs();
    let steep = a > 1.0;
    // Beyond the upper end the angle is a quarter turn. Minima and maxima, as of choices the compiler makes branches here.
    let a = a.min(1e30);
    let (turn, way) = if steep { (2.0, -1.0) } else { (0.0, 1.0) };
    let y = angle(a.min(1.0), a.max(1.0), turn, way);
    if x != x { x } else { y.copysign(x) }
}

/// The angle of the point (x, y).
#[inline(always)]
#[must_use]
pub fn atan2(y: f64, x: f64) -> f64 {
    let (a, b) = (y.abs(), x.abs());
    let steep = a > b;
    let (n, d) = (if steep { b } else { a }, if steep { a } else { b });
    // Sums and remainders stay in range, whatever the two are.
    let by = if d > 1e300 { 0.25 } else { 1.0 };
    let by = if d < 1e-270 {
        1_267_650_600_228_229_401_496_703_205_376.0
    } else {
        by
    };
    let endless = d == f64::INFINITY;
    let ray = if n == f64::INFINITY { 1.0 } else { 0.0 };
    let n = if endless { ray } else { n * by };
    let d = if endless | (d == 0.0) { 1.0 } else { d * by };
    let (turn, way) = if steep { (2.0, -1.0) } else { (0.0, 1.0) };
    let back = x.is_sign_negative();
    let turn = if back { 4.0 - turn } else { turn };
    let way = if back { -way } else { way };
    let r = angle(n, d, turn, way).copysign(y);
    // A NaN on either side, which the choices above may have dropped.
    if (y != y) | (x != x) { f64::NAN } else { r }
}

/// The length of the vector (x, y).
#[inline(always)]
#[must_use]
pub fn hypot(x: f64, y: f64) -> f64 {
    const DOWN: f64 = f64::from_bits((1023 - 800) << 52);
    const UP: f64 = f64::from_bits((1023 + 800) << 52);
    let (a, b) = (x.abs(), y.abs());
    let (a, b) = (if a < b { b } else { a }, if a < b { a } else { b });
    // Powers of 2 that keep the squares in range.
    let (by, back) = if a > 1e140 { (DOWN, UP) } else { (1.0, 1.0) };
    let (by, back) = if a < 1e-140 { (UP, DOWN) } else { (by, back) };
    let (s, t) = (a * by, b * by);
    let square = t * t;
    let sum = s.mul_add(s, square);
    let r = sum.sqrt() * back;
    let endless = (x.abs() == f64::INFINITY) | (y.abs() == f64::INFINITY);
    if endless { f64::INFINITY } else { r }
}
