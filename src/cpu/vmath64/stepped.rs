//! The error function and its complement from tables: their values at steps, and from there their series.

use super::poly;

/// Steps to 1.
const STEPS: f64 = 128.0;
/// Entries, of which only those up to 6 are reached, where the function is 1.
const LEN: usize = 1024;
/// Adding this rounds to a step, whose number then sits in the low bits.
const ROUND: f64 = super::ROUND / STEPS;

/// A number as a sum.
#[derive(Clone, Copy)]
struct Sum(f64, f64);

const fn two_sum(a: f64, b: f64) -> Sum {
    let s = a + b;
    let back = s - a;
    Sum(s, (a - (s - back)) + (b - back))
}

/// The upper half of a number's digits.
const fn upper(a: f64) -> f64 {
    f64::from_bits(a.to_bits() & !0x7ff_ffff)
}

impl Sum {
    const fn plus(self, o: Self) -> Self {
        let s = two_sum(self.0, o.0);
        two_sum(s.0, s.1 + (self.1 + o.1))
    }

    const fn times(self, o: Self) -> Self {
        let (a, b) = (upper(self.0), upper(o.0));
        let (c, d) = (self.0 - a, o.0 - b);
        let product = self.0 * o.0;
        let low = ((a * b - product) + a * d + c * b) + c * d;
        two_sum(product, low + (self.0 * o.1 + self.1 * o.0))
    }

    const fn by(self, n: f64) -> Self {
        let q = self.0 / n;
        let back = Sum(q, 0.0).times(Sum(n, 0.0));
        two_sum(q, ((self.0 - back.0) - back.1 + self.1) / n)
    }
}

/// e^-x for small x > 0.
const fn exp_minus(x: f64) -> Sum {
    let (mut sum, mut term, mut n) = (Sum(1.0, 0.0), Sum(1.0, 0.0), 1.0);
    while n < 20.0 {
        term = term.times(Sum(-x, 0.0)).by(n);
        sum = sum.plus(term);
        n += 1.0;
    }
    sum
}

/// The derivative at 0.
const SLOPE: Sum = Sum(std::f64::consts::FRAC_2_SQRT_PI, 1.533_545_961_316_588e-17);

/// The integral of the derivative from a step to the next one, in parts of its value at that step; to the one below for a negative
/// number. Its series, whose terms are whole numbers of [`ONE`].
const fn stretch(step: i128, steps: i128) -> Sum {
    const ONE: i128 = 1 << 100;
    let (mut before, mut term, mut sum, mut n) = (0, ONE, ONE, 0);
    while n < 24 {
        let next = (-step * (n + 1) * term - n * before) / ((n + 1) * (n + 2));
        (before, term) = (term, next / (steps * steps / 2));
        (sum, n) = (sum + term, n + 1);
    }
    let upper = sum as f64;
    let unit = 1.0 / (ONE as f64 * steps as f64);
    Sum(upper * unit, (sum - upper as i128) as f64 * unit)
}

/// The derivative at so many steps, times a power of 2.
const fn slopes<const N: usize>(h: f64, times: f64) -> [Sum; N] {
    let mut slopes = [Sum(SLOPE.0 * times, SLOPE.1 * times); N];
    // What it changes by from a step to the next, and by what that changes.
    let (mut change, more) = (exp_minus(h * h), exp_minus(2.0 * h * h));
    let mut k = 1;
    while k < N {
        slopes[k] = slopes[k - 1].times(change);
        change = change.times(more);
        k += 1;
    }
    slopes
}

/// The function and its derivative at each step.
static TABLE: [[f64; 2]; LEN] = table();

const fn table() -> [[f64; 2]; LEN] {
    let slopes = slopes::<769>(1.0 / STEPS, 1.0);
    let mut table = [[1.0, 0.0]; LEN];
    let (mut value, mut k) = (Sum(0.0, 0.0), 0);
    while k < slopes.len() {
        table[k] = [value.0, slopes[k].0];
        value = value.plus(slopes[k].times(stretch(k as i128, STEPS as i128)));
        k += 1;
    }
    table
}

/// Steps of the complement to 1.
const WIDE: f64 = 64.0;
/// Its entries, of which those up to 28 are reached; so large that the steps are told by a number's low bits.
const COMPLEMENTS: usize = 2048;
/// The last one that is not 0: the next are below all numbers.
const LAST: usize = 1744;
/// The entries are so often what they are for, as the last are close to the smallest numbers.
const OFTEN: f64 = f64::from_bits((1023 + 256) << 52);
const SELDOM: f64 = f64::from_bits((1023 - 256) << 52);

/// The complement and its derivative, without the sign, at each step.
static COMPLEMENT: [[f64; 2]; COMPLEMENTS] = complements();

const fn complements() -> [[f64; 2]; COMPLEMENTS] {
    // From so far beyond the last that what is left out behind does not count.
    let slopes = slopes::<{ LAST + 61 }>(1.0 / WIDE, OFTEN);
    let mut table = [[0.0; 2]; COMPLEMENTS];
    let (mut value, mut k) = (Sum(0.0, 0.0), slopes.len() - 1);
    while k > 0 {
        value = value.plus(slopes[k].times(stretch(-(k as i128), WIDE as i128)));
        k -= 1;
        if k <= LAST {
            table[k] = [value.0, slopes[k].0];
        }
    }
    table
}

