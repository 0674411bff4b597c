//! LU factorisations with exchanges of rows, by halves of the columns.
//!
//! Source: S. Toledo, "Locality of reference in LU decomposition with partial pivoting" (1997).

use super::number::{Factor, Number, add_product};
use super::triangular::{MANY, Triangle, half, of_adjoint, solve_left, solve_right};
use super::vector;
use super::view::{View, ViewMut};
use crate::cpu::simd::simd_fn;
use num_traits::Float;

/// Columns that are factorised one after the other.
const SMALL: usize = 8;

/// Factorises a matrix in place: L below the diagonal, U on and above it. `pivots[i]` is the row, from 0, that row i was
/// exchanged with. Gives the first zero on the diagonal of U, from 1; 0 if there is none.
pub fn factor<T: Number>(a: ViewMut<T>, pivots: &mut [usize]) -> usize {
    let steps = a.rows().min(a.columns());
    assert!(pivots.len() == steps);
    if steps == 0 {
        return 0;
    }
    if a.columns() <= SMALL || a.rows() == 1 {
        return small(a, pivots);
    }
    let h = half(steps).min(a.columns() / 2).max(1);
    let rows = a.rows();
    let (mut left, mut right) = a.split_columns(h);
    let h = h.min(rows);
    let first = factor(left.again(), &mut pivots[..h]);
    exchange(right.again(), &pivots[..h]);
    let (mut above, mut below) = right.split_rows(h);
    let l = left.view();
    solve_left(l.block(0, 0, h, h), Triangle::UNIT_LOWER, above.again());
    if rows == h {
        return first;
    }
    let down = Factor::Plain(l.block(h, 0, rows - h, h));
    add_product(-1, down, Factor::Plain(above.view()), below.again());
    let second = factor(below, &mut pivots[h..]);
    exchange(left.block(h, 0, rows - h, h), &pivots[h..]);
    pivots[h..].iter_mut().for_each(|p| *p += h);
    match (first, second) {
        (0, 0) => 0,
        (0, s) => s + h,
        (f, _) => f,
    }
}

/// Column by column, each of which takes all that those before it change in one pass.
fn small<T: Number>(mut a: ViewMut<T>, pivots: &mut [usize]) -> usize {
    let (rows, columns) = (a.rows(), a.columns());
    let mut info = 0;
    for k in 0..columns {
        let above = k.min(pivots.len());
        let (done, mut rest) = a.again().split_columns(k);
        let (l, column) = (done.view(), rest.column(0));
        let mut by = [T::zero(); SMALL];
        for i in 0..above {
            let sum = (0..i).fold(column[i], |sum, m| sum + l.get(i, m) * by[m]);
            column[i] = sum;
            by[i] = -sum;
        }
        let below = l.block(above, 0, rows - above, above);
        vector::add_times(&mut column[above..], below, &by[..above]);
        if k >= pivots.len() {
            continue;
        }
        let p = k + largest(&column[k..]);
        pivots[k] = p;
        let pivot = column[p];
        if pivot.is_zero() {
            info = if info == 0 { k + 1 } else { info };
            continue;
        }
        if p != k {
            (0..columns).for_each(|j| a.column(j).swap(k, p));
        }
        divide(&mut a.column(k)[k + 1..], pivot);
    }
    info
}

/// Divides by a number, by way of its reciprocal if that is not out of range.
fn divide<T: Number>(x: &mut [T], by: T) {
    let inverse = T::one().over(by);
    let safe = by.sum() >= <T::Size as Float>::min_positive_value() && inverse.is_finite();
    for v in x {
        *v = if safe { *v * inverse } else { v.over(by) };
    }
}

/// Where the largest element is, the first of several; NaN is as large as what stands first.
fn largest<T: Number>(x: &[T]) -> usize {
    let size = most::<T>(x);
    x.iter().position(|v| v.sum() == size).unwrap_or(0)
}

simd_fn! { stream
    /// The size of the largest element; NaN if the first is that.
    fn most<T: Number>(x: &[T]) -> T::Size {
        const LANES: usize = 16;
        let first = x[0].sum();
        let mut lanes = [first; LANES];
        let chunks = x.chunks_exact(LANES);
        let rest = chunks.remainder();
        for c in chunks {
            for i in 0..LANES {
                let size = c[i].sum();
                lanes[i] = if size > lanes[i] { size } else { lanes[i] };
            }
        }
        let mut top = first;
        for size in lanes.into_iter().chain(rest.iter().map(|v| v.sum())) {
            top = if size > top { size } else { top };
        }
        top
    }
}

/// Exchanges rows of all columns, in order.
pub fn exchange<T: Number>(mut a: ViewMut<T>, pivots: &[usize]) {
    for j in 0..a.columns() {
        let column = a.column(j);
        for (i, &p) in pivots.iter().enumerate() {
            column.swap(i, p);
        }
    }
}

/// Undoes [`exchange`].
pub fn exchange_back<T: Number>(mut a: ViewMut<T>, pivots: &[usize]) {
    for j in 0..a.columns() {
        let column = a.column(j);
        for (i, &p) in pivots.iter().enumerate().rev() {
            column.swap(i, p);
        }
    }
}

