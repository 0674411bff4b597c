//! Factorisations `L D L^T` of symmetric or Hermitian matrices that are not definite, D having blocks of one or two rows.
//!
//! Source: Bunch and Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems" (1977),
//! with pivots as LAPACK numbers them: a row from 1, negative for both rows of a block of two.

use super::dense::{Matrix, ONE, ZERO};
use num_complex::Complex64 as C;

/// How the upper triangle follows from the lower one.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Conjugated, on a real diagonal.
    pub hermitian: bool,
}

impl Kind {
    fn turned(self, v: C) -> C {
        if self.hermitian { v.conj() } else { v }
    }

    fn diagonal(self, v: C) -> C {
        if self.hermitian { C::new(v.re, 0.0) } else { v }
    }
}

fn size(c: C) -> f64 {
    c.re.abs() + c.im.abs()
}

/// The factors in the lower triangle, the pivots, and the first block that is zero, from 1.
pub struct Factors {
    /// L below the blocks of D.
    pub matrix: Matrix,
    /// LAPACK's numbers.
    pub pivots: Vec<i64>,
    /// 0: none is zero.
    pub info: i64,
}

/// Factorises by the lower triangle of `a`.
#[must_use]
pub fn factor(mut a: Matrix, kind: Kind) -> Factors {
    let n = a.rows;
    let (mut pivots, mut info) = (vec![0; n], 0);
    let mut k = 0;
    while k < n {
        a[(k, k)] = kind.diagonal(a[(k, k)]);
        let Some((p, width)) = pivot(&a, k) else {
            if info == 0 {
                info = k as i64 + 1;
            }
            pivots[k] = k as i64 + 1;
            k += 1;
            continue;
        };
        exchange(&mut a, k, k + width - 1, p, kind);
        if width == 1 {
            eliminate_one(&mut a, k, kind);
            pivots[k] = p as i64 + 1;
        } else {
            eliminate_two(&mut a, k, kind);
            pivots[k] = -(p as i64 + 1);
            pivots[k + 1] = pivots[k];
        }
        k += width;
    }
    let matrix = Matrix::from_fn(n, n, |i, j| if j <= i { a[(i, j)] } else { ZERO });
    Factors {
        matrix,
        pivots,
        info,
    }
}

/// The row to exchange, and whether a block has one row or two; nothing where all is zero.
fn pivot(a: &Matrix, k: usize) -> Option<(usize, usize)> {
    let n = a.rows;
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let here = size(a[(k, k)]);
    let (mut at, mut column) = (k, 0.0);
    for i in k + 1..n {
        if size(a[(i, k)]) > column {
            (at, column) = (i, size(a[(i, k)]));
        }
    }
    if !(here.max(column) > 0.0) {
        return None;
    }
    if here >= alpha * column {
        return Some((k, 1));
    }
    let left = (k..at).map(|j| size(a[(at, j)]));
    let below = (at + 1..n).map(|i| size(a[(i, at)]));
    let row = left.chain(below).fold(0.0, f64::max);
    Some(if here >= alpha * column * (column / row) {
        (k, 1)
    } else if size(a[(at, at)]) >= alpha * row {
        (at, 1)
    } else {
        (at, 2)
    })
}

/// Exchanges rows and columns `from` and `p` of what is left of the matrix from column `k` on.
fn exchange(a: &mut Matrix, k: usize, from: usize, p: usize, kind: Kind) {
    if p == from {
        return;
    }
    let n = a.columns;
    let mut swap = |x: (usize, usize), y: (usize, usize)| a.data.swap(x.0 * n + x.1, y.0 * n + y.1);
    (p + 1..n).for_each(|i| swap((i, from), (i, p)));
    (from + 1..p).for_each(|i| swap((i, from), (p, i)));
    swap((from, from), (p, p));
    if from > k {
        swap((from, k), (p, k));
    }
    for i in from + 1..p {
        a[(i, from)] = kind.turned(a[(i, from)]);
        a[(p, i)] = kind.turned(a[(p, i)]);
    }
    a[(p, from)] = kind.turned(a[(p, from)]);
}

