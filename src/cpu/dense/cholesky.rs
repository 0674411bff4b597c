//! Cholesky factorisations, by halves.

use super::number::{Factor, Number, add_product};
use super::triangular::{Triangle, half, solve_right};
use super::vector;
use super::view::{View, ViewMut};
use num_traits::{Float, Zero};

/// Rows of a matrix that is factorised column by column.
const SMALL: usize = 16;
/// Columns of a block of a triangle that a product adds to.
const STRIP: usize = 64;

/// The triangle of a Cholesky factor.
const LOWER_ADJOINT: Triangle = Triangle {
    upper: false,
    adjoint: true,
    unit: false,
};

/// Puts the factor L of `L L'` in place of the lower triangle, which alone is read. Gives the order of the first minor
/// that is not positive; 0 if all are.
pub fn factor<T: Number>(a: ViewMut<T>) -> usize {
    let n = a.rows();
    assert!(a.columns() == n);
    if n <= SMALL {
        return small(a);
    }
    let h = half(n);
    let [[mut top, _], [mut low, mut rest]] = a.split(h, h);
    let info = factor(top.again());
    if info > 0 {
        return info;
    }
    solve_right(top.view(), LOWER_ADJOINT, low.again());
    subtract_square(low.view(), rest.again());
    match factor(rest) {
        0 => 0,
        info => info + h,
    }
}

/// `C -= A A'`, of which the lower triangle is written, and parts of blocks on the diagonal besides.
fn subtract_square<T: Number>(a: View<T>, mut c: ViewMut<T>) {
    add_lower(-1, a, a, &mut c);
}

/// `C += sign * A B'`, of which the lower triangle is written, and parts of blocks on the diagonal besides.
pub(super) fn add_lower<T: Number>(sign: i8, a: View<T>, b: View<T>, c: &mut ViewMut<T>) {
    let (n, k) = (c.rows(), a.columns());
    for j in (0..n).step_by(STRIP) {
        let wide = STRIP.min(n - j);
        let (left, right) = (a.block(j, 0, n - j, k), b.block(j, 0, wide, k));
        let to = c.block(j, j, n - j, wide);
        add_product(sign, Factor::Plain(left), Factor::Adjoint(right), to);
    }
}

fn small<T: Number>(mut a: ViewMut<T>) -> usize {
    let n = a.rows();
    for j in 0..n {
        let (done, mut rest) = a.again().split_columns(j);
        let column = &mut rest.column(0)[j..];
        for k in 0..j {
            let l = &done.view().column(k)[j..];
            vector::add(column, -l[0].conj(), l);
        }
        let d = column[0].re();
        if d.is_zero() || !(d > T::Size::zero()) {
            return j + 1;
        }
        let root = Float::sqrt(d);
        column[0] = T::real(root);
        column[1..]
            .iter_mut()
            .for_each(|v| *v = v.over(T::real(root)));
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, near, sample, times};
    use super::super::view::Matrix;
    use super::*;

    fn check<T: Sample>(n: usize) {
        let x: Matrix<T> = sample(n, n, 6);
        let mut a = times(Factor::Plain(x.view()), Factor::Adjoint(x.view()), n, n);
        (0..n).for_each(|i| a[(i, i)] += T::one());
        let mut l = a.clone();
        assert_eq!(factor(l.view_mut()), 0);
        let l = Matrix::from_fn(n, n, |i, j| if i >= j { l[(i, j)] } else { T::zero() });
        let made = times(Factor::Plain(l.view()), Factor::Adjoint(l.view()), n, n);
        near(&made, &a, n as f64);
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        for n in [1, 2, 16, 17, 100, 150] {
            check::<f32>(n);
            check::<f64>(n);
            check::<num_complex::Complex<f32>>(n);
            check::<num_complex::Complex<f64>>(n);
        }
        let mut a = Matrix::from_fn(90, 90, |i, j| f64::from(u8::from(i == j)));
        a[(70, 70)] = -1.0;
        assert_eq!(factor(a.view_mut()), 71);
        a[(3, 3)] = f64::NAN;
        assert_eq!(factor(a.view_mut()), 4);
    }
}
