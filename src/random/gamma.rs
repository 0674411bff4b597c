//! Gamma, Dirichlet and binomial numbers, drawn from doubles one element after the other.
//!
//! Sources: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); Hoermann, "The generation of
//! binomial random variates" (BTRS, 1993).

use super::generator::Generator;
use super::kernels::serial_normal;

/// A number of the gamma distribution with shape `alpha`, which is one of this precision, and scale 1.
#[must_use]
pub fn gamma(g: &mut Generator, mut alpha: f64, to: Precision) -> f64 {
    let mut scale = 1.0;
    if alpha < 1.0 {
        if alpha == 0.0 {
            return 0.0;
        }
        // One more event, and a power of a uniform number for what that is too much.
        scale *= (1.0 - g.d53()).powf(to.round(1.0 / alpha));
        alpha = to.round(alpha + 1.0);
    }
    if !alpha.is_finite() {
        // Nothing would ever be accepted.
        return alpha;
    }
    // Both constants are PyTorch's, of single precision.
    let d = to.round(alpha - f64::from(1.0f32 / 3.0));
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (x, y) = loop {
            let x = serial_normal(g);
            let y = 1.0 + c * x;
            if y > 0.0 {
                break (x, y);
            }
            if y.is_nan() {
                return f64::NAN;
            }
        };
        let v = y * y * y;
        let u = 1.0 - g.d53();
        let xx = x * x;
        if u < 1.0 - f64::from(0.0331f32) * xx * xx || u.ln() < 0.5 * xx + d * (1.0 - v + v.ln()) {
            return scale * d * v;
        }
    }
}

/// The precision that binomial numbers are drawn in.
#[derive(Clone, Copy)]
pub enum Precision {
    /// 32 bits.
    Single,
    /// 64 bits.
    Double,
}

impl Precision {
    /// A number as it is stored.
    #[must_use]
    pub fn round(self, v: f64) -> f64 {
        match self {
            Self::Single => f64::from(v as f32),
            Self::Double => v,
        }
    }

    fn ln(self, v: f64) -> f64 {
        match self {
            Self::Single => f64::from((v as f32).ln()),
            Self::Double => v.ln(),
        }
    }

    fn ln_1p(self, v: f64) -> f64 {
        match self {
            Self::Single => f64::from((v as f32).ln_1p()),
            Self::Double => v.ln_1p(),
        }
    }
}

/// How many of `count` trials succeed, each with probability `p`; not a number where that is none.
#[must_use]
pub fn binomial(g: &mut Generator, count: f64, p: f64, to: Precision) -> f64 {
    let round = |v| to.round(v);
    if count <= 0.0 || p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return count;
    }
    if !count.is_finite() || p.is_nan() {
        return f64::NAN;
    }
    let rare = if p <= 0.5 { p } else { round(1.0 - p) };
    let hits = if round(count * rare) >= 10.0 {
        by_rejection(g, count, rare, to)
    } else {
        by_waiting(g, count, rare, to)
    };
    if p <= 0.5 { hits } else { round(count - hits) }
}

/// Waits for one success after the other, as few are expected.
fn by_waiting(g: &mut Generator, count: f64, p: f64, to: Precision) -> f64 {
    let round = |v| to.round(v);
    let log = to.ln_1p(-p);
    let (mut trials, mut hits) = (0.0, 0.0);
    loop {
        let u = round(g.d53());
        trials = round(trials + round(to.ln(u) / log).ceil());
        if !(trials <= count) {
            return hits;
        }
        hits += 1.0;
    }
}

/// What Stirling's formula for `ln(k!)` leaves out.
fn stirling_rest(k: f64) -> f64 {
    const FIRST: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    if k <= 9.0 {
        return FIRST[k as usize];
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

/// Transformed rejection with a squeeze.
fn by_rejection(g: &mut Generator, count: f64, p: f64, to: Precision) -> f64 {
    let round = |v| to.round(v);
    let log = |x: f64| to.ln(x);
    let deviation = round(round(round(count * p) * round(1.0 - p)).sqrt());
    let b = round(1.15 + 2.53 * deviation);
    let a = round(-0.0873 + 0.0248 * b + 0.01 * p);
    let c = round(round(count * p) + 0.5);
    let accept = round(0.92 - 4.2 / b);
    let odds = round(p / round(1.0 - p));
    let alpha = round((2.83 + 5.1 / b) * deviation);
    let m = round(round(count + 1.0) * p).floor();
    let from_m = round(round(count - m) + 1.0);
    loop {
        let u = round(g.d53() - 0.5);
        let v = round(g.d53());
        let us = round(0.5 - u.abs());
        let slope = round(round(2.0 * a / us) + b);
        let k = round(round(slope * u) + c).floor();
        if k < 0.0 || k > count {
            continue;
        }
        if us >= 0.07 && v <= accept {
            return k;
        }
        let box_height = round(round(a / round(us * us)) + b);
        let v = log(round(v * alpha) / box_height);
        let from_k = round(round(count - k) + 1.0);
        let bound = (m + 0.5) * log(round(m + 1.0) / round(odds * from_m))
            + round(round(count + 1.0) * log(from_m / from_k))
            + (k + 0.5) * log(round(odds * from_k) / round(k + 1.0))
            + round(stirling_rest(m))
            + round(stirling_rest(count - m))
            - round(stirling_rest(k))
            - round(stirling_rest(count - k));
        if v <= round(bound) {
            return k;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut(&mut Generator) -> f64) -> (f64, f64) {
        const N: usize = 40_000;
        let mut g = Generator::new(7);
        let all: Vec<f64> = (0..N).map(|_| draw(&mut g)).collect();
        let mean = all.iter().sum::<f64>() / N as f64;
        let variance = all.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / N as f64;
        (mean, variance)
    }

    #[test]
    fn gamma_numbers_have_their_moments() {
        for alpha in [0.3, 1.0, 4.5, 100.0] {
            let (mean, variance) = moments(|g| gamma(g, alpha, Precision::Double));
            assert!((mean / alpha - 1.0).abs() < 0.03, "{alpha}: {mean}");
            assert!((variance / alpha - 1.0).abs() < 0.06, "{alpha}: {variance}");
        }
    }

    #[test]
    fn binomial_numbers_have_their_moments() {
        for (n, p) in [(10.0, 0.2), (10.0, 0.9), (500.0, 0.3), (1e6, 0.75)] {
            let (mean, variance) = moments(|g| binomial(g, n, p, Precision::Double));
            assert!((mean / (n * p) - 1.0).abs() < 0.03, "{n} {p}: {mean}");
            assert!((variance / (n * p * (1.0 - p)) - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn what_is_no_parameter_ends() {
        let mut g = Generator::new(1);
        assert!(gamma(&mut g, f64::NAN, Precision::Double).is_nan());
        assert!(gamma(&mut g, f64::INFINITY, Precision::Double).is_infinite());
        assert!(gamma(&mut g, -5.0, Precision::Double).is_nan());
        assert!(binomial(&mut g, f64::INFINITY, 0.5, Precision::Double).is_nan());
        assert!(binomial(&mut g, 5.0, f64::NAN, Precision::Double).is_nan());
        assert_eq!(binomial(&mut g, 1e300, 1.0, Precision::Double), 1e300);
    }
}
