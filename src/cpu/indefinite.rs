//! Factorisations `L D L^T` of symmetric or Hermitian matrices that are not definite, D having blocks of one or two rows.
//!
//! Source: Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems" (1977),
//! with pivots as LAPACK numbers them: a row from 1, negative for both rows of a block of two.

use super::dense::number::{Number, Real};
use super::dense::view::{View, ViewMut};
use num_traits::{Float, Zero};

/// How the upper triangle follows from the lower one.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Conjugated, on a real diagonal.
    pub hermitian: bool,
}

impl Kind {
    fn turned<T: Number>(self, v: T) -> T {
        if self.hermitian { v.conj() } else { v }
    }

    fn diagonal<T: Number>(self, v: T) -> T {
        if self.hermitian { T::real(v.re()) } else { v }
    }
}

/// Factorises by the lower triangle of `a`, in whose place L is put below the blocks of D. Writes LAPACK's pivots, and gives
/// the first block that is zero, from 1; 0 if none is.
pub fn factor<T: Number>(a: &mut ViewMut<T>, pivots: &mut [i64], kind: Kind) -> i32 {
    let n = a.rows();
    let mut info = 0;
    let mut k = 0;
    while k < n {
        a.set(k, k, kind.diagonal(a.get(k, k)));
        let Some((p, width)) = pivot(a, k) else {
            if info == 0 {
                info = k as i32 + 1;
            }
            pivots[k] = k as i64 + 1;
            k += 1;
            continue;
        };
        exchange(a, k, k + width - 1, p, kind);
        if width == 1 {
            eliminate_one(a, k, kind);
            pivots[k] = p as i64 + 1;
        } else {
            eliminate_two(a, k, kind);
            pivots[k] = -(p as i64 + 1);
            pivots[k + 1] = pivots[k];
        }
        k += width;
    }
    (0..n).for_each(|j| a.column(j)[..j].fill(T::zero()));
    info
}

/// The row to exchange, and whether a block has one row or two; nothing where all is zero.
fn pivot<T: Number>(a: &ViewMut<T>, k: usize) -> Option<(usize, usize)> {
    let n = a.rows();
    let alpha = T::Size::near((1.0 + 17f64.sqrt()) / 8.0);
    let size = |i: usize, j: usize| a.get(i, j).sum();
    let here = size(k, k);
    let (mut at, mut column) = (k, T::Size::zero());
    for i in k + 1..n {
        if size(i, k) > column {
            (at, column) = (i, size(i, k));
        }
    }
    if !(Float::max(here, column) > T::Size::zero()) {
        return None;
    }
    if here >= alpha * column {
        return Some((k, 1));
    }
    let left = (k..at).map(|j| size(at, j));
    let below = (at + 1..n).map(|i| size(i, at));
    let row = left.chain(below).fold(T::Size::zero(), Float::max);
    Some(if here >= alpha * column * (column / row) {
        (k, 1)
    } else if size(at, at) >= alpha * row {
        (at, 1)
    } else {
        (at, 2)
    })
}

/// Exchanges rows and columns `from` and `p` of what is left of the matrix from column `k` on.
fn exchange<T: Number>(a: &mut ViewMut<T>, k: usize, from: usize, p: usize, kind: Kind) {
    if p == from {
        return;
    }
    let n = a.columns();
    let mut swap = |x: (usize, usize), y: (usize, usize)| {
        let (v, w) = (a.get(x.0, x.1), a.get(y.0, y.1));
        a.set(x.0, x.1, w);
        a.set(y.0, y.1, v);
    };
    (p + 1..n).for_each(|i| swap((i, from), (i, p)));
    (from + 1..p).for_each(|i| swap((i, from), (p, i)));
    swap((from, from), (p, p));
    if from > k {
        swap((from, k), (p, k));
    }
    for i in from + 1..p {
        a.set(i, from, kind.turned(a.get(i, from)));
        a.set(p, i, kind.turned(a.get(p, i)));
    }
    a.set(p, from, kind.turned(a.get(p, from)));
}

/// `a[i, j] -= by`.
fn subtract<T: Number>(a: &mut ViewMut<T>, i: usize, j: usize, by: T) {
    a.set(i, j, a.get(i, j) - by);
}

fn eliminate_one<T: Number>(a: &mut ViewMut<T>, k: usize, kind: Kind) {
    let by = T::one().over(a.get(k, k));
    for j in k + 1..a.rows() {
        let f = kind.turned(a.get(j, k)) * by;
        for i in j..a.rows() {
            subtract(a, i, j, a.get(i, k) * f);
        }
        a.set(j, j, kind.diagonal(a.get(j, j)));
    }
    for i in k + 1..a.rows() {
        a.set(i, k, a.get(i, k) * by);
    }
}