/// The step above a - low, and the entry there: what is rounded away of one below would count twice. As `(value, slope, z, d)`: the
/// complement is the value and d times the slope, times the integral of exp(z s - d^2 s^2) for s up to 1.
#[inline(always)]
fn complement_parts(a: f64, low: f64) -> (f64, f64, f64, f64) {
    // From here on it is 0.
    let a = if a > 28.0 { 28.0 } else { a };
    let t = (a + 0.5 / WIDE) + super::ROUND / WIDE;
    let r = t - super::ROUND / WIDE;
    let [value, slope] = COMPLEMENT[t.to_bits() as usize % COMPLEMENTS];
    let d = (r - a) - low;
    (value, slope, 2.0 * r * d, d)
}

/// One minus the error function of a + low, for a >= 0.
#[inline(always)]
pub(super) fn complement(a: f64, low: f64) -> f64 {
    let (value, slope, z, d) = complement_parts(a, low);
    let w = d * d;
    let p = poly(
        z,
        [
            -4.170_533_417_877_83e-3,
            -8.445_265_708_254_445e-3,
            -2.097_953_635_348_703e-2,
            -2.380_550_696_930_095e-2,
        ],
    );
    let p = p.mul_add(
        w,
        poly(
            z,
            [
                9.481_210_547_989_457e-5,
                3.758_631_903_237_387_5e-4,
                2.339_957_689_015_621_6e-3,
                1.040_882_789_652_152_4e-2,
                3.571_544_053_734_536_4e-2,
                8.333_326_985_626_052e-2,
                0.100_000_000_567_322_35,
            ],
        ),
    );
    let p = p.mul_add(
        w,
        poly(
            z,
            [
                -3.453_643_611_842_031e-7,
                -2.024_361_826_458_382e-6,
                -2.008_636_169_778_952_4e-5,
                -1.541_655_514_963_039_7e-4,
                -1.041_727_249_931_697_2e-3,
                -5.952_366_636_799_162e-3,
                -2.777_777_971_536_970_3e-2,
                -9.999_999_986_709_19e-2,
                -0.250_000_000_003_530_5,
                -0.333_333_333_333_317_9,
            ],
        ),
    );
    let p = p.mul_add(
        w,
        z * poly(
            z,
            [
                3.034_477_184_668_619_3e-9,
                2.295_671_900_119_424_5e-8,
                2.781_107_897_012_947_3e-7,
                2.753_847_902_937_864e-6,
                2.480_248_006_144_309_6e-5,
                1.984_124_277_637_061e-4,
                1.388_888_939_912_572e-3,
                8.333_333_327_731_83e-3,
                4.166_666_666_698_161e-2,
                0.166_666_666_666_659_77,
                0.5,
            ],
        ),
    );
    let term = slope * d;
    let lost = slope.mul_add(d, -term);
    (value + (term + term.mul_add(p, lost))) * SELDOM
}

/// One minus the error function of a >= 0, to the digits of single precision and a few more, and 0 where that has no numbers.
#[inline(always)]
pub fn short_complement(a: f64) -> f64 {
    let (value, slope, z, d) = complement_parts(if a > 10.3 { 10.3 } else { a }, 0.0);
    let w = d * d;
    let p = poly(z, [9.589_995_564_257_81e-2, 9.948_601_146_357_48e-2]);
    let p = p.mul_add(
        w,
        poly(
            z,
            [
                -3.194_566_593_216_979e-2,
                -9.913_711_456_801_994e-2,
                -0.250_056_346_736_820_9,
                -0.333_332_762_821_510_64,
            ],
        ),
    );
    let p = p.mul_add(
        w,
        z * poly(
            z,
            [
                2.241_820_505_722_534_3e-4,
                1.379_306_927_169_318_6e-3,
                8.334_956_654_122_145e-3,
                4.166_654_295_665_281e-2,
                0.166_666_670_105_084_99,
                0.499_999_999_984_546_36,
            ],
        ),
    );
    let term = slope * d;
    (value + term.mul_add(p, term)) * SELDOM
}

/// The error function.
#[inline(always)]
#[must_use]
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    // From here on it is 1.
    let a = if a > 6.0 { 6.0 } else { a };
    // The step below, as what is rounded away of a larger value would count twice.
    let t = (a - 0.5 / STEPS) + ROUND;
    let r = t - ROUND;
    let [value, slope] = TABLE[t.to_bits() as usize % LEN];
    let (d, z) = (a - r, r * r);
    // The series of what is left, divided by the derivative.
    let p = poly(z, [4.0 / 315.0, -2.0 / 21.0, 1.0 / 7.0, -1.0 / 42.0]);
    let p = p.mul_add(d, -r * poly(z, [2.0 / 45.0, -2.0 / 9.0, 1.0 / 6.0]));
    let p = p.mul_add(d, poly(z, [2.0 / 15.0, -0.4, 0.1]));
    let p = p.mul_add(d, r * poly(z, [-1.0 / 3.0, 0.5]));
    let p = p.mul_add(d, poly(z, [2.0 / 3.0, -1.0 / 3.0]));
    let p = p.mul_add(d, -r);
    slope.mul_add((d * d).mul_add(p, d), value).copysign(x)
}
