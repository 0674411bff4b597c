//! Matrices for tests, and what they are compared by.

use super::number::{Factor, Number, Real, set_product};
use super::view::Matrix;
use num_complex::Complex;

/// A type that tests make matrices of.
pub trait Sample: Number + std::fmt::Debug {}
impl Sample for f32 {}
impl Sample for f64 {}
impl Sample for Complex<f32> {}
impl Sample for Complex<f64> {}

/// Numbers between -1 and 1.
pub fn sample<T: Number>(rows: usize, columns: usize, seed: u64) -> Matrix<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        T::Size::near((state >> 40) as f64 / f64::from(1 << 23) - 1.0)
    };
    let data = (0..rows * columns)
        .map(|_| T::parts(next(), next()))
        .collect();
    Matrix {
        rows,
        columns,
        data,
    }
}

/// `a b`.
pub fn times<T: Number>(a: Factor<T>, b: Factor<T>, rows: usize, columns: usize) -> Matrix<T> {
    let mut out = Matrix::filled(rows, columns, T::zero());
    set_product(a, b, out.view_mut());
    out
}

/// The largest distance of two elements.
pub fn apart<T: Number>(a: &Matrix<T>, b: &Matrix<T>) -> f64 {
    assert!((a.rows, a.columns) == (b.rows, b.columns));
    let far = |(&x, &y): (&T, &T)| {
        let d = (x - y).abs().double();
        if d.is_nan() { f64::INFINITY } else { d }
    };
    a.data.iter().zip(&b.data).map(far).fold(0.0, f64::max)
}

/// Both agree up to `size` times some rounding errors.
pub fn near<T: Sample>(a: &Matrix<T>, b: &Matrix<T>, size: f64) {
    use num_traits::Float;
    let limit = 10.0 * size * T::Size::epsilon().double();
    let d = apart(a, b);
    assert!(
        d <= limit,
        "{d:e} > {limit:e} for {} x {} of {}",
        a.rows,
        a.columns,
        std::any::type_name::<T>()
    );
}

/// The columns are at right angles to each other and of length one.
pub fn orthonormal<T: Sample>(q: &Matrix<T>) {
    let v = q.view();
    let gram = times(Factor::Adjoint(v), Factor::Plain(v), q.columns, q.columns);
    let eye = Matrix::from_fn(q.columns, q.columns, |i, j| {
        if i == j { T::one() } else { T::zero() }
    });
    near(&gram, &eye, 2.0 * (q.rows as f64).max(4.0));
}

/// Values computed without vectors are those computed with them, beside `by`.
pub fn same<R: Real>(name: &str, alone: &[R], values: &[R], by: R) {
    let far = |(a, b): (&R, &R)| {
        let d = (*a / by - *b / by).double().abs();
        if d.is_nan() { f64::INFINITY } else { d }
    };
    let most = alone.iter().zip(values).map(far).fold(0.0, f64::max);
    let limit = 10.0 * values.len() as f64 * R::epsilon().double();
    assert!(
        alone.len() == values.len() && most <= limit,
        "{name}: {most:e}"
    );
}
