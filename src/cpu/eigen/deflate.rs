//! Eigenvalues that have converged somewhere in the last rows of a Hessenberg matrix, found by the Schur form of a window.
//!
//! Source: K. Braman, R. Byers and R. Mathias, "The multishift QR algorithm. Part II: aggressive early deflation" (2002);
//! for exchanges of blocks, Z. Bai and J. Demmel, "On swapping diagonal blocks in real Schur form" (1993).

use super::sweep::{Form, small_schur};
use super::{Spectral, hessenberg, reflection, vectors};
use crate::cpu::dense::number::{Factor, Number, Real, set_product};
use crate::cpu::dense::reflect;
use crate::cpu::dense::view::{Matrix, ViewMut};
use num_complex::Complex;
use num_traits::{Float, Zero};

/// What a window gave.
pub struct Found<R> {
    /// How many rows at the end are done.
    pub done: usize,
    /// Eigenvalues of the others, for shifts.
    pub shifts: Vec<Complex<R>>,
}

/// Looks at the last `wide` rows of `low..high`.
pub fn deflate<T: Spectral>(
    form: &mut Form<T>,
    low: usize,
    high: usize,
    wide: usize,
) -> Option<Found<T::Size>> {
    let at = high - wide;
    let mut window = Matrix::filled(wide, wide, T::zero());
    window
        .view_mut()
        .copy(form.h.view().block(at, at, wide, wide));
    let (mut t, mut v) = small_schur(&window)?;
    let spike = if at == low {
        T::zero()
    } else {
        form.h.get(at, at - 1)
    };
    let kept = sort(&mut t, &mut v, spike.abs(), form.h.rows());
    let shifts = vectors::values(&t.view().block(0, 0, kept, kept));
    if kept < wide || spike.is_zero() {
        if kept > 1 && !spike.is_zero() {
            to_hessenberg(&mut t, &mut v, kept);
        }
        if at > low {
            let first = if kept == 0 {
                T::zero()
            } else {
                spike * v[(0, 0)].conj()
            };
            form.h.set(at, at - 1, first);
        }
        form.h.block(at, at, wide, wide).copy(t.view());
        form.spread_within(at, &v, low, high);
    }
    Some(Found {
        done: wide - kept,
        shifts,
    })
}

/// Moves what has converged to the end; gives how many rows have not.
fn sort<T: Number>(t: &mut Matrix<T>, v: &mut Matrix<T>, spike: T::Size, n: usize) -> usize {
    let eps = T::Size::epsilon();
    let least = T::Size::min_positive_value() * T::Size::near(n as f64) / eps;
    let (mut kept, mut place) = (t.rows, 0);
    while place < kept {
        let k = kept - 1;
        let two = k > 0 && !t[(k, k - 1)].is_zero();
        let mut size = t[(k, k)].sum();
        let mut stays = v[(0, k)].sum();
        if two {
            size += Float::sqrt(t[(k, k - 1)].sum()) * Float::sqrt(t[(k - 1, k)].sum());
            stays = Float::max(stays, v[(0, k - 1)].sum());
        }
        let size = if size.is_zero() { spike } else { size };
        let width = if two { 2 } else { 1 };
        if spike * stays <= Float::max(least, eps * size) {
            kept -= width;
            continue;
        }
        if !raise(t, v, kept - width, width, place) {
            break;
        }
        place += width;
    }
    kept
}

/// Moves the block at `from` up to `place`; false if an exchange on the way would cost digits.
fn raise<T: Number>(
    t: &mut Matrix<T>,
    v: &mut Matrix<T>,
    mut from: usize,
    width: usize,
    place: usize,
) -> bool {
    while from > place {
        let two = from > 1 && !t[(from - 1, from - 2)].is_zero();
        let above = if two { 2 } else { 1 };
        if !exchange(t, v, from - above, above, width) {
            return false;
        }
        from -= above;
    }
    true
}

/// Exchanges the blocks of `p` and `q` rows that begin at `at`.
fn exchange<T: Number>(
    t: &mut Matrix<T>,
    v: &mut Matrix<T>,
    at: usize,
    p: usize,
    q: usize,
) -> bool {
    let n = p + q;
    let Some(x) = sylvester(t, at, p, q) else {
        return false;
    };
    // The columns (-X, 1) span what belongs to the second block.
    let mut span = [[T::zero(); 4]; 2];
    for (j, column) in span.iter_mut().enumerate().take(q) {
        (0..p).for_each(|i| column[i] = -x[i + j * p]);
        column[p + j] = T::one();
    }
    let mut small = Matrix::from_fn(n, n, |i, j| t[(at + i, at + j)]);
    let size = small
        .data
        .iter()
        .map(|v| v.sum())
        .fold(T::Size::zero(), Float::max);
    let mut turns: Vec<(usize, Vec<T>, T::Size)> = Vec::new();
    for j in 0..q {
        let mut w = span[j][j..n].to_vec();
        let Some(scale) = reflection(&mut w) else {
            continue;
        };
        if j == 0 && q == 2 {
            turn_left(&mut span[1][..n], 0, &w, scale);
        }
        turns.push((j, w, scale));
    }
    for (j, w, scale) in &turns {
        turn_both(&mut small, *j, w, *scale, 0..n, n);
    }
    let left = (q..n).flat_map(|i| (0..q).map(move |j| (i, j)));
    let wrong = left
        .map(|at| small[at].sum())
        .fold(T::Size::zero(), Float::max);
    if !(wrong <= T::Size::near(20.0) * T::Size::epsilon() * size) {
        return false;
    }
    let all = t.rows;
    for (j, w, scale) in &turns {
        turn_both(t, at + j, w, *scale, at..all, at + n);
        let mut part = v.view_mut();
        reflect::turn_columns(&mut part.block(0, at + j, all, w.len()), w, *scale);
    }
    for i in q..n {
        (0..q).for_each(|j| t[(at + i, at + j)] = T::zero());
    }
    true
}

