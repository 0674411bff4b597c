//! Eigenvalues and eigenvectors of general matrices, in the matrix's own type: balanced, brought to Hessenberg form by
//! reflections, and to Schur form by shifted QR steps (`real.rs` two shifts at a time, `complex.rs` one).
//!
//! Source: Golub and Van Loan, "Matrix computations", chapter 7.

mod complex;
mod real;
mod vectors;

use num_complex::{Complex, ComplexFloat};
use num_traits::{Float, NumAssign, One, Zero};

/// What matrices are made of: real and complex numbers.
pub trait Number: ComplexFloat<Real = <Self as Number>::Size> + NumAssign {
    /// Absolute values, and the parts of complex numbers.
    type Size: Float + NumAssign;

    /// From a real number.
    fn real(v: Self::Size) -> Self;

    /// As a complex number.
    fn wide(self) -> Complex<Self::Size>;

    /// The Schur form of a Hessenberg matrix: upper triangular but for 2 x 2 blocks of conjugate pairs. `basis` is turned
    /// along. Nothing if it does not converge.
    fn schur(h: &mut Grid<Self>, basis: Option<&mut Grid<Self>>) -> Option<()>;
}

macro_rules! numbers {
    ($($real:ty)+) => { $(
        impl Number for $real {
            type Size = $real;
            fn real(v: $real) -> Self {
                v
            }
            fn wide(self) -> Complex<$real> {
                Complex::new(self, 0.0)
            }
            fn schur(h: &mut Grid<Self>, basis: Option<&mut Grid<Self>>) -> Option<()> {
                real::schur(h, basis)
            }
        }
        impl Number for Complex<$real> {
            type Size = $real;
            fn real(v: $real) -> Self {
                Complex::new(v, 0.0)
            }
            fn wide(self) -> Self {
                self
            }
            fn schur(h: &mut Grid<Self>, basis: Option<&mut Grid<Self>>) -> Option<()> {
                complex::schur(h, basis)
            }
        }
    )+ };
}
numbers! { f32 f64 }

/// A square matrix, row by row.
pub struct Grid<T> {
    n: usize,
    data: Vec<T>,
}

impl<T> std::ops::Index<(usize, usize)> for Grid<T> {
    type Output = T;
    fn index(&self, (i, j): (usize, usize)) -> &T {
        &self.data[i * self.n + j]
    }
}
impl<T> std::ops::IndexMut<(usize, usize)> for Grid<T> {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut T {
        &mut self.data[i * self.n + j]
    }
}

impl<T: Number> Grid<T> {
    fn eye(n: usize) -> Self {
        let mut made = Self {
            n,
            data: vec![T::zero(); n * n],
        };
        (0..n).for_each(|i| made[(i, i)] = T::one());
        made
    }

    fn row(&self, i: usize) -> &[T] {
        &self.data[i * self.n..(i + 1) * self.n]
    }

    fn row_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.data[i * self.n..(i + 1) * self.n]
    }
}

/// The eigenvalues of a matrix, and the eigenvectors of length one as rows.
pub struct Eigen<R> {
    /// In no particular order; conjugate pairs stand side by side.
    pub values: Vec<Complex<R>>,
    /// One after the other; none if they were not asked for.
    pub vectors: Vec<Complex<R>>,
}

/// The eigenvalues (and vectors) of a square matrix of finite numbers, given row by row; nothing if the iteration does not end.
#[must_use]
pub fn eigen<T: Number>(n: usize, data: &[T], with_vectors: bool) -> Option<Eigen<T::Size>> {
    let mut h = Grid {
        n,
        data: data.to_vec(),
    };
    let scales = balance(&mut h);
    // Vectors of the basis are rows, so that turning two of them runs along memory.
    let mut basis = with_vectors.then(|| Grid::eye(n));
    hessenberg(&mut h, basis.as_mut());
    T::schur(&mut h, basis.as_mut())?;
    let values = vectors::values(&h);
    let vectors = basis.map_or_else(Vec::new, |b| vectors::vectors(&h, &b, &values, &scales));
    Some(Eigen { values, vectors })
}

/// Scales rows and columns by powers of two until they are of about one size; gives the scales.
fn balance<T: Number>(h: &mut Grid<T>) -> Vec<T::Size> {
    let n = h.n;
    let one = T::Size::one();
    let two = one + one;
    let almost = one - one / (two * two * two * two);
    let mut scales = vec![one; n];
    // A few rounds do; matrices that want more are scaled well enough.
    for _ in 0..16 {
        let mut done = true;
        for i in 0..n {
            let (mut column, mut row) = (T::Size::zero(), T::Size::zero());
            for j in (0..n).filter(|&j| j != i) {
                column += h[(j, i)].abs();
                row += h[(i, j)].abs();
            }
            let sum = column + row;
            if !(column > T::Size::zero() && row > T::Size::zero() && Float::is_finite(sum)) {
                continue;
            }
            let mut f = one;
            while column < row / two && Float::is_finite(f) {
                f *= two;
                column = column * two * two;
            }
            while column >= row * two && f > T::Size::min_positive_value() {
                f /= two;
                column = column / two / two;
            }
            let better = (column / f + row / f) < almost * sum;
            if f == one || !better || !Float::is_normal(scales[i] * f) {
                continue;
            }
            done = false;
            scales[i] *= f;
            for j in 0..n {
                h[(i, j)] /= T::real(f);
                h[(j, i)] *= T::real(f);
            }
        }
        if done {
            break;
        }
    }
    scales
}

