//! Equations with triangular matrices, by halves: what is left of a triangle of few rows is a loop, all else products.
//!
//! Loops run over right sides, which are to lie side by side: of `X T = B` they do.

use super::number::{Factor, Number, add_product, set_adjoint};
use super::view::{Matrix, View, ViewMut};
use crate::cpu::simd::simd_fn;
use num_traits::{Float, Zero};

/// Rows of a triangle that is solved by a loop.
const SMALL: usize = 32;

/// Which triangle stands in an equation.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    /// The upper triangle of the matrix is read, else the lower one.
    pub upper: bool,
    /// Its adjoint stands in the equation.
    pub adjoint: bool,
    /// Its diagonal is all ones, whatever the matrix has there.
    pub unit: bool,
}

impl Triangle {
    /// A lower triangle with ones on the diagonal.
    pub const UNIT_LOWER: Self = Self {
        upper: false,
        adjoint: false,
        unit: true,
    };
    /// An upper triangle.
    pub const UPPER: Self = Self {
        upper: true,
        adjoint: false,
        unit: false,
    };

    /// The adjoint of what stands in the equation.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            adjoint: !self.adjoint,
            ..self
        }
    }

    /// What stands in the equation is an upper triangle.
    fn effective_upper(self) -> bool {
        self.upper != self.adjoint
    }

    /// The block of the matrix that stands beside the two triangles on the diagonal, cut at row `h`.
    fn beside<T: Number>(self, t: View<'_, T>, h: usize) -> Factor<'_, T> {
        let rest = t.rows() - h;
        let block = if self.upper {
            t.block(0, h, h, rest)
        } else {
            t.block(h, 0, rest, h)
        };
        if self.adjoint {
            Factor::Adjoint(block)
        } else {
            Factor::Plain(block)
        }
    }
}

/// Right sides from which on the equation is solved for the adjoint of X.
pub const MANY: usize = 8;

/// Hands the adjoint of `b` over, and takes it back.
pub fn of_adjoint<T: Number>(b: ViewMut<T>, f: impl FnOnce(ViewMut<T>)) {
    let mut x = Matrix::filled(b.columns(), b.rows(), T::zero());
    set_adjoint(b.view(), x.view_mut());
    f(x.view_mut());
    set_adjoint(x.view(), b);
}

/// Solves `T X = B` in place of `b`.
pub fn solve_left<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    assert!(t.columns() == n && b.rows() == n);
    if b.columns() == 0 || n == 0 {
        return;
    }
    if b.columns() >= MANY {
        return of_adjoint(b, |x| solve_right(t, kind.turned(), x));
    }
    if n <= SMALL {
        return small_left(t, kind, b);
    }
    let h = half(n);
    let (top, bottom) = (t.block(0, 0, h, h), t.block(h, h, n - h, n - h));
    let (mut first, mut second) = b.split_rows(h);
    if kind.effective_upper() {
        solve_left(bottom, kind, second.again());
        add_product(
            -1,
            kind.beside(t, h),
            Factor::Plain(second.view()),
            first.again(),
        );
        solve_left(top, kind, first);
    } else {
        solve_left(top, kind, first.again());
        add_product(
            -1,
            kind.beside(t, h),
            Factor::Plain(first.view()),
            second.again(),
        );
        solve_left(bottom, kind, second);
    }
}

/// Solves `X T = B` in place of `b`.
pub fn solve_right<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    assert!(t.columns() == n && b.columns() == n);
    if b.rows() == 0 || n == 0 {
        return;
    }
    if n <= SMALL {
        return small_right(t, kind, b);
    }
    let h = half(n);
    let (top, bottom) = (t.block(0, 0, h, h), t.block(h, h, n - h, n - h));
    let (mut first, mut second) = b.split_columns(h);
    if kind.effective_upper() {
        solve_right(top, kind, first.again());
        add_product(
            -1,
            Factor::Plain(first.view()),
            kind.beside(t, h),
            second.again(),
        );
        solve_right(bottom, kind, second);
    } else {
        solve_right(bottom, kind, second.again());
        add_product(
            -1,
            Factor::Plain(second.view()),
            kind.beside(t, h),
            first.again(),
        );
        solve_right(top, kind, first);
    }
}

/// Half of a size, in whole blocks where there are several.
pub(super) fn half(n: usize) -> usize {
    if n >= 32 {
        (n / 2).next_multiple_of(16)
    } else {
        n.div_ceil(2)
    }
}

