//! Matrices brought to upper bidiagonal form by reflections from both sides, a block of columns at a time.
//!
//! Source: J. Dongarra, S. Hammarling and D. Sorensen, LAPACK working note 2 (1987).

use super::number::{Factor, Number, add_product};
use super::reflect;
use super::vector;
use super::view::{Matrix, View, ViewMut};

/// Columns of a block: few, as what it changes of its own columns is slower than the product behind it.
const BLOCK: usize = 8;

/// A bidiagonal matrix, and the reflections that lead to it.
pub struct Bidiagonal<T: Number> {
    /// The diagonal.
    pub diagonal: Vec<T::Size>,
    /// Above the diagonal.
    pub above: Vec<T::Size>,
    /// The factors of the reflections from the left, whose vectors stand below the diagonal.
    pub left: Vec<T>,
    /// Those of the reflections from the right.
    pub right: Vec<T>,
    /// Their vectors, which begin one below the diagonal.
    pub vectors: Matrix<T>,
}

/// `A - V Y' - X U'`: a matrix and what a block of reflections changes of it.
struct Block<'a, T> {
    a: ViewMut<'a, T>,
    u: ViewMut<'a, T>,
    x: Matrix<T>,
    y: Matrix<T>,
}

/// Reduces a matrix of at least as many rows as columns; vectors of reflections take its place.
pub fn reduce<T: Number>(a: &mut ViewMut<T>) -> Bidiagonal<T> {
    let (m, n) = (a.rows(), a.columns());
    assert!(m >= n);
    let zero = T::Size::default();
    let mut made = Bidiagonal {
        diagonal: vec![zero; n],
        above: vec![zero; n.saturating_sub(1)],
        left: vec![T::zero(); n],
        right: vec![T::zero(); n.saturating_sub(1)],
        vectors: Matrix::filled(n, n, T::zero()),
    };
    let mut vectors = std::mem::replace(&mut made.vectors, Matrix::filled(0, 0, T::zero()));
    let mut j = 0;
    while j < n {
        let wide = if n - j <= BLOCK + BLOCK / 2 {
            n - j
        } else {
            BLOCK
        };
        let mut us = vectors.view_mut();
        let mut block = Block {
            a: a.block(j, j, m - j, n - j),
            u: us.block(j, j, n - j, n - j),
            x: Matrix::filled(m - j, wide, T::zero()),
            y: Matrix::filled(n - j, wide, T::zero()),
        };
        for i in 0..wide {
            block.column(i, &mut made, j);
            if i + 1 < n - j {
                block.row(i, &mut made, j);
            }
        }
        block.finish(wide, &made.diagonal[j..j + wide]);
        j += wide;
    }
    made.vectors = vectors;
    made
}

/// The conjugates of the first elements of a row, negated.
fn turned<T: Number>(m: View<T>, row: usize, count: usize) -> Vec<T> {
    (0..count).map(|k| -m.get(row, k).conj()).collect()
}

/// `y -= A (B' x)`.
fn subtract<T: Number>(y: &mut [T], a: View<T>, b: View<T>, x: &[T]) {
    let mut sums = vec![T::zero(); b.columns()];
    vector::adjoint_times(&mut sums, b, x);
    sums.iter_mut().for_each(|s| *s = -*s);
    vector::add_times(y, a, &sums);
}

impl<T: Number> Block<'_, T> {
    /// Column `i` becomes a multiple of a unit vector; column `i` of Y says what that does to the others.
    fn column(&mut self, i: usize, made: &mut Bidiagonal<T>, at: usize) {
        let (m, n) = (self.a.rows(), self.a.columns());
        let (done, mut rest) = self.a.again().split_columns(i);
        let column = &mut rest.column(0)[i..];
        let v = done.view().block(i, 0, m - i, i);
        vector::add_times(column, v, &turned(self.y.view(), i, i));
        let x = self.x.view().block(i, 0, m - i, i);
        vector::add_times(column, x, &turned(self.u.view(), i, i));
        let tau = reflect::make(column);
        made.left[at + i] = tau;
        made.diagonal[at + i] = column[0].re();
        column[0] = T::one();
        if i + 1 == n {
            return;
        }
        let below = n - i - 1;
        let all = self.a.view();
        let v = &all.column(i)[i..];
        let (before, mut rest) = self.y.view_mut().split_columns(i);
        let y = &mut rest.column(0)[i + 1..];
        vector::adjoint_times(y, all.block(i, i + 1, m - i, below), v);
        subtract(
            y,
            before.view().block(i + 1, 0, below, i),
            all.block(i, 0, m - i, i),
            v,
        );
        subtract(
            y,
            self.u.view().block(i + 1, 0, below, i),
            self.x.view().block(i, 0, m - i, i),
            v,
        );
        y.iter_mut().for_each(|v| *v *= tau);
    }

    /// Row `i` behind the diagonal becomes a multiple of a unit vector; column `i` of X says what that does to the others.
    fn row(&mut self, i: usize, made: &mut Bidiagonal<T>, at: usize) {
        let (m, n) = (self.a.rows(), self.a.columns());
        let (right, down) = (n - i - 1, m - i - 1);
        let all = self.a.view();
        let (before, mut rest) = self.u.again().split_columns(i);
        let u = &mut rest.column(0)[i + 1..];
        for (k, u) in u.iter_mut().enumerate() {
            *u = all.get(i, i + 1 + k).conj();
        }
        let y = self.y.view().block(i + 1, 0, right, i + 1);
        vector::add_times(u, y, &turned(all, i, i + 1));
        let us = before.view().block(i + 1, 0, right, i);
        vector::add_times(u, us, &turned(self.x.view(), i, i));
        let tau = reflect::make(u);
        made.right[at + i] = tau;
        made.above[at + i] = u[0].re();
        u[0] = T::one();
        let (done, mut rest) = self.x.view_mut().split_columns(i);
        let x = &mut rest.column(0)[i + 1..];
        vector::add_times(x, all.block(i + 1, i + 1, down, right), u);
        subtract(x, all.block(i + 1, 0, down, i + 1), y, u);
        subtract(x, done.view().block(i + 1, 0, down, i), us, u);
        x.iter_mut().for_each(|v| *v *= tau);
    }

    /// Changes what stands behind the block.
    fn finish(&mut self, wide: usize, diagonal: &[T::Size]) {
        let (m, n) = (self.a.rows(), self.a.columns());
        if wide < n {
            let (down, right) = (m - wide, n - wide);
            let mut left = Matrix::filled(down, 2 * wide, T::zero());
            let mut other = Matrix::filled(right, 2 * wide, T::zero());
            left.view_mut()
                .block(0, 0, down, wide)
                .copy(self.a.view().block(wide, 0, down, wide));
            left.view_mut()
                .block(0, wide, down, wide)
                .copy(self.x.view().block(wide, 0, down, wide));
            other
                .view_mut()
                .block(0, 0, right, wide)
                .copy(self.y.view().block(wide, 0, right, wide));
            other
                .view_mut()
                .block(0, wide, right, wide)
                .copy(self.u.view().block(wide, 0, right, wide));
            let to = self.a.block(wide, wide, down, right);
            add_product(
                -1,
                Factor::Plain(left.view()),
                Factor::Adjoint(other.view()),
                to,
            );
        }
        for (i, &d) in diagonal.iter().enumerate() {
            self.a.set(i, i, T::real(d));
        }
    }
}
