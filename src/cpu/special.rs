//! Special functions in double precision: Bessel and Airy functions, zeta, normal distribution.
//! Formulas are those of Abramowitz and Stegun and of the NIST handbook (DLMF).

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// -x ln x.
#[must_use]
pub fn entr(x: f64) -> f64 {
    if x.is_nan() || x > 0.0 {
        -x * x.ln()
    } else if x == 0.0 {
        0.0
    } else {
        f64::NEG_INFINITY
    }
}

/// exp(x^2) erfc(x); by the asymptotic series (DLMF 7.12.1) where erfc is about to vanish.
#[must_use]
pub fn erfcx(x: f64) -> f64 {
    if x < 25.0 {
        // What the square loses by rounding matters to its exponential.
        let square = x * x;
        let lost = x.mul_add(x, -square);
        let power = square.exp();
        let scale = if power.is_finite() && lost.is_finite() {
            power + power * lost
        } else {
            power
        };
        return scale * libm::erfc(x);
    }
    let t = 0.5 / (x * x);
    let sum = [11.0, 9.0, 7.0, 5.0, 3.0, 1.0];
    sum.iter().fold(1.0, |inner, n| 1.0 - n * t * inner) / (x * PI.sqrt())
}

/// The normal distribution function.
#[must_use]
pub fn ndtr(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The logarithm of the normal distribution function.
#[must_use]
pub fn log_ndtr(x: f64) -> f64 {
    if x < -1.0 {
        (erfcx(-x * FRAC_1_SQRT_2) / 2.0).ln() - x * x / 2.0
    } else {
        (-libm::erfc(x * FRAC_1_SQRT_2) / 2.0).ln_1p()
    }
}

/// The inverse of the normal distribution function, by Newton's method on its logarithm.
#[must_use]
pub fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
    }
    if p > 0.5 {
        return -ndtri_low(1.0 - p);
    }
    ndtri_low(p)
}

fn ndtri_low(p: f64) -> f64 {
    // A&S 26.2.23 is good to 4.5e-4.
    let t = (-2.0 * p.ln()).sqrt();
    let mut x = -(t
        - (2.515_517 + t * (0.802_853 + t * 0.010_328))
            / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308))));
    for _ in 0..4 {
        let density = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
        if density == 0.0 {
            break;
        }
        let e = (ndtr(x) - p) / density;
        // Halley's step.
        x -= e / (1.0 + x * e / 2.0);
    }
    x
}

/// `f`, a Bessel function of the first or second kind, which PyTorch has no limit of at infinity.
#[must_use]
pub fn bessel_jy(f: fn(f64) -> f64, x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { f(x) }
}

/// I_nu(x) exp(-|x|) for nu 0 and 1.
#[must_use]
pub fn bessel_ie(nu: i32, x: f64) -> f64 {
    let a = x.abs();
    let sign = if nu == 1 && x < 0.0 { -1.0 } else { 1.0 };
    if a.is_nan() {
        return x;
    }
    if a <= 30.0 {
        let q = a * a / 4.0;
        let mut term = if nu == 1 { a / 2.0 } else { 1.0 };
        let mut sum = term;
        let mut k = 1.0;
        while term > sum * 1e-18 {
            term *= q / (k * (k + f64::from(nu)));
            sum += term;
            k += 1.0;
        }
        return sign * sum * (-a).exp();
    }
    if a.is_infinite() {
        return 0.0 * sign;
    }
    let m = 4.0 * f64::from(nu * nu);
    let (mut term, mut sum) = (1.0f64, 1.0f64);
    for k in 1..30 {
        let odd = f64::from(2 * k - 1);
        let next = -term * (m - odd * odd) / (f64::from(k) * 8.0 * a);
        if next.abs() > term.abs() || next == 0.0 {
            break;
        }
        term = next;
        sum += term;
    }
    sign * sum / (2.0 * PI * a).sqrt()
}

/// I_nu(x) for nu 0 and 1.
#[must_use]
pub fn bessel_i(nu: i32, x: f64) -> f64 {
    if x.is_infinite() {
        // As PyTorch's quotient of infinities.
        return f64::NAN;
    }
    bessel_ie(nu, x) * x.abs().exp()
}

/// K_nu(x) exp(x), by the trapezoidal rule on the integral of exp(-x cosh t) cosh(nu t), which converges faster than
/// any power of the step.
#[must_use]
pub fn bessel_ke(nu: f64, x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::INFINITY;
    }
    if x.is_infinite() {
        return 0.0;
    }
    let h = (0.5 / x.sqrt()).min(0.1);
    let mut sum = 0.5;
    for i in 1..100_000 {
        let t = h * f64::from(i);
        // cosh t - 1 without cancellation.
        let s = (t / 2.0).sinh();
        let exponent = 2.0 * x * s * s;
        let term = (nu * t - exponent).exp() * 0.5 * (1.0 + (-2.0 * nu * t).exp());
        sum += term;
        if exponent > 40.0 + nu * t && term < sum * 1e-18 {
            break;
        }
    }
    sum * h
}

/// K_nu(x).
#[must_use]
pub fn bessel_k(nu: f64, x: f64) -> f64 {
    let scaled = bessel_ke(nu, x);
    if scaled.is_finite() {
        scaled * (-x).exp()
    } else {
        scaled
    }
}

