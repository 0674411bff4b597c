//! Matrices brought to Hessenberg form by reflections, a block of columns at a time.
//!
//! Source: G. Quintana-Ortí and R. van de Geijn, "Improving the performance of reduction to Hessenberg form" (2006).

use crate::cpu::dense::number::{Factor, Number, add_product, set_product};
use crate::cpu::dense::view::{Matrix, ViewMut};
use crate::cpu::dense::{reflect, vector};

/// Columns of a block.
const BLOCK: usize = 32;

/// Reduces a square matrix; vectors of reflections take the place below. Gives their factors.
pub fn reduce<T: Number>(a: &mut ViewMut<T>) -> Vec<T> {
    let n = a.rows();
    let mut taus = vec![T::zero(); n.saturating_sub(1)];
    let mut k = 0;
    while k + 2 < n {
        let wide = BLOCK.min(n - 2 - k);
        block(a, k, wide, &mut taus[k..k + wide]);
        k += wide;
    }
    taus
}

/// Columns `k..k + wide`, and what they change of the others.
fn block<T: Number>(a: &mut ViewMut<T>, k: usize, wide: usize, taus: &mut [T]) {
    let n = a.rows();
    let below = n - k - 1;
    let mut y = Matrix::filled(n, wide, T::zero());
    let mut t = Matrix::filled(wide, wide, T::zero());
    let mut v = Matrix::filled(below, wide, T::zero());
    for i in 0..wide {
        let mut column = a.view().column(k + i)[k + 1..].to_vec();
        bring_up_to_date(&mut column, i, &y, &v, &t, k);
        let tau = reflect::make(&mut column[i..]);
        taus[i] = tau;
        a.column(k + i)[k + 1..].copy_from_slice(&column);
        v.view_mut().column(i)[i..].copy_from_slice(&column[i..]);
        v[(i, i)] = T::one();
        // Y = A V T, column by column.
        let all = v.view();
        let own = &all.column(i)[i..];
        let mut sums = vec![T::zero(); i];
        vector::adjoint_times(&mut sums, all.block(i, 0, below - i, i), own);
        let mut fresh = vec![T::zero(); below];
        vector::add_times(
            &mut fresh,
            a.view().block(k + 1, k + 1 + i, below, below - i),
            own,
        );
        let back: Vec<T> = sums.iter().map(|&s| -s).collect();
        vector::add_times(&mut fresh, y.view().block(k + 1, 0, below, i), &back);
        fresh.iter_mut().for_each(|v| *v *= tau);
        y.view_mut().column(i)[k + 1..].copy_from_slice(&fresh);
        for r in 0..i {
            let sum = (r..i).fold(T::zero(), |s, c| s + t[(r, c)] * sums[c]);
            t[(r, i)] = -tau * sum;
        }
        t[(i, i)] = tau;
    }
    // The first rows of Y in one go.
    let mut part = Matrix::filled(k + 1, wide, T::zero());
    let first = a.view().block(0, k + 1, k + 1, below);
    set_product(
        Factor::Plain(first),
        Factor::Plain(v.view()),
        part.view_mut(),
    );
    let to = Factor::Plain(t.view());
    set_product(
        Factor::Plain(part.view()),
        to,
        y.view_mut().block(0, 0, k + 1, wide),
    );
    let rest = below + 1 - wide;
    let behind = Factor::Adjoint(v.view().block(wide - 1, 0, rest, wide));
    add_product(
        -1,
        Factor::Plain(y.view()),
        behind,
        a.block(0, k + wide, n, rest),
    );
    if wide > 1 {
        let inside = Factor::Adjoint(v.view().block(0, 0, wide - 1, wide));
        let above = Factor::Plain(y.view().block(0, 0, k + 1, wide));
        add_product(-1, above, inside, a.block(0, k + 1, k + 1, wide - 1));
    }
    reflect::from_left(
        v.view(),
        t.view(),
        true,
        a.block(k + 1, k + wide, below, rest),
    );
}

/// A column as the reflections of its block before it have left it.
fn bring_up_to_date<T: Number>(
    column: &mut [T],
    i: usize,
    y: &Matrix<T>,
    v: &Matrix<T>,
    t: &Matrix<T>,
    k: usize,
) {
    if i == 0 {
        return;
    }
    let below = column.len();
    let row: Vec<T> = (0..i).map(|c| -v[(i - 1, c)].conj()).collect();
    vector::add_times(column, y.view().block(k + 1, 0, below, i), &row);
    let before = v.view().block(0, 0, below, i);
    let mut sums = vec![T::zero(); i];
    vector::adjoint_times(&mut sums, before, column);
    let turned: Vec<T> = (0..i)
        .map(|r| (0..=r).fold(T::zero(), |s, c| s - t[(c, r)].conj() * sums[c]))
        .collect();
    vector::add_times(column, before, &turned);
}