/// The triangle as it stands in the equation, column after column, or row after row.
fn copied<T: Number>(t: View<T>, kind: Triangle, by_rows: bool) -> Vec<T> {
    let n = t.rows();
    let mut e = vec![T::zero(); n * n];
    for j in 0..n {
        let (from, to) = if kind.upper { (0, j + 1) } else { (j, n) };
        for (i, &v) in (from..to).zip(&t.column(j)[from..to]) {
            let v = if kind.adjoint { v.conj() } else { v };
            let at = if kind.adjoint == by_rows {
                i + j * n
            } else {
                j + i * n
            };
            e[at] = v;
        }
    }
    e
}

/// Of a few columns, one after the other.
fn small_left<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let n = t.rows();
    let e = copied(t, kind, false);
    for j in 0..b.columns() {
        let column = &mut b.column(j)[..n];
        if kind.effective_upper() {
            back::<T>(&e, kind.unit, column);
        } else {
            forth::<T>(&e, kind.unit, column);
        }
    }
}

/// For each row x of `b` this is an equation with the transposed triangle.
fn small_right<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let n = t.rows();
    let e = copied(t, kind, true);
    let parts = if T::COMPLEX { 2 } else { 1 };
    let mut rows = vec![[T::Size::zero(); ABREAST]; n * parts];
    for first in (0..b.rows()).step_by(ABREAST) {
        let wide = ABREAST.min(b.rows() - first);
        for (k, x) in rows.chunks_exact_mut(parts).enumerate() {
            split::<T>(&b.column(k)[first..first + wide], x);
        }
        abreast::<T>(&e, !kind.effective_upper(), kind.unit, &mut rows);
        for (k, x) in rows.chunks_exact(parts).enumerate() {
            join::<T>(x, &mut b.column(k)[first..first + wide]);
        }
    }
}

/// Numbers to their parts.
#[inline]
fn split<T: Number>(from: &[T], to: &mut [[T::Size; ABREAST]]) {
    match to {
        [re] => re[..from.len()].copy_from_slice(T::flat(from)),
        [re, im] => {
            for ((v, re), im) in from.iter().zip(re).zip(im) {
                (*re, *im) = (v.re(), v.im());
            }
        }
        _ => {}
    }
}

/// Numbers from their parts.
#[inline]
fn join<T: Number>(from: &[[T::Size; ABREAST]], to: &mut [T]) {
    match from {
        [re] => {
            let n = to.len();
            T::flat_mut(to).copy_from_slice(&re[..n]);
        }
        [re, im] => {
            for ((v, &re), &im) in to.iter_mut().zip(re).zip(im) {
                *v = T::parts(re, im);
            }
        }
        _ => {}
    }
}

/// Right sides that are solved at once.
const ABREAST: usize = 32;

/// A row of a solution divided by what stands on the diagonal, by way of its reciprocal if that is not out of range.
#[inline(always)]
fn divide<T: Number>(row: &mut [[T::Size; ABREAST]], by: T) {
    let inverse = T::one().over(by);
    let (c, s) = (inverse.re(), inverse.im());
    let finite = Float::is_finite(c) && Float::is_finite(s);
    match row {
        [re] if finite => re.iter_mut().for_each(|v| *v *= c),
        [re] => re.iter_mut().for_each(|v| *v /= by.re()),
        [re, im] => {
            for (re, im) in re.iter_mut().zip(im) {
                (*re, *im) = if finite {
                    (*re * c - *im * s, *re * s + *im * c)
                } else {
                    let v = T::parts(*re, *im).over(by);
                    (v.re(), v.im())
                };
            }
        }
        _ => {}
    }
}

