//! QR steps with many shifts: a chain of small bulges goes down the diagonal, a window at a time, and what a window does is
//! brought to the rest of the matrix by products.
//!
//! Source: K. Braman, R. Byers and R. Mathias, "The multishift QR algorithm. Part I" (2002).

use super::Grid;
use super::reflection;
use crate::cpu::dense::number::{Factor, Number, set_product};
use crate::cpu::dense::reflect;
use crate::cpu::dense::view::{Matrix, ViewMut};

/// Sum and product of two shifts.
pub type Pair<T> = (T, T);

/// A Schur form in the making: the matrix, and the basis if it is wanted.
pub struct Form<'a, T> {
    /// A Hessenberg matrix.
    pub h: ViewMut<'a, T>,
    /// What has been done to it, in columns.
    pub basis: Option<ViewMut<'a, T>>,
}

impl<T: Number> Form<'_, T> {
    /// Brings what `u` did to the window of rows and columns from `at` on to the rest of the matrix and to the basis.
    pub fn spread(&mut self, at: usize, u: &Matrix<T>) {
        let (n, wide) = (self.h.rows(), u.rows);
        let whole = self.basis.is_some();
        let right = n - at - wide;
        if whole && right > 0 {
            let mut part = self.h.block(at, at + wide, wide, right);
            let copy = copied(&part);
            set_product(
                Factor::Adjoint(u.view()),
                Factor::Plain(copy.view()),
                part.again(),
            );
        }
        let above = |part: &mut ViewMut<T>| {
            let copy = copied(part);
            set_product(
                Factor::Plain(copy.view()),
                Factor::Plain(u.view()),
                part.again(),
            );
        };
        if whole && at > 0 {
            above(&mut self.h.block(0, at, at, wide));
        }
        if let Some(q) = &mut self.basis {
            above(&mut q.block(0, at, n, wide));
        }
    }

    /// The same within `low..high` alone, where nothing else is wanted.
    pub fn spread_within(&mut self, at: usize, u: &Matrix<T>, low: usize, high: usize) {
        if self.basis.is_some() {
            return self.spread(at, u);
        }
        let wide = u.rows;
        let (right, above) = (high - at - wide, at - low);
        if right > 0 {
            let mut part = self.h.block(at, at + wide, wide, right);
            let copy = copied(&part);
            set_product(
                Factor::Adjoint(u.view()),
                Factor::Plain(copy.view()),
                part.again(),
            );
        }
        if above > 0 {
            let mut part = self.h.block(low, at, above, wide);
            let copy = copied(&part);
            set_product(
                Factor::Plain(copy.view()),
                Factor::Plain(u.view()),
                part.again(),
            );
        }
    }
}

fn copied<T: Number>(a: &ViewMut<T>) -> Matrix<T> {
    let mut m = Matrix::filled(a.rows(), a.columns(), T::zero());
    m.view_mut().copy(a.view());
    m
}

/// One step with all pairs of shifts on `low..high`.
pub fn sweep<T: Number>(form: &mut Form<T>, low: usize, high: usize, pairs: &[Pair<T>]) {
    let mut chain = Chain {
        // Before a bulge is there, its place is that of the row above the first.
        places: vec![low as isize - 1; pairs.len()],
        pairs,
        low,
        high,
    };
    let window = 6 * pairs.len() + 6;
    while let Some(first) = chain.first() {
        let at = first.max(low as isize) as usize;
        let end = (at + window).min(high);
        let mut local = copied(&form.h.block(at, at, end - at, end - at));
        let mut u = Matrix::filled(end - at, end - at, T::zero());
        u.view_mut().set_identity();
        chain.advance(&mut local.view_mut(), &mut u.view_mut(), at, end);
        form.h.block(at, at, end - at, end - at).copy(local.view());
        form.spread_within(at, &u, low, high);
    }
}

/// Bulges on their way.
struct Chain<'a, T> {
    /// The column that a bulge sticks out of; the first of the list is the lowest.
    places: Vec<isize>,
    pairs: &'a [Pair<T>],
    low: usize,
    high: usize,
}

