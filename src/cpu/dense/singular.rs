//! Singular value decompositions.

use super::bidiagonal::{self, Bidiagonal};
use super::chase::{Bases, rotation};
use super::hermitian::scaling;
use super::number::{Number, Real, largest};
use super::view::{Matrix, View, ViewMut};
use super::{parted, reflect};
use num_traits::One;

/// Where singular vectors go: `a = u diag(values) v'`.
pub struct Vectors<'a, T> {
    /// As many rows as the matrix, and as many columns or as it has values.
    pub u: ViewMut<'a, T>,
    /// As many rows as the matrix has columns, and as many columns or as it has values.
    pub v: ViewMut<'a, T>,
}

impl<T> Vectors<'_, T> {
    /// Those of the adjoint.
    fn exchanged(self) -> Self {
        let Self { u, v } = self;
        Self { u: v, v: u }
    }
}

/// The adjoint of a matrix.
#[must_use]
pub fn adjoint<T: Number>(a: View<T>) -> Matrix<T> {
    let mut out = Matrix::filled(a.columns(), a.rows(), T::zero());
    let (m, n) = (a.rows(), a.columns());
    // Square tiles, so that both sides stay in the innermost cache.
    for i0 in (0..m).step_by(16) {
        for j in 0..n {
            let column = a.column(j);
            for i in i0..(i0 + 16).min(m) {
                out.data[j + i * n] = column[i].conj();
            }
        }
    }
    out
}

/// The singular values, descending, and the vectors; the matrix is lost. False if it does not converge.
pub fn singular<T: Number>(
    a: ViewMut<T>,
    values: &mut [T::Size],
    vectors: Option<Vectors<T>>,
) -> bool {
    if a.rows() < a.columns() {
        let mut turned = adjoint(a.view());
        return tall(
            turned.view_mut(),
            values,
            vectors.map(Vectors::exchanged),
            true,
        );
    }
    tall(a, values, vectors, false)
}

/// The same of a matrix with as many rows as columns, or more; `turned` says that its adjoint is the matrix in question.
fn tall<T: Number>(
    mut a: ViewMut<T>,
    values: &mut [T::Size],
    vectors: Option<Vectors<T>>,
    turned: bool,
) -> bool {
    let most = (0..a.columns()).map(|j| largest(a.view().column(j)));
    let half = scaling(most.fold(T::Size::default(), num_traits::Float::max));
    if let Some(by) = half {
        for j in 0..a.columns() {
            a.column(j)
                .iter_mut()
                .for_each(|v| *v = v.times(by).times(by));
        }
    }
    let done = if a.rows() * 6 >= a.columns() * 11 {
        by_triangle(a, values, vectors, turned)
    } else {
        by_reflections(a, values, vectors, turned)
    };
    if let Some(by) = half {
        values.iter_mut().for_each(|v| *v = *v / by / by);
    }
    done
}

/// Of a matrix of many rows: first its triangular factor.
fn by_triangle<T: Number>(
    mut a: ViewMut<T>,
    values: &mut [T::Size],
    vectors: Option<Vectors<T>>,
    turned: bool,
) -> bool {
    let (m, n) = (a.rows(), a.columns());
    let mut taus = vec![T::zero(); n];
    reflect::factor(a.again(), &mut taus);
    let view = a.view();
    let mut r = Matrix::from_fn(n, n, |i, j| if i <= j { view.get(i, j) } else { T::zero() });
    let Some(Vectors { mut u, v }) = vectors else {
        return by_reflections(r.view_mut(), values, None, turned);
    };
    u.set_identity();
    let small = Vectors {
        u: u.block(0, 0, n, n),
        v,
    };
    let done = by_reflections(r.view_mut(), values, Some(small), turned);
    reflect::apply(a.view(), &taus, false, &mut u.block(0, 0, m, u.columns()));
    done
}

fn by_reflections<T: Number>(
    mut a: ViewMut<T>,
    values: &mut [T::Size],
    vectors: Option<Vectors<T>>,
    turned: bool,
) -> bool {
    let n = a.columns();
    let mut made = bidiagonal::reduce(&mut a);
    let turns = if turned {
        raise(&mut made.diagonal, &mut made.above)
    } else {
        Vec::new()
    };
    let done = match vectors {
        None => parted::singular(&mut made.diagonal, &mut made.above, None),
        Some(mut to) => with_vectors(&a, &mut made, turned.then_some(&turns), &mut to),
    };
    values[..n].copy_from_slice(&made.diagonal);
    done
}

