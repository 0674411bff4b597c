//! Roots of secular equations `1 / rho + sum z_i^2 / (d_i - x) = 0`, one between every two poles and one behind the last.
//!
//! Source: R.-C. Li, "Solving secular equations stably and efficiently", LAPACK working note 89 (1993).

use super::number::Real;
use crate::cpu::simd::simd_fn;
use num_traits::Float;

simd_fn! { stream
    /// The sums of `z_i^2 / delta_i` and of its derivative, at `tau` from the origin that distances of poles are given from.
    fn sums<R: Real>(z: &[R], origin: &[R], tau: R, delta: &mut [R]) -> (R, R) {
        const WIDE: usize = 8;
        let (mut value, mut slope) = ([R::zero(); WIDE], [R::zero(); WIDE]);
        let (zs, os) = (z.chunks_exact(WIDE), origin.chunks_exact(WIDE));
        let (zr, or) = (zs.remainder(), os.remainder());
        let mut ds = delta.chunks_exact_mut(WIDE);
        for ((z, o), d) in zs.zip(os).zip(&mut ds) {
            for k in 0..WIDE {
                d[k] = o[k] - tau;
                let t = z[k] / d[k];
                value[k] += z[k] * t;
                slope[k] += t * t;
            }
        }
        let (mut v, mut s) = (R::zero(), R::zero());
        for ((&z, &o), d) in zr.iter().zip(or).zip(ds.into_remainder()) {
            *d = o - tau;
            let t = z / *d;
            v += z * t;
            s += t * t;
        }
        for k in 0..WIDE {
            v += value[k];
            s += slope[k];
        }
        (v, s)
    }
}

simd_fn! { stream
    /// `w *= a / b`.
    fn times_ratios<R: Real>(w: &mut [R], a: &[R], b: &[R]) {
        for ((w, &a), &b) in w.iter_mut().zip(a).zip(b) {
            *w *= a / b;
        }
    }
}

simd_fn! { stream
    /// `to = a / b`.
    pub fn ratios<R: Real>(to: &mut [R], a: &[R], b: &[R]) {
        for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *to = a / b;
        }
    }
}

/// An equation whose poles ascend.
pub struct Equation<'a, R> {
    /// What stands above the poles, before it is squared; none is zero.
    pub z: &'a [R],
    /// The factor of the sum, positive.
    pub rho: R,
    /// Writes the distances of all poles from pole `j`, to all their digits.
    pub gaps: &'a (dyn Fn(usize, &mut [R]) + Sync),
}

/// The function at a place between poles `j` and `j + 1`.
struct At<R> {
    value: R,
    /// The derivative's parts by the poles up to `j`, and by those behind.
    before: R,
    behind: R,
    /// What rounding may have made of the value.
    error: R,
}