fn eliminate_two<T: Number>(a: &mut ViewMut<T>, k: usize, kind: Kind) {
    let (p, q) = (a.get(k, k), a.get(k + 1, k));
    let r = kind.diagonal(a.get(k + 1, k + 1));
    a.set(k + 1, k + 1, r);
    // Divided by the element beside the diagonal, which is large.
    let (p, r, turned) = (p / q, r / q, kind.turned(q) / q);
    let det = q * (p * r - turned);
    let quotients: Vec<(T, T)> = (k + 2..a.rows())
        .map(|j| {
            let (x, y) = (a.get(j, k), a.get(j, k + 1));
            ((x * r - y) / det, (y * p - x * turned) / det)
        })
        .collect();
    for (j, &(first, second)) in (k + 2..).zip(&quotients) {
        let (f, s) = (kind.turned(first), kind.turned(second));
        for i in j..a.rows() {
            subtract(a, i, j, a.get(i, k) * f + a.get(i, k + 1) * s);
        }
        a.set(j, j, kind.diagonal(a.get(j, j)));
    }
    for (j, (first, second)) in (k + 2..).zip(quotients) {
        a.set(j, k, first);
        a.set(j, k + 1, second);
    }
}

/// Solves `A X = B` in place of `b`, by the factors of `A`. Pivots lie within the matrix.
pub fn solve<T: Number>(f: View<T>, pivots: &[i64], b: &mut ViewMut<T>, kind: Kind) {
    let n = f.rows();
    let row = |p: i64| (p.unsigned_abs() as usize).clamp(1, n.max(1)) - 1;
    let mut k = 0;
    while k < n {
        let width = if pivots[k] < 0 && k + 1 < n { 2 } else { 1 };
        swap_rows(b, k + width - 1, row(pivots[k]));
        for c in 0..b.columns() {
            for i in k + width..n {
                for s in k..k + width {
                    subtract(b, i, c, f.get(i, s) * b.get(s, c));
                }
            }
            if width == 1 {
                b.set(k, c, b.get(k, c).over(f.get(k, k)));
            } else {
                let q = f.get(k + 1, k);
                let (p, r) = (f.get(k, k) / q, f.get(k + 1, k + 1) / q);
                let turned = kind.turned(q) / q;
                let det = q * (p * r - turned);
                let (x, y) = (b.get(k, c), b.get(k + 1, c));
                b.set(k, c, (r * x - turned * y) / det);
                b.set(k + 1, c, (p * y - x) / det);
            }
        }
        k += width;
    }
    let mut end = n;
    while end > 0 {
        let width = if pivots[end - 1] < 0 && end > 1 { 2 } else { 1 };
        let start = end - width;
        for c in 0..b.columns() {
            for s in start..end {
                for i in end..n {
                    subtract(b, s, c, kind.turned(f.get(i, s)) * b.get(i, c));
                }
            }
        }
        swap_rows(b, end - 1, row(pivots[end - 1]));
        end = start;
    }
}

fn swap_rows<T: Number>(b: &mut ViewMut<T>, i: usize, j: usize) {
    if i != j {
        (0..b.columns()).for_each(|c| b.column(c).swap(i, j));
    }
}

#[cfg(test)]
mod tests {
    use super::super::dense::number::{Factor, set_product};
    use super::super::dense::view::Matrix;
    use super::*;
    use num_complex::Complex64 as C;

    #[test]
    fn factors_solve_what_they_were_made_of() {
        for n in [1usize, 2, 5, 9] {
            for hermitian in [false, true] {
                let kind = Kind { hermitian };
                let at = |i: usize, j: usize| {
                    C::new(
                        ((i * 7 + j * 5) % 11) as f64 - 5.0,
                        ((i * 3 + j) % 5) as f64 - 2.0,
                    )
                };
                let a = Matrix::from_fn(n, n, |i, j| match (i == j, i > j) {
                    (true, _) if i % 2 == 0 => kind.diagonal(C::new(0.01, 0.02)),
                    (true, _) => kind.diagonal(at(i, i)),
                    (_, true) => at(i, j),
                    _ => kind.turned(at(j, i)),
                });
                let x = Matrix::from_fn(n, 2, |i, j| C::new(i as f64 + 1.0, j as f64));
                let (mut f, mut pivots) = (a.clone(), vec![0; n]);
                assert_eq!(factor(&mut f.view_mut(), &mut pivots, kind), 0);
                let mut b = x.clone();
                set_product(
                    Factor::Plain(a.view()),
                    Factor::Plain(x.view()),
                    b.view_mut(),
                );
                solve(f.view(), &pivots, &mut b.view_mut(), kind);
                let worst = b
                    .data
                    .iter()
                    .zip(&x.data)
                    .map(|(p, q)| (p - q).norm())
                    .fold(0.0, f64::max);
                assert!(worst < 1e-10, "{n} {hermitian}: {worst}");
            }
        }
    }
}
