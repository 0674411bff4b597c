//! Hermitian matrices brought to tridiagonal form by reflections, a block of columns at a time.
//!
//! Source: J. Dongarra, S. Hammarling and D. Sorensen, "Block reduction of matrices to condensed forms for eigenvalue
//! computations", LAPACK working note 2 (1987).

use super::cholesky::add_lower;
use super::number::{Number, Real};
use super::reflect;
use super::vector;
use super::view::{Matrix, ViewMut};
use num_traits::One;

/// Columns of a block: few, as what it changes of its own columns is slower than the product behind it.
const BLOCK: usize = 8;

/// A tridiagonal matrix, and the reflections that lead to it.
pub struct Tridiagonal<T: Number> {
    /// The diagonal.
    pub diagonal: Vec<T::Size>,
    /// Beside the diagonal.
    pub beside: Vec<T::Size>,
    /// The factors of the reflections, whose vectors begin one below the diagonal.
    pub taus: Vec<T>,
}

/// Reduces the lower triangle of a Hermitian matrix; vectors of reflections take its place.
pub fn reduce<T: Number>(a: &mut ViewMut<T>) -> Tridiagonal<T> {
    let n = a.rows();
    let mut made = Tridiagonal {
        diagonal: vec![T::Size::default(); n],
        beside: vec![T::Size::default(); n.saturating_sub(1)],
        taus: vec![T::zero(); n.saturating_sub(1)],
    };
    let mut j = 0;
    while j < n {
        // What is left of few columns is one block, as there is nothing behind it.
        let wide = if n - j <= BLOCK + BLOCK / 2 {
            n - j
        } else {
            BLOCK
        };
        panel(&mut a.block(j, j, n - j, n - j), wide, &mut made, j);
        j += wide;
    }
    made
}

/// The first columns of a block, and what they change of the others.
fn panel<T: Number>(a: &mut ViewMut<T>, wide: usize, made: &mut Tridiagonal<T>, at: usize) {
    let n = a.rows();
    let mut w = Matrix::filled(n, wide, T::zero());
    for i in 0..wide {
        let (done, mut rest) = a.again().split_columns(i);
        let column = &mut rest.column(0)[i..];
        let (v, ws) = (
            done.view().block(i, 0, n - i, i),
            w.view().block(i, 0, n - i, i),
        );
        let of =
            |row: super::view::View<T>| (0..i).map(|k| -row.get(0, k).conj()).collect::<Vec<T>>();
        vector::add_times(column, v, &of(ws));
        vector::add_times(column, ws, &of(v));
        column[0] = T::real(column[0].re());
        made.diagonal[at + i] = column[0].re();
        if i + 1 == n {
            break;
        }
        let tau = reflect::make(&mut column[1..]);
        made.beside[at + i] = column[1].re();
        made.taus[at + i] = tau;
        column[1] = T::one();
        other_factor(&mut a.again(), i, tau, &mut w);
    }
    let last = wide.min(n - 1);
    if wide < n {
        let below = n - wide;
        // V W' + W V' is one product.
        let v = a.view().block(wide, 0, below, wide);
        let ws = w.view().block(wide, 0, below, wide);
        let mut x = Matrix::filled(below, 2 * wide, T::zero());
        let mut y = x.clone();
        x.view_mut().block(0, 0, below, wide).copy(v);
        x.view_mut().block(0, wide, below, wide).copy(ws);
        y.view_mut().block(0, 0, below, wide).copy(ws);
        y.view_mut().block(0, wide, below, wide).copy(v);
        add_lower(
            -1,
            x.view(),
            y.view(),
            &mut a.block(wide, wide, below, below),
        );
    }
    for i in 0..last {
        a.set(i + 1, i, T::real(made.beside[at + i]));
    }
}

/// Column `i` of the matrix W of `A - V W' - W V'`.
fn other_factor<T: Number>(a: &mut ViewMut<T>, i: usize, tau: T, w: &mut Matrix<T>) {
    let (n, below) = (a.rows(), a.rows() - i - 1);
    let all = a.view();
    let x = &all.column(i)[i + 1..];
    let v = all.block(i + 1, 0, below, i);
    let mut w = w.view_mut();
    let (before, mut rest) = w.again().split_columns(i);
    let ws = before.view().block(i + 1, 0, below, i);
    let y = &mut rest.column(0)[i + 1..n];
    vector::hermitian_times(y, all.block(i + 1, i + 1, below, below), x);
    let mut sums = vec![T::zero(); i];
    for (first, second) in [(ws, v), (v, ws)] {
        vector::adjoint_times(&mut sums, first, x);
        sums.iter_mut().for_each(|s| *s = -*s);
        vector::add_times(y, second, &sums);
    }
    y.iter_mut().for_each(|v| *v *= tau);
    let half = T::Size::one() / T::Size::near(2.0);
    let by = -(tau * vector::dot(y, x)).times(half);
    vector::add(y, by, x);
}
