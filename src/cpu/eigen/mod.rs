//! Eigenvalues and eigenvectors of general matrices, in the matrix's own type: balanced, brought to Hessenberg form by
//! reflections, and to Schur form by shifted QR steps: small matrices by `real.rs` (two shifts at a time) and `complex.rs`
//! (one), large ones by steps of many shifts (`sweep.rs`) and early deflation (`deflate.rs`).
//!
//! Source: Golub and Van Loan, "Matrix computations", chapter 7.

mod complex;
mod deflate;
mod hessenberg;
mod real;
mod sweep;
mod vectors;

use crate::cpu::dense::number::{Number, Real, largest};
use crate::cpu::dense::reflect;
use crate::cpu::dense::view::{Matrix, ViewMut};
use num_complex::Complex;
use num_traits::{Float, One, Zero};
use sweep::Form;

/// Numbers whose matrices are brought to Schur form.
pub trait Spectral: Number {
    /// The Schur form of a small Hessenberg matrix: upper triangular but for 2 x 2 blocks of conjugate pairs. `basis` is
    /// turned along. Nothing if it does not converge.
    fn schur(h: &mut Grid<Self>, basis: Option<&mut Grid<Self>>) -> Option<()>;
}

macro_rules! numbers {
    ($($real:ty)+) => { $(
        impl Spectral for $real {
            fn schur(h: &mut Grid<Self>, basis: Option<&mut Grid<Self>>) -> Option<()> {
                real::schur(h, basis)
            }
        }
        impl Spectral for Complex<$real> {
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
}

/// The eigenvalues of a matrix, and the eigenvectors of length one as rows.
pub struct Eigen<R> {
    /// In no particular order; conjugate pairs stand side by side.
    pub values: Vec<Complex<R>>,
    /// One after the other; none if they were not asked for.
    pub vectors: Vec<Complex<R>>,
}

/// Rows of a block that is left to the small solvers.
const SMALL: usize = 80;

/// The eigenvalues (and vectors) of a square matrix of finite numbers, given column by column; nothing if the iteration does
/// not end.
#[must_use]
pub fn eigen<T: Spectral>(mut h: Matrix<T>, with_vectors: bool) -> Option<Eigen<T::Size>> {
    let n = h.rows;
    // At a size of about one, where products of few elements neither vanish nor overflow.
    let most = largest(&h.data);
    let power = Float::floor(Float::log2(most) * T::Size::near(0.5));
    let half = (!most.is_zero() && !power.is_zero()).then(|| Float::exp2(-power));
    if let Some(by) = half {
        h.data.iter_mut().for_each(|v| *v = v.times(by).times(by));
    }
    let scales = balance(&mut h);
    let taus = hessenberg::reduce(&mut h.view_mut());
    let mut basis = with_vectors.then(|| Matrix::filled(n, n, T::zero()));
    if let Some(q) = &mut basis {
        let mut q = q.view_mut();
        q.set_identity();
        if n > 1 {
            let below = h.view().block(1, 0, n - 1, n - 1);
            reflect::product(below, &taus, &mut q.block(1, 1, n - 1, n - 1));
        }
    }
    deflate::clear(&mut h.view_mut());
    let mut form = Form {
        h: h.view_mut(),
        basis: basis.as_mut().map(Matrix::view_mut),
    };
    schur(&mut form)?;
    let mut values = vectors::values(&h.view());
    let vectors = basis.map_or_else(Vec::new, |b| {
        vectors::vectors(h.view(), b.view(), &values, &scales)
    });
    if let Some(by) = half {
        values.iter_mut().for_each(|v| *v = *v / by / by);
    }
    Some(Eigen { values, vectors })
}

/// Brings a Hessenberg matrix to Schur form. Nothing if it does not converge.
fn schur<T: Spectral>(form: &mut Form<T>) -> Option<()> {
    let mut high = form.h.rows();
    let mut stalled = 0usize;
    while high > 0 {
        let low = split(&mut form.h, high);
        let size = high - low;
        if size <= SMALL {
            let mut block = Matrix::filled(size, size, T::zero());
            block
                .view_mut()
                .copy(form.h.view().block(low, low, size, size));
            let (made, u) = sweep::small_schur(&block)?;
            form.h.block(low, low, size, size).copy(made.view());
            form.spread(low, &u);
            (high, stalled) = (low, 0);
            continue;
        }
        stalled += 1;
        if stalled > 100 {
            return None;
        }
        let count = shifts_at_a_time(size);
        let wide = (count + count / 2).min(size / 3);
        let found = deflate::deflate(form, low, high, wide);
        let done = found.as_ref().map_or(0, |f| f.done);
        if done > 0 {
            stalled = 0;
            high -= done;
        }
        // Much that was done makes another look worth more than a step.
        if done * 100 > 14 * wide || high - low <= SMALL {
            continue;
        }
        let shifts = found.map_or_else(Vec::new, |f| f.shifts);
        let mut pairs = paired::<T>(&shifts);
        if pairs.is_empty() || stalled % 6 == 5 {
            pairs = vec![unusual(&form.h, high)];
        }
        let from = pairs.len().saturating_sub(count / 2);
        sweep::sweep(form, low, high, &pairs[from..]);
    }
    Some(())
}

/// How many shifts a step takes: LAPACK's numbers.
fn shifts_at_a_time(size: usize) -> usize {
    match size {
        0..150 => 10,
        150..590 => (size / size.ilog2() as usize).max(10) & !1,
        _ => 64,
    }
}

/// Where the last block that does not fall apart begins; what is negligible below the diagonal becomes zero.
fn split<T: Number>(h: &mut ViewMut<T>, high: usize) -> usize {
    for k in (1..high).rev() {
        let mut near = h.get(k - 1, k - 1).sum() + h.get(k, k).sum();
        if near.is_zero() {
            let all = (0..h.columns()).map(|j| largest(h.view().column(j)));
            near = all.fold(near, Float::max);
        }
        if h.get(k, k - 1).sum() <= T::Size::epsilon() * near {
            h.set(k, k - 1, T::zero());
            return k;
        }
    }
    0
}

/// Shifts two by two: conjugate ones together, real ones with their neighbours.
fn paired<T: Number>(shifts: &[Complex<T::Size>]) -> Vec<sweep::Pair<T>> {
    let make = |a: Complex<T::Size>, b: Complex<T::Size>| {
        let (sum, product) = (a + b, a * b);
        (T::parts(sum.re, sum.im), T::parts(product.re, product.im))
    };
    if T::COMPLEX {
        return shifts
            .rchunks_exact(2)
            .rev()
            .map(|p| make(p[0], p[1]))
            .collect();
    }
    let mut pairs = Vec::new();
    let mut alone = None;
    let mut rest = shifts.iter();
    while let Some(&s) = rest.next() {
        if !s.im.is_zero() {
            rest.next();
            pairs.push(make(s, s.conj()));
        } else if let Some(first) = alone.take() {
            pairs.push(make(first, s));
        } else {
            alone = Some(s);
        }
    }
    if pairs.is_empty() {
        pairs.extend(alone.map(|s| make(s, s)));
    }
    pairs
}

/// Shifts that belong to nothing, for when the usual ones go round in circles.
fn unusual<T: Number>(h: &ViewMut<T>, high: usize) -> sweep::Pair<T> {
    let size = h.get(high - 1, high - 2).sum() + h.get(high - 2, high - 3).sum();
    let base = h.get(high - 1, high - 1) + T::real(size * T::Size::near(0.75));
    (
        base + base,
        base * base + T::real(size * size * T::Size::near(0.4375)),
    )
}

/// Scales rows and columns by powers of two until they are of about one size; gives the scales.
fn balance<T: Number>(h: &mut Matrix<T>) -> Vec<T::Size> {
    let n = h.rows;
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
                column += h[(j, i)].sum();
                row += h[(i, j)].sum();
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
                h[(i, j)] = h[(i, j)].times(one / f);
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
        *v = v.over(T::real(most));
        let size = v.abs();
        square += size * size;
    }
    let norm = Float::sqrt(square);
    let first = x[0].abs();
    let phase = if first.is_zero() {
        T::one()
    } else {
        x[0].over(T::real(first))
    };
    x[0] += phase * T::real(norm);
    // v* v = 2 norm (norm + |x0|)
    Some(T::Size::one() / (norm * (norm + first)))
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
    fn residual<T: Spectral<Size = f64>>(n: usize, a: &[T]) -> f64 {
        let given = Matrix::from_fn(n, n, |i, j| a[i * n + j]);
        let e = eigen(given, true).expect("converges");
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
        for n in [1, 2, 3, 4, 7, 20, 61, 130, 310] {
            let limit = 1e-12 * (n as f64 / 60.0).max(1.0);
            let (real, complex) = (
                residual(n, &sample(n, |x, _| x)),
                residual(n, &sample(n, Complex::new)),
            );
            assert!(real < limit, "{n}: {real:e}");
            assert!(complex < limit, "{n}: {complex:e}");
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
        let n = 150;
        let large = |f: &dyn Fn(usize, usize) -> f64| {
            (0..n * n).map(|k| f(k / n, k % n)).collect::<Vec<f64>>()
        };
        let one = |yes: bool| f64::from(u8::from(yes));
        assert!(residual(n, &large(&|i, j| one((i + 1) % n == j))) < 1e-12);
        assert!(
            residual(
                n,
                &large(&|i, j| one(i == j) * (i % 7) as f64
                    + one(i == j + 1) * 1e-3
                    + one(j == i + 1))
            ) < 1e-10
        );
        assert!(residual(n, &large(&|i, j| one(i <= j))) < 1e-10);
        assert!(residual(n, &large(&|i, j| one(i == j))) == 0.0);
        let wild = [1.0, 1e12, 0.0, 1e-12, 2.0, 1e-12, 0.0, 1e12, 3.0];
        let e = eigen(Matrix::from_fn(3, 3, |i, j| wild[i * 3 + j]), false).expect("converges");
        let sum: Complex<f64> = e.values.iter().sum();
        assert!((sum - 6.0).norm() < 1e-12 && e.vectors.is_empty());
    }
}
