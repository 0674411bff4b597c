//! Orthogonal polynomials by their recurrences, and by closed forms and asymptotic ones (DLMF 18.5, 18.15) where the
//! degree is so high that a recurrence would not end.

use crate::cpu::vmath64::i0;

/// A family of orthogonal polynomials.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Chebyshev, first to fourth kind: the start of the recurrence is 1, a x + b.
    Chebyshev(i8, i8),
    /// Hermite as physicists write it.
    HermiteH,
    /// Hermite as statisticians write it.
    HermiteHe,
    /// Laguerre.
    Laguerre,
    /// Legendre.
    Legendre,
}

/// What is known of the type that a polynomial is wanted in.
#[derive(Clone, Copy)]
pub struct Type {
    /// The degree beyond which Hermite polynomials overflow.
    pub hermite: i64,
    /// The largest number.
    pub largest: f64,
}

/// Steps that a recurrence may take.
const STEPS: i64 = 100_000;

/// The polynomial of degree `n` at `x`; 0 for degrees below 0 and for those that are no 64-bit integer.
#[must_use]
pub fn polynomial(family: Family, x: f64, n: f64, of: Type) -> f64 {
    if !(0.0..9.2e18).contains(&n.trunc()) {
        return 0.0;
    }
    let n = n as i64;
    match family {
        _ if n == 0 => 1.0,
        Family::Chebyshev(a, b) if n > STEPS || (n > 6 && x.abs() < 1.0) => {
            chebyshev((a, b), x, n as f64, n % 2 == 1)
        }
        Family::HermiteH | Family::HermiteHe if n > of.hermite => f64::NAN,
        Family::Laguerre if n > STEPS => laguerre(x, n as f64),
        Family::Legendre if n > STEPS => legendre(x, n as f64, n % 2 == 1),
        _ => recurrence(family, x, n, of.largest),
    }
}

fn recurrence(family: Family, x: f64, n: i64, largest: f64) -> f64 {
    let mut p = 1.0;
    let mut q = match family {
        Family::Chebyshev(a, b) => f64::from(a) * x + f64::from(b),
        Family::HermiteH => 2.0 * x,
        Family::HermiteHe | Family::Legendre => x,
        Family::Laguerre => 1.0 - x,
    };
    let mut k = 1i64;
    while k < n && !q.is_nan() {
        let kf = k as f64;
        let r = match family {
            Family::Chebyshev(..) => 2.0 * x * q - p,
            Family::HermiteH => 2.0 * x * q - 2.0 * kf * p,
            Family::HermiteHe => x * q - kf * p,
            Family::Laguerre => ((2.0 * kf + 1.0 - x) * q - kf * p) / (kf + 1.0),
            Family::Legendre => ((2.0 * kf + 1.0) * x * q - kf * p) / (kf + 1.0),
        };
        let r = if r.abs() > largest {
            r * f64::INFINITY
        } else {
            r
        };
        (p, q, k) = (q, r, k + 1);
    }
    q
}

/// With x = cos t, or cosh t, all four kinds are quotients of two functions of t.
fn chebyshev((a, b): (i8, i8), x: f64, n: f64, odd: bool) -> f64 {
    if x <= -1.0 {
        // The third and the fourth kind are mirror images.
        let there = chebyshev((a, -b), -x, n, odd);
        return if odd { -there } else { there };
    }
    if x >= 1.0 {
        let t = x.acosh();
        return match (a, b) {
            (1, _) => (n * t).cosh(),
            (2, -1) => ((n + 0.5) * t).cosh() / (t / 2.0).cosh(),
            (2, 0) if t == 0.0 => n + 1.0,
            (2, 0) => ((n + 1.0) * t).sinh() / t.sinh(),
            _ if t == 0.0 => 2.0 * n + 1.0,
            _ => ((n + 0.5) * t).sinh() / (t / 2.0).sinh(),
        };
    }
    let t = x.acos();
    match (a, b) {
        (1, _) => (n * t).cos(),
        (2, 0) => ((n + 1.0) * t).sin() / t.sin(),
        (2, -1) => ((n + 0.5) * t).cos() / (t / 2.0).cos(),
        _ => ((n + 0.5) * t).sin() / (t / 2.0).sin(),
    }
}

/// Legendre polynomials of high degree, by Hilb's formula.
fn legendre(x: f64, n: f64, odd: bool) -> f64 {
    if x < 0.0 {
        let there = legendre(-x, n, odd);
        return if odd { -there } else { there };
    }
    let t = if x > 1.0 { x.acosh() } else { x.acos() };
    if t == 0.0 {
        1.0
    } else if x > 1.0 {
        (t / t.sinh()).sqrt() * i0((n + 0.5) * t)
    } else {
        (t / t.sin()).sqrt() * libm::j0((n + 0.5) * t)
    }
}

/// Laguerre polynomials of high degree, by Hilb's formula.
fn laguerre(x: f64, n: f64) -> f64 {
    let reach = 2.0 * ((n + 0.5) * x.abs()).sqrt();
    let wave = if x < 0.0 { i0(reach) } else { libm::j0(reach) };
    (x / 2.0).exp() * wave
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLE: Type = Type {
        hermite: 512,
        largest: f64::MAX,
    };

    #[test]
    fn formulas_of_high_degrees_go_on_where_recurrences_end() {
        let n = STEPS;
        for x in [0.0, 0.3, 0.77, -0.5, -0.999, 1.0, -1.0] {
            for family in [
                Family::Legendre,
                Family::Chebyshev(1, 0),
                Family::Chebyshev(2, 0),
                Family::Chebyshev(2, -1),
                Family::Chebyshev(2, 1),
            ] {
                for n in [n + 1, n + 2] {
                    let near = polynomial(family, x, n as f64, DOUBLE);
                    let exact = recurrence(family, x, n, f64::MAX);
                    let size = exact.abs().max(1.0);
                    assert!((near - exact).abs() < 1e-6 * size, "{x} {n} {near} {exact}");
                }
            }
        }
        for x in [0.0, 0.001, 0.3, 1.5] {
            let near = polynomial(Family::Laguerre, x, (n + 1) as f64, DOUBLE);
            let exact = recurrence(Family::Laguerre, x, n + 1, f64::MAX);
            assert!((near - exact).abs() < 1e-2, "{x} {near} {exact}");
        }
    }

    #[test]
    fn degrees_that_are_no_integers_give_zero() {
        for n in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1.0] {
            assert_eq!(polynomial(Family::Laguerre, 0.5, n, DOUBLE), 0.0);
        }
        assert_eq!(polynomial(Family::Legendre, 0.5, -0.5, DOUBLE), 1.0);
    }
}