fn eliminate_one(a: &mut Matrix, k: usize, kind: Kind) {
    let by = ONE / a[(k, k)];
    for j in k + 1..a.rows {
        let f = kind.turned(a[(j, k)]) * by;
        for i in j..a.rows {
            let x = a[(i, k)];
            a[(i, j)] -= x * f;
        }
        a[(j, j)] = kind.diagonal(a[(j, j)]);
    }
    for i in k + 1..a.rows {
        a[(i, k)] *= by;
    }
}

fn eliminate_two(a: &mut Matrix, k: usize, kind: Kind) {
    let (p, q) = (a[(k, k)], a[(k + 1, k)]);
    let r = kind.diagonal(a[(k + 1, k + 1)]);
    a[(k + 1, k + 1)] = r;
    // Divided by the element beside the diagonal, which is large.
    let (p, r, turned) = (p / q, r / q, kind.turned(q) / q);
    let det = q * (p * r - turned);
    let quotients: Vec<(C, C)> = (k + 2..a.rows)
        .map(|j| {
            let (x, y) = (a[(j, k)], a[(j, k + 1)]);
            ((x * r - y) / det, (y * p - x * turned) / det)
        })
        .collect();
    for (j, &(first, second)) in (k + 2..).zip(&quotients) {
        let (f, s) = (kind.turned(first), kind.turned(second));
        for i in j..a.rows {
            let change = a[(i, k)] * f + a[(i, k + 1)] * s;
            a[(i, j)] -= change;
        }
        a[(j, j)] = kind.diagonal(a[(j, j)]);
    }
    for (j, (first, second)) in (k + 2..).zip(quotients) {
        (a[(j, k)], a[(j, k + 1)]) = (first, second);
    }
}

/// Solves `A X = B` in place of `b`, by the factors of `A`. Pivots lie within the matrix.
pub fn solve(f: &Matrix, pivots: &[i64], b: &mut Matrix, kind: Kind) {
    let n = f.rows;
    let row = |p: i64| (p.unsigned_abs() as usize).clamp(1, n.max(1)) - 1;
    let mut k = 0;
    while k < n {
        let width = if pivots[k] < 0 && k + 1 < n { 2 } else { 1 };
        swap_rows(b, k + width - 1, row(pivots[k]));
        for c in 0..b.columns {
            for i in k + width..n {
                for s in k..k + width {
                    let change = f[(i, s)] * b[(s, c)];
                    b[(i, c)] -= change;
                }
            }
            if width == 1 {
                b[(k, c)] /= f[(k, k)];
            } else {
                let q = f[(k + 1, k)];
                let (p, r, turned) = (f[(k, k)] / q, f[(k + 1, k + 1)] / q, kind.turned(q) / q);
                let det = q * (p * r - turned);
                let (x, y) = (b[(k, c)], b[(k + 1, c)]);
                b[(k, c)] = (r * x - turned * y) / det;
                b[(k + 1, c)] = (p * y - x) / det;
            }
        }
        k += width;
    }
    let mut end = n;
    while end > 0 {
        let width = if pivots[end - 1] < 0 && end > 1 { 2 } else { 1 };
        let start = end - width;
        for c in 0..b.columns {
            for s in start..end {
                for i in end..n {
                    let change = kind.turned(f[(i, s)]) * b[(i, c)];
                    b[(s, c)] -= change;
                }
            }
        }
        swap_rows(b, end - 1, row(pivots[end - 1]));
        end = start;
    }
}

fn swap_rows(b: &mut Matrix, i: usize, j: usize) {
    if i != j {
        (0..b.columns).for_each(|c| b.data.swap(i * b.columns + c, j * b.columns + c));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                let f = factor(a.clone(), kind);
                assert_eq!(f.info, 0);
                let mut b = a.times(&x);
                solve(&f.matrix, &f.pivots, &mut b, kind);
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
