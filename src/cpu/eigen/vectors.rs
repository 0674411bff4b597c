//! What a Schur form says: eigenvalues, and eigenvectors by substitution.

use super::{Grid, Number};
use num_complex::Complex;
use num_traits::{Float, One, Zero};

/// True if a 2 x 2 block begins at `k`.
fn pair<T: Number>(t: &Grid<T>, k: usize) -> bool {
    k + 1 < t.n && !t[(k + 1, k)].is_zero()
}

/// The eigenvalues, in the order of the diagonal.
pub(super) fn values<T: Number>(t: &Grid<T>) -> Vec<Complex<T::Size>> {
    let two = T::Size::one() + T::Size::one();
    let mut all = Vec::with_capacity(t.n);
    while all.len() < t.n {
        let k = all.len();
        if !pair(t, k) {
            all.push(t[(k, k)].wide());
            continue;
        }
        let (a, b) = (t[(k, k)].re(), t[(k, k + 1)].re());
        let (c, d) = (t[(k + 1, k)].re(), t[(k + 1, k + 1)].re());
        let half = (a - d) / two;
        let size = Float::max(Float::max(Float::abs(half), Float::abs(b)), Float::abs(c));
        let under = (half / size) * (half / size) + (b / size) * (c / size);
        let (re, im) = (d + half, size * Float::sqrt(Float::abs(under)));
        all.extend([Complex::new(re, im), Complex::new(re, -im)]);
    }
    all
}

/// The eigenvectors, one after the other.
pub(super) fn vectors<T: Number>(
    t: &Grid<T>,
    basis: &Grid<T>,
    values: &[Complex<T::Size>],
    scales: &[T::Size],
) -> Vec<Complex<T::Size>> {
    let n = t.n;
    let norm = t
        .data
        .iter()
        .fold(T::Size::zero(), |m, v| Float::max(m, v.abs()));
    let least = Float::max(
        T::Size::epsilon() * norm,
        T::Size::min_positive_value() / T::Size::epsilon(),
    );
    let mut all = vec![Complex::zero(); n * n];
    let mut k = 0;
    while k < n {
        let width = if pair(t, k) { 2 } else { 1 };
        let x = substitute(t, values[k], k, least);
        let (first, rest) = all[k * n..].split_at_mut(n);
        for (&x, i) in x.iter().zip(0..) {
            for (v, &b) in first.iter_mut().zip(basis.row(i)) {
                *v += x * b.wide();
            }
        }
        for (v, &s) in first.iter_mut().zip(scales) {
            *v *= s;
        }
        normalise(first);
        if width == 2 {
            for (v, x) in rest[..n].iter_mut().zip(first) {
                *v = x.conj();
            }
        }
        k += width;
    }
    all
}

/// The eigenvector of the triangular form for the value at `k`, up to that place.
fn substitute<T: Number>(
    t: &Grid<T>,
    value: Complex<T::Size>,
    k: usize,
    least: T::Size,
) -> Vec<Complex<T::Size>> {
    let one = Complex::from(T::Size::one());
    let mut x = if pair(t, k) {
        let mut x = vec![Complex::zero(); k + 2];
        x[k] = (value - t[(k + 1, k + 1)].wide()) / t[(k + 1, k)].wide();
        x[k + 1] = one;
        x
    } else {
        let mut x = vec![Complex::zero(); k + 1];
        x[k] = one;
        x
    };
    let away = |v: Complex<T::Size>| {
        if Float::abs(v.re) + Float::abs(v.im) < least {
            Complex::from(least)
        } else {
            v
        }
    };
    let large = T::Size::one() / Float::sqrt(T::Size::min_positive_value());
    let mut i = k;
    while i > 0 {
        i -= 1;
        let rest = |row: usize, from: usize| {
            let mut sum = Complex::zero();
            for (&a, &x) in t.row(row)[from..].iter().zip(&x[from..]) {
                sum += a.wide() * x;
            }
            -sum
        };
        if i > 0 && pair(t, i - 1) {
            let (r0, r1) = (rest(i - 1, i + 1), rest(i, i + 1));
            let (a, b) = (t[(i - 1, i - 1)].wide() - value, t[(i - 1, i)].wide());
            let (c, d) = (t[(i, i - 1)].wide(), t[(i, i)].wide() - value);
            let det = away_from_zero(a * d - b * c, least);
            x[i - 1] = (r0 * d - b * r1) / det;
            x[i] = (a * r1 - r0 * c) / det;
            i -= 1;
        } else {
            x[i] = rest(i, i + 1) / away(t[(i, i)].wide() - value);
        }
        let size = Float::max(Float::abs(x[i].re), Float::abs(x[i].im));
        if size > large {
            x.iter_mut().for_each(|v| *v /= size);
        }
    }
    x
}

/// A determinant that may be divided by.
fn away_from_zero<R: Float>(v: Complex<R>, least: R) -> Complex<R> {
    if v.re.abs() + v.im.abs() < least * least {
        Complex::new(least * least, R::zero())
    } else {
        v
    }
}

/// To length one, the largest component a real number.
fn normalise<R: Float>(v: &mut [Complex<R>]) {
    let most = v
        .iter()
        .fold(R::zero(), |m, x| m.max(x.re.abs()).max(x.im.abs()));
    if most.is_zero() || !most.is_finite() {
        return;
    }
    let mut square = R::zero();
    let mut largest = (R::zero(), Complex::new(R::one(), R::zero()));
    for x in v.iter_mut() {
        *x = *x / most;
        let size = x.norm_sqr();
        square = square + size;
        if size > largest.0 {
            largest = (size, *x);
        }
    }
    let real = v.iter().all(|x| x.im.is_zero());
    let turn = largest.1.conj() / largest.1.norm();
    let by = if real {
        Complex::new(R::one(), R::zero())
    } else {
        turn
    } / square.sqrt();
    for x in v.iter_mut() {
        *x = *x * by;
    }
    if !real {
        // Rounding leaves a little of what was turned away.
        if let Some(x) = v.iter_mut().max_by(|a, b| {
            a.norm_sqr()
                .partial_cmp(&b.norm_sqr())
                .unwrap_or(std::cmp::Ordering::Equal)
        }) {
            x.im = R::zero();
        }
    }
}
