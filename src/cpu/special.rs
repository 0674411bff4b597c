//! Special functions in double precision: Bessel and Airy functions, zeta, normal distribution.
//! Formulas are those of Abramowitz and Stegun and of the NIST handbook (DLMF).

use super::vmath64::poly;
use std::f64::consts::PI;

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

/// `f`, a Bessel function of the first or second kind, which PyTorch has no limit of at infinity.
#[must_use]
pub fn bessel_jy(f: fn(f64) -> f64, x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { f(x) }
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
        let p = poly(
            1.0 / (z + 0.75) - 0.35,
            [
                -7.786_015_576_188_134,
                3.898_134_456_299_751_5,
                3.628_346_178_754_067,
                -1.685_375_918_553_674,
                -0.991_986_686_662_76,
                0.435_747_063_654_158_05,
                0.103_844_606_190_528_8,
                -4.756_968_925_219_063_5e-2,
                -3.137_875_897_422_736_5e-2,
                2.753_173_773_101_955_5e-3,
                -1.360_522_356_043_343_2e-2,
                -6.894_486_218_599_356_5e-3,
                -1.358_357_096_305_182_5e-2,
                -9.810_463_547_038_692e-3,
                -1.459_058_022_820_708e-2,
                -1.295_916_367_409_890_3e-2,
                -1.732_805_623_925_359_8e-2,
                -1.717_043_049_898_959_7e-2,
                -2.274_447_735_609_403_2e-2,
                -2.440_371_768_280_878e-2,
                -3.504_778_182_138_569_6e-2,
                -4.124_361_112_528_854e-2,
                -0.088_272_460_788_043_02,
                0.972_923_382_831_127_6,
            ],
        );
        return p * (-z).exp() / (2.0 * PI.sqrt() * x.sqrt().sqrt());
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
            if f.abs().max(g.abs()) < 1e-18 {
                break;
            }
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
        return crate::cpu::vmath64::digamma(x);
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
