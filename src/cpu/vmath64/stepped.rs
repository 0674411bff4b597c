//! The error function from a table: its values at steps of 2^-7, and from there its series.

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

/// The function and its derivative at each step.
static TABLE: [[f64; 2]; LEN] = table();

const fn table() -> [[f64; 2]; LEN] {
    let h = 1.0 / STEPS;
    let mut table = [[1.0, 0.0]; LEN];
    let (mut value, mut slope) = (
        Sum(0.0, 0.0),
        Sum(std::f64::consts::FRAC_2_SQRT_PI, 1.533_545_961_316_588e-17),
    );
    // What the derivative changes by from a step to the next, and by what that changes.
    let (mut change, more) = (exp_minus(h * h), exp_minus(2.0 * h * h));
    let mut k = 0;
    while k <= 768 {
        table[k] = [value.0, slope.0];
        let r = k as f64 * h;
        // The terms of the derivative's series, each times a power of the step.
        let (mut before, mut term, mut n) = (Sum(0.0, 0.0), slope, 0.0);
        while n < 15.0 {
            value = value.plus(term.by((n + 1.0) * STEPS));
            let next = term
                .times(Sum(-2.0 * r * h, 0.0))
                .plus(before.times(Sum(-2.0 * h * h, 0.0)));
            (before, term) = (term, next.by(n + 1.0));
            n += 1.0;
        }
        slope = slope.times(change);
        change = change.times(more);
        k += 1;
    }
    table
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
