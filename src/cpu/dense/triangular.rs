//! Equations with triangular matrices, by halves: what is left of a triangle of few rows is a loop, all else products.

use super::number::{Factor, Number, add_product};
use super::view::{View, ViewMut};
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

/// Solves `T X = B` in place of `b`.
pub fn solve_left<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    assert!(t.columns() == n && b.rows() == n);
    if b.columns() == 0 || n == 0 {
        return;
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
    if n <= SMALL / 2 {
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

/// The triangle as it stands in the equation, column after column.
fn copied<T: Number>(t: View<T>, kind: Triangle) -> Vec<T> {
    let n = t.rows();
    let mut e = vec![T::zero(); n * n];
    for j in 0..n {
        let (from, to) = if kind.upper { (0, j + 1) } else { (j, n) };
        for i in from..to {
            let v = t.get(i, j);
            if kind.adjoint {
                e[j + i * n] = v.conj();
            } else {
                e[i + j * n] = v;
            }
        }
    }
    e
}

fn small_left<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let n = t.rows();
    let e = copied(t, kind);
    let upper = kind.effective_upper();
    if b.columns() < ABREAST / 4 {
        for j in 0..b.columns() {
            let column = &mut b.column(j)[..n];
            if upper {
                back::<T>(&e, kind.unit, column);
            } else {
                forth::<T>(&e, kind.unit, column);
            }
        }
        return;
    }
    let parts = if T::COMPLEX { 2 } else { 1 };
    let mut rows = vec![[T::Size::zero(); ABREAST]; n * parts];
    for first in (0..b.columns()).step_by(ABREAST) {
        let wide = ABREAST.min(b.columns() - first);
        for j in 0..wide {
            for (row, v) in rows.chunks_exact_mut(parts).zip(&b.column(first + j)[..n]) {
                row[0][j] = v.re();
                if T::COMPLEX {
                    row[1][j] = v.im();
                }
            }
        }
        abreast::<T>(&e, upper, kind.unit, &mut rows);
        for j in 0..wide {
            let column = &mut b.column(first + j)[..n];
            for (row, v) in rows.chunks_exact(parts).zip(column) {
                *v = T::parts(row[0][j], row[parts - 1][j]);
            }
        }
    }
}

/// Columns that are solved at once.
const ABREAST: usize = 32;

/// A row of a solution divided by what stands on the diagonal.
#[inline(always)]
fn divide<T: Number>(row: &mut [[T::Size; ABREAST]], by: T) {
    if !T::COMPLEX {
        let by = by.re();
        row[0].iter_mut().for_each(|v| *v /= by);
        return;
    }
    let [re, im] = row else { return };
    let inverse = T::one().over(by);
    let (c, s) = (inverse.re(), inverse.im());
    if Float::is_finite(c) && Float::is_finite(s) {
        for l in 0..ABREAST {
            (re[l], im[l]) = (re[l] * c - im[l] * s, re[l] * s + im[l] * c);
        }
    } else {
        for l in 0..ABREAST {
            let v = T::parts(re[l], im[l]).over(by);
            (re[l], im[l]) = (v.re(), v.im());
        }
    }
}

simd_fn! { wide
    /// Several columns side by side: a row of them for each of the triangle's, of complex numbers one for either part.
    fn abreast<T: Number>(e: &[T], upper: bool, unit: bool, x: &mut [[T::Size; ABREAST]]) {
        let parts = if T::COMPLEX { 2 } else { 1 };
        let n = x.len() / parts;
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
                if T::COMPLEX {
                    let ([re, im], [a, b]) = (other, &*row) else { continue };
                    let (c, s) = (-c.re(), c.im());
                    for l in 0..ABREAST {
                        re[l] = Float::mul_add(c, a[l], Float::mul_add(s, b[l], re[l]));
                        im[l] = Float::mul_add(c, b[l], Float::mul_add(-s, a[l], im[l]));
                    }
                } else {
                    let c = -c.re();
                    for l in 0..ABREAST {
                        other[0][l] = Float::mul_add(c, row[0][l], other[0][l]);
                    }
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

fn small_right<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let n = t.rows();
    let e = copied(t, kind);
    let upper = kind.effective_upper();
    for step in 0..n {
        let j = if upper { step } else { n - 1 - step };
        let (done, column) = if upper {
            let (done, rest) = b.again().split_columns(j);
            (done, rest)
        } else {
            let (rest, done) = b.again().split_columns(j + 1);
            (done, rest.split_columns(j).1)
        };
        let mut column = column;
        let (from, to) = if upper { (0, j) } else { (j + 1, n) };
        let by: Vec<T> = (from..to).map(|i| -e[i + j * n]).collect();
        let column = column.column(0);
        super::vector::add_times(column, done.view(), &by);
        if !kind.unit {
            let by = e[j + j * n];
            column.iter_mut().for_each(|v| *v = v.over(by));
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
        for (n, columns) in [(1, 1), (5, 3), (33, 7), (70, 40), (129, 2)] {
            check::<f32>(n, columns);
            check::<f64>(n, columns);
            check::<num_complex::Complex<f32>>(n, columns);
            check::<num_complex::Complex<f64>>(n, columns);
        }
    }
}
