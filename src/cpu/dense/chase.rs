//! Singular values of bidiagonal matrices by implicit QR steps, with shifts and without.
//!
//! Source: J. Demmel and W. Kahan, "Accurate singular values of bidiagonal matrices", LAPACK working note 3 (1990).

use super::columns::rotate;
use super::number::{Real, hypotenuse, largest};
use super::view::ViewMut;
use num_traits::Float;

/// Bases of singular vectors that turn along, in columns.
pub struct Bases<'a, R> {
    /// On the left.
    pub u: ViewMut<'a, R>,
    /// On the right.
    pub v: ViewMut<'a, R>,
}

/// Cosine, which is not negative, and sine of the rotation that turns `(f, g)` to `(r, 0)`, and `r`.
pub(super) fn rotation<R: Real>(f: R, g: R) -> (R, R, R) {
    if g.is_zero() {
        return (R::one(), R::zero(), f);
    }
    if f.is_zero() {
        return (R::zero(), R::one(), g);
    }
    let r = Float::copysign(hypotenuse(f, g), f);
    (f / r, g / r, r)
}

/// The smaller and the larger singular value of an upper triangle of two rows.
fn pair<R: Real>(f: R, g: R, h: R) -> (R, R) {
    let (f, g, h) = (Float::abs(f), Float::abs(g), Float::abs(h));
    let (low, high) = (Float::min(f, h), Float::max(f, h));
    if low.is_zero() {
        return (low, hypotenuse(high, g));
    }
    // Everything beside the largest, so that squares neither vanish nor overflow.
    let most = Float::max(high, g);
    let (a, b, c) = (low / most, high / most, g / most);
    let (sum, difference) = (hypotenuse(a + b, c), hypotenuse(b - a, c));
    let larger = (sum + difference) * R::near(0.5);
    ((a * b / larger) * most, larger * most)
}

/// Turns the upper bidiagonal matrix of `d` and `e` into its singular values, none negative, in some order. False if it does
/// not converge.
pub fn singular<R: Real>(d: &mut [R], e: &mut [R], mut bases: Option<Bases<R>>) -> bool {
    let n = d.len();
    if n == 0 {
        return true;
    }
    let size = Float::max(largest(d), largest(e));
    let up = R::one() / size;
    if size.is_zero() || !Float::is_finite(up) {
        e.fill(R::zero());
    } else {
        d.iter_mut().chain(e.iter_mut()).for_each(|v| *v *= up);
        let graded = n > 1 && Float::abs(d[0]) < Float::abs(d[n - 1]);
        if graded {
            // Steps go downwards, where what is small should be last: the transpose with all turned round.
            d.reverse();
            e.reverse();
            if let Some(b) = &mut bases {
                b.flip(n);
            }
        }
        let done = match (&mut bases, graded) {
            (Some(b), true) => {
                let Bases { u, v } = b;
                let turned = Bases {
                    u: v.again(),
                    v: u.again(),
                };
                steps(d, e, &mut Some(turned))
            }
            _ => steps(d, e, &mut bases),
        };
        d.iter_mut().for_each(|v| *v *= size);
        if !done {
            return false;
        }
    }
    for (j, d) in d
        .iter_mut()
        .enumerate()
        .filter(|(_, d)| d.is_sign_negative())
    {
        *d = -*d;
        if let Some(b) = &mut bases {
            b.v.column(j).iter_mut().for_each(|v| *v = -*v);
        }
    }
    true
}

impl<R: Real> Bases<'_, R> {
    /// Turns round the order of the first columns of both.
    fn flip(&mut self, n: usize) {
        for m in [&mut self.u, &mut self.v] {
            for j in 0..n / 2 {
                let (x, y) = m.two_columns(j, n - 1 - j);
                x.swap_with_slice(y);
            }
        }
    }

    fn turn(&mut self, i: usize, right: (R, R), left: (R, R)) {
        let (x, y) = self.v.two_columns(i, i + 1);
        rotate(x, y, right.0, right.1);
        let (x, y) = self.u.two_columns(i, i + 1);
        rotate(x, y, left.0, left.1);
    }
}

fn steps<R: Real>(d: &mut [R], e: &mut [R], bases: &mut Option<Bases<R>>) -> bool {
    let eps = R::epsilon();
    let mut end = d.len();
    let mut turns = 0usize;
    let limit = 60 * d.len().max(4);
    while end > 1 {
        // The last block whose elements beside the diagonal count.
        let mut start = end - 1;
        while start > 0 {
            let near = Float::abs(d[start - 1]) + Float::abs(d[start]);
            if Float::abs(e[start - 1]) <= eps * near
                || Float::abs(e[start - 1]) < R::min_positive_value()
            {
                e[start - 1] = R::zero();
                break;
            }
            start -= 1;
        }
        if start == end - 1 {
            end -= 1;
            continue;
        }
        turns += 1;
        if turns > limit {
            return false;
        }
        let m = end - 1;
        // What is nothing beside the whole is zero: a step without a shift then separates it.
        if let Some(k) = (start..end).find(|&k| Float::abs(d[k]) <= eps * eps) {
            d[k] = R::zero();
        }
        let (shift, _) = pair(d[m - 1], e[m - 1], d[m]);
        let first = Float::abs(d[start]);
        let none = (start..end).any(|k| d[k].is_zero());
        if none || (shift / first) * (shift / first) < eps {
            plain(d, e, start, m, bases);
        } else {
            shifted(d, e, start, m, shift, bases);
        }
        if Float::abs(e[m - 1]) <= eps * eps {
            e[m - 1] = R::zero();
        }
    }
    true
}

/// A step without a shift on `start..=m`.
fn plain<R: Real>(d: &mut [R], e: &mut [R], start: usize, m: usize, bases: &mut Option<Bases<R>>) {
    let (mut c, mut old_c, mut old_s) = (R::one(), R::one(), R::zero());
    for i in start..m {
        let (cos, sin, r) = rotation(d[i] * c, e[i]);
        if i > start {
            e[i - 1] = old_s * r;
        }
        let (cosl, sinl, r) = rotation(old_c * r, d[i + 1] * sin);
        d[i] = r;
        (c, old_c, old_s) = (cos, cosl, sinl);
        if let Some(b) = bases {
            b.turn(i, (cos, sin), (cosl, sinl));
        }
    }
    let h = d[m] * c;
    d[m] = h * old_c;
    e[m - 1] = h * old_s;
}

/// A step with a shift on `start..=m`.
fn shifted<R: Real>(
    d: &mut [R],
    e: &mut [R],
    start: usize,
    m: usize,
    shift: R,
    bases: &mut Option<Bases<R>>,
) {
    let sign = Float::copysign(R::one(), d[start]);
    let mut f = (Float::abs(d[start]) - shift) * (sign + shift / d[start]);
    let mut g = e[start];
    for i in start..m {
        let (cosr, sinr, r) = rotation(f, g);
        if i > start {
            e[i - 1] = r;
        }
        f = cosr * d[i] + sinr * e[i];
        e[i] = cosr * e[i] - sinr * d[i];
        g = sinr * d[i + 1];
        d[i + 1] *= cosr;
        let (cosl, sinl, r) = rotation(f, g);
        d[i] = r;
        f = cosl * e[i] + sinl * d[i + 1];
        d[i + 1] = cosl * d[i + 1] - sinl * e[i];
        if i + 1 < m {
            g = sinl * e[i + 1];
            e[i + 1] *= cosl;
        }
        if let Some(b) = bases {
            b.turn(i, (cosr, sinr), (cosl, sinl));
        }
    }
    e[m - 1] = f;
}