/// Makes the transposed of an upper bidiagonal matrix an upper one, by rotations from the left: their cosines and sines.
/// The bidiagonal form of a wide matrix is the lower one, and its signs come of this (LAPACK's bdsdc).
fn raise<T: Real>(d: &mut [T], e: &mut [T]) -> Vec<[T; 2]> {
    let rotations = (0..d.len().saturating_sub(1)).map(|i| {
        let (c, s, r) = rotation(d[i], e[i]);
        (d[i], e[i], d[i + 1]) = (r, s * d[i + 1], c * d[i + 1]);
        [c, s]
    });
    rotations.collect()
}

/// The singular vectors of `a`, whose bidiagonal form was made; `turns` are what [`raise`] did to it.
fn with_vectors<T: Number>(
    a: &ViewMut<T>,
    made: &mut Bidiagonal<T>,
    turns: Option<&Vec<[T::Size; 2]>>,
    to: &mut Vectors<T>,
) -> bool {
    let n = made.diagonal.len();
    let zero = T::Size::default();
    let (mut u, mut v) = (Matrix::filled(n, n, zero), Matrix::filled(n, n, zero));
    let bases = Bases {
        u: u.view_mut(),
        v: v.view_mut(),
    };
    let negative = made.diagonal.first().is_some_and(|d| *d < zero);
    if !parted::singular(&mut made.diagonal, &mut made.above, Some(bases)) {
        return false;
    }
    if n == 1 && negative {
        // The only sign belongs to the left.
        (u[(0, 0)], v[(0, 0)]) = (-T::Size::one(), T::Size::one());
    }
    if let Some(turns) = turns {
        for j in 0..n {
            let mut view = u.view_mut();
            let column = view.column(j);
            for (i, &[c, s]) in turns.iter().enumerate().rev() {
                let [x, y] = [column[i], column[i + 1]];
                (column[i], column[i + 1]) = (c * x - s * y, s * x + c * y);
            }
        }
        std::mem::swap(&mut u, &mut v);
    }
    for (to, from) in [(&mut to.u, &u), (&mut to.v, &v)] {
        to.set_identity();
        for j in 0..n {
            for (to, &v) in to.column(j).iter_mut().zip(from.view().column(j)) {
                *to = T::real(v);
            }
        }
    }
    reflect::apply(a.view(), &made.left, false, &mut to.u);
    if n > 1 {
        let below = made.vectors.view().block(1, 0, n - 1, n - 1);
        let columns = to.v.columns();
        reflect::apply(
            below,
            &made.right,
            false,
            &mut to.v.block(1, 0, n - 1, columns),
        );
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::number::Factor;
    use super::super::samples::{Sample, near, orthonormal, sample, times};
    use super::*;
    use num_traits::Float;

    fn check<T: Sample>(m: usize, n: usize, full: bool, scale: f64) {
        let mut a: Matrix<T> = sample(m, n, 13);
        if n > 4 {
            // Not of full rank.
            let copy = a.view().column(1).to_vec();
            a.view_mut().column(3).copy_from_slice(&copy);
        }
        let by = T::Size::near(scale);
        let mut given = a.clone();
        given.data.iter_mut().for_each(|v| *v = v.times(by));
        let k = m.min(n);
        let (uc, vc) = if full { (m, n) } else { (k, k) };
        let (mut u, mut v) = (
            Matrix::filled(m, uc, T::zero()),
            Matrix::filled(n, vc, T::zero()),
        );
        let mut values = vec![T::Size::default(); k];
        let to = Vectors {
            u: u.view_mut(),
            v: v.view_mut(),
        };
        assert!(singular(given.clone().view_mut(), &mut values, Some(to)));
        orthonormal(&u);
        orthonormal(&v);
        let first = times(
            Factor::Plain(a.view()),
            Factor::Plain(v.view().block(0, 0, n, k)),
            m,
            k,
        );
        let second = Matrix::from_fn(m, k, |i, j| u[(i, j)].times(values[j] / by));
        near(&first, &second, 2.0 * m.max(n).max(10) as f64);
        let mut alone = vec![T::Size::default(); k];
        assert!(singular(given.view_mut(), &mut alone, None));
        for (a, b) in alone.iter().zip(&values) {
            assert!(
                ((*a - *b) / by).double().abs()
                    <= 10.0 * m.max(n) as f64 * T::Size::epsilon().double()
            );
        }
    }
    #[test]
    fn factors_multiply_to_the_matrix() {
        for (m, n) in [
            (1, 1),
            (4, 3),
            (3, 4),
            (6, 6),
            (40, 40),
            (90, 80),
            (30, 120),
            (150, 20),
        ] {
            for full in [false, true] {
                check::<f32>(m, n, full, 1.0);
                check::<f64>(m, n, full, 1.0);
                check::<num_complex::Complex<f32>>(m, n, full, 1e-30);
                check::<num_complex::Complex<f64>>(m, n, full, 1e290);
            }
        }
    }
}