/// Solves `A X = B` in place of `b` by the factors of A.
pub fn solve<T: Number>(lu: View<T>, pivots: &[usize], mut b: ViewMut<T>) {
    if b.columns() >= MANY {
        return of_adjoint(b, |_, mut x| {
            exchange_columns(x.again(), pivots.iter().copied().enumerate());
            solve_right(lu, Triangle::UNIT_LOWER.turned(), x.again());
            solve_right(lu, Triangle::UPPER.turned(), x);
        });
    }
    exchange(b.again(), pivots);
    solve_left(lu, Triangle::UNIT_LOWER, b.again());
    solve_left(lu, Triangle::UPPER, b);
}

/// Solves `A' X = B` in place of `b` by the factors of A.
pub fn solve_adjoint<T: Number>(lu: View<T>, pivots: &[usize], mut b: ViewMut<T>) {
    if b.columns() >= MANY {
        return of_adjoint(b, |_, mut x| {
            solve_right(lu, Triangle::UPPER, x.again());
            solve_right(lu, Triangle::UNIT_LOWER, x.again());
            exchange_columns(x, pivots.iter().copied().enumerate().rev());
        });
    }
    solve_left(lu, Triangle::UPPER.turned(), b.again());
    solve_left(lu, Triangle::UNIT_LOWER.turned(), b.again());
    exchange_back(b, pivots);
}

/// Writes the inverse, by the factors: columns of the inverse of L are those of the identity above their diagonal.
pub fn inverse<T: Number>(lu: View<T>, pivots: &[usize], mut x: ViewMut<T>) {
    let n = lu.rows();
    x.set_identity();
    of_adjoint(x.again(), |first, mut x| {
        let (wide, rest) = (x.rows(), n - first);
        let l = lu.block(first, first, rest, rest);
        let below = x.block(0, first, wide, rest);
        solve_right(l, Triangle::UNIT_LOWER.turned(), below);
        solve_right(lu, Triangle::UPPER.turned(), x);
    });
    // Exchanges of rows of A are exchanges of columns of its inverse.
    exchange_columns(x, pivots.iter().copied().enumerate().rev());
}

/// Exchanges columns by pairs, in order.
fn exchange_columns<T: Number>(mut x: ViewMut<T>, pairs: impl Iterator<Item = (usize, usize)>) {
    for (i, p) in pairs.filter(|(i, p)| i != p) {
        let (a, b) = x.two_columns(i, p);
        a.swap_with_slice(b);
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, near, sample, times};
    use super::super::view::Matrix;
    use super::*;

    fn check<T: Sample>(m: usize, n: usize) {
        let a: Matrix<T> = sample(m, n, 5);
        let (mut f, mut pivots) = (a.clone(), vec![0; m.min(n)]);
        assert_eq!(factor(f.view_mut(), &mut pivots), 0);
        let k = m.min(n);
        let zero = T::zero();
        let l = Matrix::from_fn(m, k, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => zero,
            std::cmp::Ordering::Equal => T::one(),
            std::cmp::Ordering::Greater => f[(i, j)],
        });
        let most = l
            .data
            .iter()
            .map(|v| v.sum())
            .fold(T::Size::default(), Float::max);
        assert!(most <= T::Size::near(2.01), "pivots are the largest");
        let u = Matrix::from_fn(k, n, |i, j| if i <= j { f[(i, j)] } else { zero });
        let mut made = times(Factor::Plain(l.view()), Factor::Plain(u.view()), m, n);
        exchange_back(made.view_mut(), &pivots);
        near(&made, &a, 4.0 * n as f64);
    }

    use super::super::number::Real;

    #[test]
    fn factors_multiply_to_the_matrix() {
        for (m, n) in [
            (1, 1),
            (3, 5),
            (5, 3),
            (40, 40),
            (200, 33),
            (33, 200),
            (1, 9),
            (9, 1),
            (130, 131),
        ] {
            check::<f32>(m, n);
            check::<f64>(m, n);
            check::<num_complex::Complex<f32>>(m, n);
            check::<num_complex::Complex<f64>>(m, n);
        }
    }

    #[test]
    fn inverses_multiply_to_the_identity() {
        for n in [1, 5, 64, 150] {
            let mut a: Matrix<f64> = sample(n, n, 8);
            (0..n).for_each(|i| a[(i, (i * 7 + 3) % n)] += 9.0);
            let (mut f, mut pivots, mut x) = (a.clone(), vec![0; n], a.clone());
            factor(f.view_mut(), &mut pivots);
            inverse(f.view(), &pivots, x.view_mut());
            let made = times(Factor::Plain(a.view()), Factor::Plain(x.view()), n, n);
            near(
                &made,
                &Matrix::from_fn(n, n, |i, j| f64::from(u8::from(i == j))),
                100.0 * n as f64,
            );
        }
    }

    #[test]
    fn singular_matrices_say_where() {
        let mut a = Matrix::from_fn(20, 20, |i, j| ((i * 3 + j * 5) % 7) as f64);
        (0..20).for_each(|i| a[(i, 11)] = 0.0);
        let mut pivots = vec![0; 20];
        let info = factor(a.view_mut(), &mut pivots);
        assert!(info > 0 && a[(info - 1, info - 1)] == 0.0);
    }
}
