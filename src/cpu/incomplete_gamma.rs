//! The regularised incomplete gamma functions. Formulas are those of the NIST handbook (DLMF), chapter 8.

use std::f64::consts::PI;

/// The regularised lower (or upper) incomplete gamma function.
#[must_use]
pub fn igamma(a: f64, x: f64, upper: bool) -> f64 {
    if x < 0.0 || a < 0.0 {
        return f64::NAN;
    }
    let pick = |lower: f64, above: f64| if upper { above } else { lower };
    if a == 0.0 {
        return if x > 0.0 { pick(1.0, 0.0) } else { f64::NAN };
    }
    if x == 0.0 {
        return pick(0.0, 1.0);
    }
    if a.is_infinite() {
        return if x.is_infinite() {
            f64::NAN
        } else {
            pick(0.0, 1.0)
        };
    }
    if x.is_infinite() {
        return pick(1.0, 0.0);
    }
    if a.is_nan() || x.is_nan() {
        return f64::NAN;
    }
    if upper && x <= 1.1 && (a < 1e-3 || x >= 1.1 * a) {
        return upper_series(a, x);
    }
    if a > 1e5 {
        return uniform(a, x, upper);
    }
    let scale = density(a, x);
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        for _ in 0..100_000 {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        let lower = (scale * sum).min(1.0);
        return pick(lower, 1.0 - lower);
    }
    // Lentz' evaluation of the continued fraction for the upper part.
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut h = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = an * d + b;
        d = 1.0 / if d.abs() < tiny { tiny } else { d };
        c = b + an / c;
        c = if c.abs() < tiny { tiny } else { c };
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    let above = scale * h;
    pick(1.0 - above, above)
}

/// The upper part of the gamma integral for small numbers, where it is not one less the lower part to the last digit
/// (DLMF 8.7.3).
fn upper_series(a: f64, x: f64) -> f64 {
    let (mut power, mut sum) = (1.0, 0.0);
    for n in 1..2000 {
        let n = f64::from(n);
        power *= -x / n;
        let term = power / (a + n);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    let log = a * x.ln() - lgamma_1p(a);
    -log.exp_m1() - a * log.exp() * sum
}

/// The logarithm of gamma(1 + a); a Taylor series keeps the digits of a small a.
fn lgamma_1p(a: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    // Values of the zeta function at 2 to 5, over these.
    const ZETA: [f64; 4] = [
        1.644_934_066_848_226_4 / 2.0,
        -1.202_056_903_159_594_3 / 3.0,
        1.082_323_233_711_138_2 / 4.0,
        -1.036_927_755_143_37 / 5.0,
    ];
    if a > 1e-3 {
        return libm::lgamma(1.0 + a);
    }
    let rest = ZETA.iter().rev().fold(0.0, |sum, c| sum * a + c);
    a * (rest * a - EULER)
}

/// x^a exp(-x) / gamma(a).
fn density(a: f64, x: f64) -> f64 {
    if a < 20.0 {
        return (a * x.ln() - x - libm::lgamma(a)).exp();
    }
    // Stirling's series in place of a difference of large logarithms.
    let t = 1.0 / (a * a);
    let tail = (1.0 / 12.0 - t * (1.0 / 360.0 - t * (1.0 / 1260.0 - t / 1680.0))) / a;
    (a / (2.0 * PI)).sqrt() * (a * log1p_minus((x - a) / a) - tail).exp()
}

/// log(1 + m) - m.
fn log1p_minus(m: f64) -> f64 {
    if m.abs() > 0.02 {
        return m.ln_1p() - m;
    }
    // Twelve terms are below a rounding beyond 0.02.
    let rest = (2..12)
        .rev()
        .fold(0.0, |sum, k| 1.0 / f64::from(k) - m * sum);
    -m * m * rest
}

/// The expansion for large a that holds on either side of a (DLMF 8.12.3 to 8.12.8).
fn uniform(a: f64, x: f64, upper: bool) -> f64 {
    // Coefficients of a to the powers -1/2 and -3/2, in powers of eta.
    const FIRST: [f64; 6] = [
        -1.0 / 3.0,
        1.0 / 12.0,
        -2.0 / 135.0,
        1.0 / 864.0,
        1.0 / 2835.0,
        -139.0 / 777_600.0,
    ];
    const SECOND: [f64; 4] = [-1.0 / 540.0, -1.0 / 288.0, 1.0 / 378.0, -77.0 / 77_760.0];
    let m = (x - a) / a;
    let half_square = -log1p_minus(m);
    let eta = (2.0 * half_square).sqrt().copysign(m);
    let side = if upper { 1.0 } else { -1.0 };
    let main = 0.5 * libm::erfc(side * eta * (a / 2.0).sqrt());
    let bell = (-a * half_square).exp();
    if bell == 0.0 {
        return main;
    }
    let at = |c: &[f64]| c.iter().rev().fold(0.0, |sum, c| sum * eta + c);
    main + side * bell / (2.0 * PI * a).sqrt() * (at(&FIRST) + at(&SECOND) / a)
}