impl<R: Real> Equation<'_, R> {
    fn at(&self, j: usize, origin: &[R], tau: R, delta: &mut [R]) -> At<R> {
        let cut = (j + 1).min(self.z.len());
        let (here, there) = delta.split_at_mut(cut);
        let (psi, before) = sums(&self.z[..cut], &origin[..cut], tau, here);
        let (phi, behind) = sums(&self.z[cut..], &origin[cut..], tau, there);
        let inverse = R::one() / self.rho;
        let eight = R::near(8.0);
        let size = eight * (Float::abs(psi) + Float::abs(phi)) + inverse;
        At {
            value: inverse + psi + phi,
            before,
            behind,
            error: R::epsilon() * (size + Float::abs(tau) * (before + behind)),
        }
    }

    /// Root `j`: the pole it is measured from, and its distance from it; `delta` becomes the distances of all poles from the root.
    pub fn root(&self, j: usize, delta: &mut [R]) -> (usize, R) {
        let n = self.z.len();
        let half = R::near(0.5);
        if n == 1 {
            let tau = self.rho * self.z[0] * self.z[0];
            delta[0] = -tau;
            return (0, tau);
        }
        let mut origin = vec![R::zero(); n];
        if j + 1 == n {
            (self.gaps)(j, &mut origin);
            let length: R = self.z.iter().map(|&z| z * z).sum();
            let high = self.rho * length;
            let tau = self.refine(j, &origin, (R::zero(), high), high * half, delta);
            return (j, tau);
        }
        (self.gaps)(j, &mut origin);
        let width = origin[j + 1];
        let middle = self.at(j, &origin, width * half, delta);
        // What the poles beside the root leave over is nearly constant.
        let (p, q) = (self.z[j] * self.z[j], self.z[j + 1] * self.z[j + 1]);
        let rest = middle.value - p / delta[j] - q / delta[j + 1];
        let four = R::near(4.0);
        let two = R::near(2.0);
        if middle.value >= R::zero() {
            let (a, b) = (rest * width + p + q, p * width);
            let root = Float::sqrt(Float::abs(a * a - four * b * rest));
            let guess = if a > R::zero() {
                two * b / (a + root)
            } else {
                (a - root) / (two * rest)
            };
            let tau = self.refine(j, &origin, (R::zero(), width * half), guess, delta);
            return (j, tau);
        }
        (self.gaps)(j + 1, &mut origin);
        let (a, b) = (rest * width - p - q, q * width);
        let root = Float::sqrt(Float::abs(a * a + four * b * rest));
        let guess = if a < R::zero() {
            two * b / (a - root)
        } else {
            -(a + root) / (two * rest)
        };
        let tau = self.refine(j, &origin, (-width * half, R::zero()), guess, delta);
        (j + 1, tau)
    }

    /// The root within a bracket, from a first guess.
    fn refine(&self, j: usize, origin: &[R], bracket: (R, R), guess: R, delta: &mut [R]) -> R {
        let (mut low, mut high) = bracket;
        let mut tau = guess;
        if !(tau > low && tau < high) {
            tau = between(low, high);
        }
        for step in 0..100 {
            let at = self.at(j, origin, tau, delta);
            if Float::abs(at.value) <= at.error {
                break;
            }
            if at.value < R::zero() {
                low = tau;
            } else {
                high = tau;
            }
            let mut next = tau
                + if step < 40 {
                    self.correction(j, origin, delta, &at)
                } else {
                    R::nan()
                };
            if !(next > low && next < high) {
                next = between(low, high);
            }
            if next == tau || !(low < next && next < high) {
                break;
            }
            tau = next;
        }
        tau
    }

    /// The step to the root of a function with the two poles beside it that touches this one.
    fn correction(&self, j: usize, origin: &[R], delta: &[R], at: &At<R>) -> R {
        let n = self.z.len();
        let (two, four) = (R::near(2.0), R::near(4.0));
        let last = j + 1 == n;
        let (i, k) = if last { (j - 1, j) } else { (j, j + 1) };
        let (d1, d2) = (delta[i], delta[k]);
        let slope = at.before + at.behind;
        let c = if last {
            let own = self.z[k] / d2;
            let own = own * own;
            Float::abs(at.value - d1 * (slope - own) - d2 * own)
        } else if origin[i].is_zero() {
            let own = self.z[i] / d1;
            at.value - d2 * slope - (d1 - d2) * own * own
        } else {
            let own = self.z[k] / d2;
            at.value - d1 * slope - (d2 - d1) * own * own
        };
        let a = (d1 + d2) * at.value - d1 * d2 * slope;
        let b = d1 * d2 * at.value;
        let root = Float::sqrt(Float::abs(a * a - four * b * c));
        let step = if c.is_zero() {
            b / a
        } else if last {
            if a >= R::zero() {
                (a + root) / (two * c)
            } else {
                two * b / (a - root)
            }
        } else if a <= R::zero() {
            (a - root) / (two * c)
        } else {
            two * b / (a + root)
        };
        if at.value * step > R::zero() {
            -at.value / slope
        } else {
            step
        }
    }
}

/// A place within a bracket, nearer to an end that is a pole.
fn between<R: Real>(low: R, high: R) -> R {
    let half = R::near(0.5);
    let near = R::near(1.0 / 64.0);
    if low.is_zero() {
        high * near
    } else if high.is_zero() {
        low * near
    } else {
        low * half + high * half
    }
}

/// What would have to stand above the poles for the roots found to be exact, with the signs of `z`; column j of `delta` has
/// the distances of all poles from root j.
///
/// Source: M. Gu and S. Eisenstat, "A stable and efficient algorithm for the rank-one modification of the symmetric
/// eigenproblem" (1994).
pub fn corrected<R: Real>(
    delta: &super::view::Matrix<R>,
    z: &[R],
    gaps: &dyn Fn(usize, &mut [R]),
) -> Vec<R> {
    let n = z.len();
    let mut w: Vec<R> = (0..n).map(|i| delta[(i, i)]).collect();
    let mut gap = vec![R::zero(); n];
    for j in 0..n {
        gaps(j, &mut gap);
        let own = w[j];
        times_ratios(&mut w, delta.view().column(j), &gap);
        w[j] = own;
    }
    let signed = |(w, &z): (R, &R)| Float::copysign(Float::sqrt(Float::abs(w)), z);
    w.into_iter().zip(z).map(signed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_lie_between_poles() {
        let d = [-1.0, -0.5, -0.5 + 1e-12, 0.0, 3.0, 3.0 + 1e-9, 7.0f64];
        let z = [0.1, 1e-8, 0.3, 0.5, 1e-10, 0.7, 0.2];
        let equation = Equation {
            z: &z,
            rho: 2.5,
            gaps: &|j, to| (0..7).for_each(|i| to[i] = d[i] - d[j]),
        };
        let mut delta = [0.0; 7];
        for j in 0..7 {
            let (base, tau) = equation.root(j, &mut delta);
            let x = d[base] + tau;
            assert!(x >= d[j] && (j == 6 || x <= d[j + 1]), "{j}");
            let sum: f64 = z.iter().zip(&delta).map(|(z, d)| z * z / d).sum();
            let size: f64 = z.iter().zip(&delta).map(|(z, d)| (z * z / d).abs()).sum();
            assert!((0.4 + sum).abs() < 1e-13 * (1.0 + size), "{j}: {sum}");
        }
    }
}
