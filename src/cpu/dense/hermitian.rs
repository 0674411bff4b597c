//! Eigenvalues and eigenvectors of Hermitian matrices.

use super::number::{Number, Real, largest};
use super::view::{Matrix, ViewMut};
use super::{divide, reflect, tridiagonal};
use num_traits::Float;

/// A power of two that brings a largest element into a range where squares neither vanish nor overflow; nothing if it is there.
#[must_use]
pub fn scaling<R: Real>(most: R) -> Option<R> {
    let low = Float::sqrt(R::min_positive_value()) / R::epsilon();
    let high = R::one() / low;
    if most.is_zero() || !Float::is_finite(most) || (most >= low && most <= high) {
        return None;
    }
    // Half the exponent at a time, as the reciprocal of the least number is out of range.
    let down = Float::exp2(-Float::floor(Float::log2(most) * R::near(0.5)));
    Some(down)
}

/// The eigenvalues of a Hermitian matrix, ascending, and its eigenvectors; only the lower triangle is read, which is lost.
/// False if it does not converge.
pub fn eigen<T: Number>(
    mut a: ViewMut<T>,
    values: &mut [T::Size],
    vectors: Option<ViewMut<T>>,
) -> bool {
    let n = a.rows();
    assert!(a.columns() == n && values.len() == n);
    let most = (0..n).map(|j| largest(&a.view().column(j)[j..]));
    let half = scaling(most.fold(T::Size::default(), Float::max));
    if let Some(by) = half {
        for j in 0..n {
            a.column(j)[j..]
                .iter_mut()
                .for_each(|v| *v = v.times(by).times(by));
        }
    }
    let mut made = tridiagonal::reduce(&mut a);
    let done = match vectors {
        None => divide::eigen(&mut made.diagonal, &mut made.beside, None),
        Some(mut to) => with_vectors(&a, &mut made, &mut to),
    };
    for (to, &v) in values.iter_mut().zip(&made.diagonal) {
        *to = half.map_or(v, |by| v / by / by);
    }
    done
}

fn with_vectors<T: Number>(
    a: &ViewMut<T>,
    made: &mut tridiagonal::Tridiagonal<T>,
    to: &mut ViewMut<T>,
) -> bool {
    let n = a.rows();
    let mut q = Matrix::filled(n, n, T::Size::default());
    if !divide::eigen(&mut made.diagonal, &mut made.beside, Some(q.view_mut())) {
        return false;
    }
    for j in 0..n {
        for (to, &v) in to.column(j).iter_mut().zip(q.view().column(j)) {
            *to = T::real(v);
        }
    }
    if n > 1 {
        let below = a.view().block(1, 0, n - 1, n - 1);
        reflect::apply(below, &made.taus, false, &mut to.block(1, 0, n - 1, n));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::number::Factor;
    use super::super::samples::{Sample, near, orthonormal, sample, times};
    use super::*;

    fn check<T: Sample>(n: usize, scale: f64) {
        let x: Matrix<T> = sample(n, n, 11);
        let a = Matrix::from_fn(n, n, |i, j| {
            let v = x[(i, j)] + x[(j, i)].conj();
            if i == j { T::real(v.re()) } else { v }
        });
        let by = T::Size::near(scale);
        let mut given = Matrix::from_fn(n, n, |i, j| {
            if i >= j {
                a[(i, j)].times(by)
            } else {
                T::real(T::Size::nan())
            }
        });
        let mut v = Matrix::filled(n, n, T::zero());
        let mut values = vec![T::Size::default(); n];
        assert!(eigen(given.view_mut(), &mut values, Some(v.view_mut())));
        orthonormal(&v);
        let left = times(Factor::Plain(a.view()), Factor::Plain(v.view()), n, n);
        let right = Matrix::from_fn(n, n, |i, j| v[(i, j)].times(values[j] / by));
        near(&left, &right, n.max(10) as f64);
    }

    #[test]
    fn vectors_are_stretched_by_their_values() {
        for n in [1, 2, 5, 33, 50, 130] {
            for scale in [1.0, 1e-33, 1e33] {
                check::<f32>(n, scale);
                check::<num_complex::Complex<f32>>(n, scale);
            }
            for scale in [1.0, 1e-290, 1e290] {
                check::<f64>(n, scale);
                check::<num_complex::Complex<f64>>(n, scale);
            }
        }
    }
}
