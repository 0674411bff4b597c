//! Angles in single precision.

use super::{nearest, poly};
use std::f32::consts::FRAC_PI_2;

/// Largest magnitude for which [`sin`], [`cos`] and [`tan`] have a value.
const TRIG_LIMIT: f32 = 30_000.0;
/// The part of pi / 2 that the float next to it leaves out.
const FRAC_PI_2_LO: f32 = -4.371_139e-8;

/// `(r, quadrant)` for x = quadrant * pi / 2 + r.
#[inline(always)]
fn reduce(x: f32) -> (f32, i32) {
    let x = if x.abs() <= TRIG_LIMIT { x } else { f32::NAN };
    let (n, q) = nearest(x * std::f32::consts::FRAC_2_PI);
    let r = n.mul_add(-1.570_796_25, x);
    let r = n.mul_add(-7.549_789_4e-8, r);
    (n.mul_add(-5.390_302_5e-15, r), q)
}

/// `(sin r, cos r, quadrant)` for x = quadrant * pi / 2 + r.
#[inline(always)]
fn trig(x: f32) -> (f32, f32, i32) {
    let (r, q) = reduce(x);
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

/// The tangent, for |x| up to 30,000.
#[inline(always)]
#[must_use]
pub fn tan(x: f32) -> f32 {
    let (r, q) = reduce(x);
    let z = r * r;
    let p = poly(
        z,
        [
            4.386_679_3e-3,
            6.897_192e-5,
            1.085_162_3e-2,
            2.127_624_3e-2,
            5.406_104e-2,
            1.333_265_3e-1,
            3.333_335e-1,
        ],
    );
    let y = (r * z).mul_add(p, r);
    let odd = q & 1 == 1;
    (if odd { -1.0 } else { y }) / if odd { y } else { 1.0 }
}

/// `(s, rest, outer)`: the arcsine of |x| is `s + rest`, or where |x| is above a half that of the sine of half the angle from
/// pi / 2.
#[inline(always)]
fn arc(x: f32) -> (f32, f32, bool) {
    let a = x.abs();
    let outer = a > 0.5;
    let z = if outer { (1.0 - a) * 0.5 } else { a * a };
    let s = if outer { z.sqrt() } else { a };
    let p = poly(
        z,
        [
            4.216_410_2e-2,
            2.418_089_1e-2,
            4.547_007_8e-2,
            7.495_300_5e-2,
            1.666_675_2e-1,
        ],
    );
    (s, s * z * p, outer)
}

/// The arcsine.
#[inline(always)]
#[must_use]
pub fn asin(x: f32) -> f32 {
    let (s, rest, outer) = arc(x);
    let (first, low, by) = if outer {
        (FRAC_PI_2 - 2.0 * s, FRAC_PI_2_LO, -2.0)
    } else {
        (s, 0.0, 1.0)
    };
    (rest.mul_add(by, low) + first).copysign(x)
}

/// The arccosine.
#[inline(always)]
#[must_use]
pub fn acos(x: f32) -> f32 {
    let (s, rest, outer) = arc(x);
    let y = (s + rest).copysign(x);
    // Of -x it is what is left of half a turn.
    let turns = if outer & (x > 0.0) { 0.0 } else { 1.0 };
    let (turns, by) = if outer {
        (2.0 * turns, 2.0)
    } else {
        (turns, -1.0)
    };
    y.mul_add(by, turns * FRAC_PI_2_LO) + turns * FRAC_PI_2
}

/// The arctangent. One coefficient is moved by a digit, for that of 1 to be the float next to pi / 4.
#[inline(always)]
#[must_use]
pub fn atan(x: f32) -> f32 {
    let a = x.abs();
    let steep = a > 1.0;
    let t = (if steep { 1.0 } else { a }) / if steep { a } else { 1.0 };
    let z = t * t;
    let p = poly(
        z,
        [
            -1.793_382_9e-3,
            1.091_366_3e-2,
            -3.117_638_6e-2,
            5.795_65e-2,
            -8.403_413e-2,
            1.095_218_36e-1,
            -1.426_424_4e-1,
            1.999_854_9e-1,
            -3.333_33e-1,
        ],
    );
    let y = (t * z).mul_add(p, t);
    let y = if steep {
        FRAC_PI_2 - (y - FRAC_PI_2_LO)
    } else {
        y
    };
    y.copysign(x)
}