/// sin(x) / x.
#[must_use]
pub fn spherical_j0(x: f64) -> f64 {
    if x.is_infinite() {
        0.0
    } else if x.abs() < 1e-4 {
        1.0 - x * x / 6.0
    } else {
        x.sin() / x
    }
}

/// The Airy function Ai; PyTorch has no limits of it at infinity.
#[must_use]
pub fn airy_ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    if x > 1.0 {
        let z = 2.0 / 3.0 * x * x.sqrt();
        return (x / 3.0).sqrt() / PI * bessel_k(1.0 / 3.0, z);
    }
    if x >= -8.0 {
        let cube = x * x * x;
        let (mut f, mut g, mut sf, mut sg) = (1.0, x, 1.0, x);
        for k in 1..80 {
            let n = 3.0 * f64::from(k);
            f *= cube / (n * (n - 1.0));
            g *= cube / (n * (n + 1.0));
            sf += f;
            sg += g;
        }
        return 0.355_028_053_887_817_24 * sf - 0.258_819_403_792_806_8 * sg;
    }
    let a = -x;
    let z = 2.0 / 3.0 * a * a.sqrt();
    // u_k of the asymptotic expansion (DLMF 9.7.2).
    let (mut u, mut power, mut p, mut q) = (1.0f64, 1.0f64, 1.0f64, 0.0f64);
    for k in 1..12 {
        let kf = f64::from(k);
        u *= (6.0 * kf - 5.0) * (6.0 * kf - 3.0) * (6.0 * kf - 1.0)
            / (216.0 * kf * (2.0 * kf - 1.0));
        power /= z;
        let term = u * power;
        match k % 4 {
            1 => q += term,
            2 => p -= term,
            3 => q -= term,
            _ => p += term,
        }
    }
    let phase = z - PI / 4.0;
    (p * phase.cos() + q * phase.sin()) / (PI.sqrt() * a.powf(0.25))
}

/// Hurwitz' zeta function by the Euler-Maclaurin sum.
#[must_use]
pub fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 && q == q.floor() {
        return f64::INFINITY;
    }
    if s.is_nan() {
        return f64::NAN;
    }
    if s.is_infinite() && (0.0..=1.0).contains(&q) {
        // Of the powers of q, q + 1, ... the first alone is not zero.
        return if q == 1.0 { 1.0 } else { f64::INFINITY };
    }
    if q <= 0.0 {
        if s != s.floor() {
            return f64::NAN;
        }
        // The terms below zero are those of two other series.
        let part = q - q.floor();
        let sign = if s % 2.0 == 0.0 { 1.0 } else { -1.0 };
        return zeta(s, part) + sign * (zeta(s, 1.0 - part) - zeta(s, 1.0 - q));
    }
    if q.is_infinite() {
        return f64::NAN;
    }
    let (mut sum, mut a) = (q.powf(-s), q);
    let mut n = 0;
    while n < 12 || a <= 12.0 {
        n += 1;
        a += 1.0;
        let term = a.powf(-s);
        sum += term;
        if n > 10_000 || (a > 0.0 && term < sum.abs() * 1e-17) {
            break;
        }
    }
    let w = a.powf(-s);
    sum += w * a / (s - 1.0) - 0.5 * w;
    // Bernoulli numbers over factorials.
    let b = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
    ];
    let mut factor = s * w / a;
    for (i, c) in b.iter().enumerate() {
        sum += factor * c;
        let k = 2.0 * i as f64;
        factor *= (s + k + 1.0) * (s + k + 2.0) / (a * a);
    }
    sum
}

/// The n-th derivative of digamma, n above 0. In single precision the poles at negative integers are finite, as the
/// sine there is in PyTorch.
#[must_use]
pub fn polygamma(n: i64, x: f64, single: bool) -> f64 {
    if n == 0 {
        return crate::cpu::math::digamma(x);
    }
    if n == 1 {
        let sine = if single {
            f64::from((std::f32::consts::PI * x as f32).sin())
        } else {
            (PI * x).sin()
        };
        return trigamma(x, sine);
    }
    let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
    sign * libm::tgamma(n as f64 + 1.0) * zeta(n as f64 + 1.0, x)
}

fn trigamma(x: f64, s: f64) -> f64 {
    if x < 0.5 {
        return -trigamma_high(1.0 - x) + PI * PI / (s * s);
    }
    trigamma_high(x)
}

fn trigamma_high(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 12.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let t = 1.0 / (x * x);
    sum + (1.0 + 1.0 / (2.0 * x) + t * (1.0 / 6.0 - t * (1.0 / 30.0 - t * (1.0 / 42.0 - t / 30.0))))
        / x
}

/// The logarithm of the multivariate gamma function of dimension p, of which `rounded` has every step.
#[must_use]
pub fn mvlgamma(x: f64, p: i64, rounded: impl Fn(f64) -> f64) -> f64 {
    let lgamma = |v: f64| {
        if v.is_infinite() {
            f64::INFINITY
        } else {
            libm::lgamma(v)
        }
    };
    let constant = p as f64 * (p - 1) as f64 / 4.0 * PI.ln();
    let part = |j: i64| rounded(lgamma(rounded(x - j as f64 / 2.0)));
    rounded(rounded((0..p).rev().map(part).sum()) + rounded(constant))
}

/// The mantissa in [0.5, 1) and the exponent of 2.
#[must_use]
pub fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        (x, 0)
    } else {
        libm::frexp(x)
    }
}