/// A reflection `I - scale v v*` that turns `x` into its first element alone; `x` becomes `v`. Nothing if it is that already.
fn reflection<T: Number>(x: &mut [T]) -> Option<T::Size> {
    let most = x
        .iter()
        .fold(T::Size::zero(), |m, v| Float::max(m, v.abs()));
    if x[1..].iter().all(|v| v.is_zero()) || most.is_zero() {
        return None;
    }
    let mut square = T::Size::zero();
    for v in x.iter_mut() {
        *v /= T::real(most);
        let size = v.abs();
        square += size * size;
    }
    let norm = Float::sqrt(square);
    let first = x[0].abs();
    let phase = if first.is_zero() {
        T::one()
    } else {
        x[0] / T::real(first)
    };
    x[0] += phase * T::real(norm);
    // v* v = 2 norm (norm + |x0|)
    Some(T::Size::one() / (norm * (norm + first)))
}

/// `row -= scale v` of sums of rows: the matrix `rows` from column `from` on, multiplied by a reflection from the left.
fn reflect_rows<T: Number>(h: &mut Grid<T>, rows: usize, from: usize, v: &[T], scale: T::Size) {
    let n = h.n;
    let mut sums = vec![T::zero(); n - from];
    for (k, &f) in v.iter().enumerate() {
        let f = f.conj();
        for (s, &x) in sums.iter_mut().zip(&h.row(rows + k)[from..]) {
            *s += f * x;
        }
    }
    for (k, &f) in v.iter().enumerate() {
        let f = f * T::real(scale);
        for (x, &s) in h.row_mut(rows + k)[from..].iter_mut().zip(&sums) {
            *x -= f * s;
        }
    }
}

/// Brings a matrix to Hessenberg form.
fn hessenberg<T: Number>(h: &mut Grid<T>, mut basis: Option<&mut Grid<T>>) {
    let n = h.n;
    for k in 0..n.saturating_sub(2) {
        let mut v: Vec<T> = (k + 1..n).map(|i| h[(i, k)]).collect();
        let Some(scale) = reflection(&mut v) else {
            continue;
        };
        reflect_rows(h, k + 1, k, &v, scale);
        (k + 2..n).for_each(|i| h[(i, k)] = T::zero());
        for i in 0..n {
            let row = &mut h.row_mut(i)[k + 1..];
            let mut sum = T::zero();
            for (&x, &f) in row.iter().zip(&v) {
                sum += x * f;
            }
            sum *= T::real(scale);
            for (x, &f) in row.iter_mut().zip(&v) {
                *x -= sum * f.conj();
            }
        }
        if let Some(b) = basis.as_deref_mut() {
            // Vectors are rows: their own reflection has the conjugate of v.
            let turned: Vec<T> = v.iter().map(|f| f.conj()).collect();
            reflect_rows(b, k + 1, 0, &turned, scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<T: Number>(n: usize, make: impl Fn(f64, f64) -> T) -> Vec<T> {
        let mut seed = 12345u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        (0..n * n).map(|_| make(next(), next())).collect()
    }

    /// The largest element of `A v - lambda v`.
    fn residual<T: Number<Size = f64>>(n: usize, a: &[T]) -> f64 {
        let e = eigen(n, a, true).expect("converges");
        let mut worst = 0.0f64;
        for (k, &value) in e.values.iter().enumerate() {
            let v = &e.vectors[k * n..(k + 1) * n];
            let length: f64 = v.iter().map(|x| x.norm_sqr()).sum();
            worst = worst.max((length - 1.0).abs());
            for i in 0..n {
                let sum: Complex<f64> = (0..n).map(|j| a[i * n + j].wide() * v[j]).sum();
                worst = worst.max((sum - value * v[i]).norm());
            }
        }
        worst
    }

    #[test]
    fn vectors_are_stretched_by_their_values() {
        for n in [1, 2, 3, 4, 7, 20, 61] {
            assert!(residual(n, &sample(n, |x, _| x)) < 1e-12, "{n}");
            assert!(residual(n, &sample(n, Complex::new)) < 1e-12, "{n}");
        }
    }

    #[test]
    fn special_matrices_come_to_an_end() {
        // Zero, a cycle (whose shifts vanish), a nilpotent block, repeated values, numbers of very different sizes.
        assert!(residual(3, &[0.0; 9]) == 0.0);
        let cycle: Vec<f64> = (0..25)
            .map(|i| f64::from(u8::from((i / 5 + 1) % 5 == i % 5)))
            .collect();
        assert!(residual(5, &cycle) < 1e-13);
        let nilpotent: Vec<f64> = (0..16)
            .map(|i| f64::from(u8::from(i / 4 + 1 == i % 4)))
            .collect();
        assert!(residual(4, &nilpotent) < 1e-13);
        let wild = [1.0, 1e12, 0.0, 1e-12, 2.0, 1e-12, 0.0, 1e12, 3.0];
        let e = eigen(3, &wild, false).expect("converges");
        let sum: Complex<f64> = e.values.iter().sum();
        assert!((sum - 6.0).norm() < 1e-12 && e.vectors.is_empty());
    }
}