/// `x` with `A x - x B = C`, where the blocks on the diagonal are A and B, and C beside them; column by column.
fn sylvester<T: Number>(t: &Matrix<T>, at: usize, p: usize, q: usize) -> Option<Vec<T>> {
    let n = p * q;
    let mut m = [[T::zero(); 5]; 4];
    for j in 0..q {
        for i in 0..p {
            let row = &mut m[i + j * p];
            (0..p).for_each(|k| row[k + j * p] += t[(at + i, at + k)]);
            (0..q).for_each(|k| row[i + k * p] -= t[(at + p + k, at + p + j)]);
            row[4] = t[(at + i, at + p + j)];
        }
    }
    for k in 0..n {
        let best = (k..n).fold(k, |b, i| if m[i][k].sum() > m[b][k].sum() { i } else { b });
        m.swap(k, best);
        if m[k][k].is_zero() {
            return None;
        }
        for i in k + 1..n {
            let by = m[i][k].over(m[k][k]);
            for c in k..5 {
                let change = by * m[k][c];
                m[i][c] -= change;
            }
        }
    }
    let mut x = vec![T::zero(); n];
    for k in (0..n).rev() {
        let rest = (k + 1..n).fold(m[k][4], |s, c| s - m[k][c] * x[c]);
        x[k] = rest.over(m[k][k]);
    }
    x.iter().all(|v| v.is_finite()).then_some(x)
}

/// `x -= scale w w' x` from row `at` on.
fn turn_left<T: Number>(x: &mut [T], at: usize, w: &[T], scale: T::Size) {
    let part = &mut x[at..at + w.len()];
    let sum = part
        .iter()
        .zip(w)
        .fold(T::zero(), |s, (&x, &w)| s + w.conj() * x)
        .times(scale);
    part.iter_mut().zip(w).for_each(|(x, &w)| *x -= w * sum);
}

/// Columns from the left, and the first rows from the right.
fn turn_both<T: Number>(
    m: &mut Matrix<T>,
    at: usize,
    w: &[T],
    scale: T::Size,
    columns: std::ops::Range<usize>,
    rows: usize,
) {
    let high = m.rows;
    for j in columns {
        turn_left(&mut m.data[j * high..(j + 1) * high], at, w, scale);
    }
    let mut all = m.view_mut();
    reflect::turn_columns(&mut all.block(0, at, rows, w.len()), w, scale);
}

/// Brings the first rows back to Hessenberg form, so that the spike beside them is one number again.
fn to_hessenberg<T: Number>(t: &mut Matrix<T>, v: &mut Matrix<T>, kept: usize) {
    let wide = t.rows;
    let mut w: Vec<T> = (0..kept).map(|j| v[(0, j)].conj()).collect();
    if let Some(scale) = reflection(&mut w) {
        turn_both(t, 0, &w, scale, 0..wide, kept);
        reflect::turn_columns(&mut v.view_mut().block(0, 0, wide, kept), &w, scale);
    }
    let mut all = t.view_mut();
    let taus = hessenberg::reduce(&mut all.block(0, 0, kept, kept));
    let inner = kept - 1;
    let below = Matrix::from_fn(inner, inner, |i, j| all.get(i + 1, j));
    let rest = wide - kept;
    reflect::apply(
        below.view(),
        &taus,
        true,
        &mut all.block(1, kept, inner, rest),
    );
    clear(&mut all.block(0, 0, kept, kept));
    let mut q = Matrix::filled(inner, inner, T::zero());
    reflect::product(below.view(), &taus, &mut q.view_mut());
    let mut to = v.view_mut();
    let mut part = to.block(0, 1, wide, inner);
    let mut copy = Matrix::filled(wide, inner, T::zero());
    copy.view_mut().copy(part.view());
    set_product(
        Factor::Plain(copy.view()),
        Factor::Plain(q.view()),
        part.again(),
    );
}

/// Zeroes below the first diagonal under the main one.
pub fn clear<T: Number>(h: &mut ViewMut<T>) {
    let n = h.rows();
    (0..n).for_each(|j| h.column(j)[(j + 2).min(n)..].fill(T::zero()));
}