impl<T: Number> Chain<'_, T> {
    /// The highest place of a bulge that has not left; nothing if all have.
    fn first(&self) -> Option<isize> {
        let last = self.high as isize - 2;
        self.places.iter().copied().filter(|&p| p < last).min()
    }

    /// Chases all bulges as far down as the window `at..end` allows, the lowest first.
    fn advance(&mut self, h: &mut ViewMut<T>, u: &mut ViewMut<T>, at: usize, end: usize) {
        let done = self.high as isize - 2;
        for b in 0..self.places.len() {
            loop {
                let p = self.places[b];
                let room = end == self.high || p + 4 < end as isize;
                let free = b == 0 || self.places[b - 1] >= done || p + 4 <= self.places[b - 1];
                if p >= done || !room || !free {
                    break;
                }
                self.step(h, u, b, at, end);
                self.places[b] += 1;
            }
        }
    }

    /// Moves a bulge down by one row.
    fn step(&self, h: &mut ViewMut<T>, u: &mut ViewMut<T>, b: usize, at: usize, end: usize) {
        let p = self.places[b];
        let row = (p + 1) as usize - at;
        let size = end - at;
        let width = 3.min(size - row);
        let fresh = p < self.low as isize;
        let mut x = [T::zero(); 3];
        if fresh {
            x = first_column(h, row, self.pairs[b], width);
        } else {
            x[..width].copy_from_slice(&h.view().column(row - 1)[row..row + width]);
        }
        let Some(scale) = reflection(&mut x[..width]) else {
            return;
        };
        let v = &x[..width];
        let from = if fresh { row } else { row - 1 };
        turn_rows(&mut h.block(row, from, width, size - from), v, scale);
        if !fresh {
            h.column(row - 1)[row + 1..row + width].fill(T::zero());
        }
        let above = (row + width + 1).min(size);
        reflect::turn_columns(&mut h.block(0, row, above, width), v, scale);
        reflect::turn_columns(&mut u.block(0, row, size, width), v, scale);
    }
}

/// The first elements of the first column of `(H - s) (H - t)`, but for a factor.
fn first_column<T: Number>(
    h: &ViewMut<T>,
    at: usize,
    (sum, product): Pair<T>,
    width: usize,
) -> [T; 3] {
    let (a, c) = (h.get(at, at), h.get(at + 1, at));
    let (b, d) = (h.get(at, at + 1), h.get(at + 1, at + 1));
    // All divided by the element below the diagonal, if that is not much smaller than the others.
    let size = a.sum() + c.sum() + sum.sum();
    if num_traits::Zero::is_zero(&size) {
        return [T::one(), T::zero(), T::zero()];
    }
    let by = T::real(num_traits::Float::recip(size));
    let (s, c) = (sum * by, c * by);
    let first = (a * by) * (a * by) + (b * by) * c - s * (a * by) + (product * by) * by;
    let second = c * (a * by + d * by - s);
    let third = if width > 2 {
        c * (h.get(at + 2, at + 1) * by)
    } else {
        T::zero()
    };
    [first, second, third]
}

/// Multiplies two or three rows from the left by `I - scale v v'`.
fn turn_rows<T: Number>(h: &mut ViewMut<T>, v: &[T], scale: T::Size) {
    let back = |v: T| v.conj().times(scale);
    if let [p, q, r] = *v {
        let (pc, qc, rc) = (back(p), back(q), back(r));
        for j in 0..h.columns() {
            if let [x, y, z] = h.column(j) {
                let sum = pc * *x + qc * *y + rc * *z;
                *x -= p * sum;
                *y -= q * sum;
                *z -= r * sum;
            }
        }
    } else if let [p, q] = *v {
        let (pc, qc) = (back(p), back(q));
        for j in 0..h.columns() {
            if let [x, y] = h.column(j) {
                let sum = pc * *x + qc * *y;
                *x -= p * sum;
                *y -= q * sum;
            }
        }
    }
}

/// Schur forms of blocks: the small solver's, as columns.
pub fn small_schur<T: super::Spectral>(block: &Matrix<T>) -> Option<(Matrix<T>, Matrix<T>)> {
    let n = block.rows;
    let mut h = Grid {
        n,
        data: (0..n * n).map(|i| block[(i / n, i % n)]).collect(),
    };
    // Vectors of its basis are rows, not conjugated.
    let mut rows = Grid::eye(n);
    T::schur(&mut h, Some(&mut rows))?;
    let form = Matrix::from_fn(n, n, |i, j| h.data[i * n + j]);
    let basis = Matrix::from_fn(n, n, |i, j| rows.data[j * n + i]);
    Some((form, basis))
}