simd_fn! { wide
    /// Several right sides side by side: a row of them for each of the triangle's, of complex numbers one for either part.
    fn abreast<T: Number>(e: &[T], upper: bool, unit: bool, x: &mut [[T::Size; ABREAST]]) {
        let parts = if T::COMPLEX { 2 } else { 1 };
        let n = x.len() / parts;
        // Of a number it knew, the compiler would make vectors of elements that lie apart.
        let lanes = std::hint::black_box(ABREAST);
        for step in 0..n {
            let k = if upper { n - 1 - step } else { step };
            let column = &e[k * n..(k + 1) * n];
            let (above, rest) = x.split_at_mut(k * parts);
            let (row, below) = rest.split_at_mut(parts);
            if !unit {
                divide(row, column[k]);
            }
            let (others, column) = if upper { (above, &column[..k]) } else { (below, &column[k + 1..]) };
            for (other, &c) in others.chunks_exact_mut(parts).zip(column) {
                match (other, &*row) {
                    ([re], [a]) => {
                        let (re, a, c) = (&mut re[..lanes], &a[..lanes], -c.re());
                        for l in 0..lanes {
                            re[l] = Float::mul_add(c, a[l], re[l]);
                        }
                    }
                    ([re, im], [a, b]) => {
                        let (re, a) = (&mut re[..lanes], &a[..lanes]);
                        let (im, b) = (&mut im[..lanes], &b[..lanes]);
                        let (c, s) = (-c.re(), c.im());
                        for l in 0..lanes {
                            re[l] = Float::mul_add(c, a[l], Float::mul_add(s, b[l], re[l]));
                            im[l] = Float::mul_add(c, b[l], Float::mul_add(-s, a[l], im[l]));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

simd_fn! { stream
    /// One column with an upper triangle.
    fn back<T: Number>(e: &[T], unit: bool, x: &mut [T]) {
        let n = x.len();
        for k in (0..n).rev() {
            let column = &e[k * n..k * n + k + 1];
            let (rest, last) = x[..=k].split_at_mut(k);
            if !unit {
                last[0] = last[0].over(column[k]);
            }
            let by = last[0];
            for (x, &c) in rest.iter_mut().zip(column) {
                *x -= by * c;
            }
        }
    }
}

simd_fn! { stream
    /// One column with a lower triangle.
    fn forth<T: Number>(e: &[T], unit: bool, x: &mut [T]) {
        let n = x.len();
        for k in 0..n {
            let column = &e[k * n + k..(k + 1) * n];
            let (first, rest) = x[k..].split_at_mut(1);
            if !unit {
                first[0] = first[0].over(column[0]);
            }
            let by = first[0];
            for (x, &c) in rest.iter_mut().zip(&column[1..]) {
                *x -= by * c;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::{Real, set_product};
    use super::super::samples::{Sample, near, sample};
    use super::super::view::Matrix;
    use super::*;

    fn check<T: Sample>(n: usize, columns: usize) {
        for bits in 0..8 {
            let kind = Triangle {
                upper: bits & 1 != 0,
                adjoint: bits & 2 != 0,
                unit: bits & 4 != 0,
            };
            let mut t: Matrix<T> = sample(n, n, 1);
            (0..n).for_each(|i| t[(i, i)] += T::real(T::Size::near(n as f64)));
            let inside = |i: usize, j: usize| if kind.upper { i <= j } else { i >= j };
            let plain = Matrix::from_fn(n, n, |i, j| match (i == j, inside(i, j)) {
                (true, _) if kind.unit => T::one(),
                (_, true) => t[(i, j)],
                _ => T::zero(),
            });
            // Far off the diagonal elements are small, so that the unit triangle is not ill-conditioned either.
            let small = T::real(T::Size::near(1.0 / n as f64));
            let t = Matrix::from_fn(
                n,
                n,
                |i, j| if i == j { t[(i, j)] } else { t[(i, j)] * small },
            );
            let plain = Matrix::from_fn(n, n, |i, j| {
                if i == j {
                    plain[(i, j)]
                } else {
                    plain[(i, j)] * small
                }
            });
            let factor = if kind.adjoint {
                Factor::Adjoint(plain.view())
            } else {
                Factor::Plain(plain.view())
            };
            let x: Matrix<T> = sample(n, columns, 2);
            let mut b = x.clone();
            set_product(factor, Factor::Plain(x.view()), b.view_mut());
            solve_left(t.view(), kind, b.view_mut());
            near(&b, &x, n as f64);
            let x: Matrix<T> = sample(columns, n, 3);
            let mut b = x.clone();
            set_product(Factor::Plain(x.view()), factor, b.view_mut());
            solve_right(t.view(), kind, b.view_mut());
            near(&b, &x, n as f64);
        }
    }

    #[test]
    fn solutions_solve() {
        for (n, columns) in [(1, 1), (5, 3), (33, 7), (17, 8), (70, 40), (129, 2)] {
            check::<f32>(n, columns);
            check::<f64>(n, columns);
            check::<num_complex::Complex<f32>>(n, columns);
            check::<num_complex::Complex<f64>>(n, columns);
        }
    }
}
