//! What a Schur form says: eigenvalues, and eigenvectors by substitution.

use crate::cpu::dense::number::{Factor, Number, Real, set_product};
use crate::cpu::dense::vector;
use crate::cpu::dense::view::{Matrix, View};
use num_complex::Complex;
use num_traits::{Float, One, Zero};

/// True if a 2 x 2 block begins at `k`.
fn pair<T: Number>(t: &View<T>, k: usize) -> bool {
    k + 1 < t.rows() && !t.get(k + 1, k).is_zero()
}

/// The eigenvalues, in the order of the diagonal.
pub fn values<T: Number>(t: &View<T>) -> Vec<Complex<T::Size>> {
    let half = T::Size::near(0.5);
    let mut all = Vec::with_capacity(t.rows());
    while all.len() < t.rows() {
        let k = all.len();
        if !pair(t, k) {
            all.push(t.get(k, k).wide());
            continue;
        }
        let (a, b) = (t.get(k, k).re(), t.get(k, k + 1).re());
        let (c, d) = (t.get(k + 1, k).re(), t.get(k + 1, k + 1).re());
        let half = (a - d) * half;
        let size = Float::max(Float::max(Float::abs(half), Float::abs(b)), Float::abs(c));
        let under = (half / size) * (half / size) + (b / size) * (c / size);
        let (re, im) = (d + half, size * Float::sqrt(Float::abs(under)));
        all.extend([Complex::new(re, im), Complex::new(re, -im)]);
    }
    all
}

/// The eigenvectors, one after the other.
pub fn vectors<T: Number>(
    t: View<T>,
    basis: View<T>,
    values: &[Complex<T::Size>],
    scales: &[T::Size],
) -> Vec<Complex<T::Size>> {
    let n = t.rows();
    // Columns of the triangular form's vectors: of a conjugate pair real and imaginary parts.
    let mut x = Matrix::filled(n, n, T::zero());
    let size = (0..n).map(|j| crate::cpu::dense::number::largest(t.column(j)));
    let norm = size.fold(T::Size::zero(), Float::max);
    let tiny = T::Size::min_positive_value() / T::Size::epsilon();
    let least = Float::max(T::Size::epsilon() * norm, tiny);
    let mut k = 0;
    while k < n {
        if pair(&t, k) {
            let (mut re, mut im) = (vec![T::Size::zero(); n], vec![T::Size::zero(); n]);
            substitute_pair(t, values[k], k, least, &mut re, &mut im);
            for (i, (&re, &im)) in re.iter().zip(&im).enumerate() {
                x[(i, k)] = T::real(re);
                x[(i, k + 1)] = T::real(im);
            }
            k += 2;
        } else {
            substitute(t, k, least, x.view_mut().column(k));
            k += 1;
        }
    }
    let mut made = Matrix::filled(n, n, T::zero());
    set_product(
        Factor::Plain(basis),
        Factor::Plain(x.view()),
        made.view_mut(),
    );
    finish(t, &made, scales)
}

/// The vectors as complex numbers of length one, in the coordinates of the matrix that was given.
fn finish<T: Number>(t: View<T>, made: &Matrix<T>, scales: &[T::Size]) -> Vec<Complex<T::Size>> {
    let n = t.rows();
    let mut all = vec![Complex::zero(); n * n];
    let mut k = 0;
    while k < n {
        let (first, rest) = all[k * n..].split_at_mut(n);
        let two = pair(&t, k);
        for i in 0..n {
            let v = made[(i, k)].wide();
            let v = if two {
                Complex::new(v.re, made[(i, k + 1)].re())
            } else {
                v
            };
            first[i] = v * scales[i];
        }
        normalise(first);
        if two {
            for (v, x) in rest[..n].iter_mut().zip(first) {
                *v = x.conj();
            }
        }
        k += if two { 2 } else { 1 };
    }
    all
}

/// A number that may be divided by.
fn away<R: Float>(v: Complex<R>, least: R) -> Complex<R> {
    if v.re.abs() + v.im.abs() < least {
        Complex::new(least, R::zero())
    } else {
        v
    }
}

/// Above this, vectors are made smaller on the way.
fn large<R: Real>() -> R {
    R::one() / Float::sqrt(R::min_positive_value())
}

/// The eigenvector of the triangular form for the number on the diagonal at `k`.
fn substitute<T: Number>(t: View<T>, k: usize, least: T::Size, x: &mut [T]) {
    let value = t.get(k, k);
    x[k] = T::one();
    for (x, &t) in x[..k].iter_mut().zip(t.column(k)) {
        *x = -t;
    }
    let mut i = k;
    while i > 0 {
        i -= 1;
        if i > 0 && pair(&t, i - 1) {
            let (p, q) = two_rows(
                t,
                i - 1,
                value.wide(),
                (x[i - 1].wide(), x[i].wide()),
                least,
            );
            x[i - 1] = T::parts(p.re, p.im);
            x[i] = T::parts(q.re, q.im);
            i -= 1;
            let (low, high) = (x[i], x[i + 1]);
            vector::add(&mut x[..i], -low, &t.column(i)[..i]);
            vector::add(&mut x[..i], -high, &t.column(i + 1)[..i]);
        } else {
            let by = away((t.get(i, i) - value).wide(), least);
            let v = x[i].over(T::parts(by.re, by.im));
            x[i] = v;
            vector::add(&mut x[..i], -v, &t.column(i)[..i]);
        }
        if x[i].sum() > large() {
            let by = T::Size::one() / x[i].sum();
            vector::scale(&mut x[..=k], by);
        }
    }
}

/// The solution of two equations with the 2 x 2 block at `i`, less a value on its diagonal.
fn two_rows<T: Number>(
    t: View<T>,
    i: usize,
    value: Complex<T::Size>,
    (p, q): (Complex<T::Size>, Complex<T::Size>),
    least: T::Size,
) -> (Complex<T::Size>, Complex<T::Size>) {
    let (a, b) = (t.get(i, i).wide() - value, t.get(i, i + 1).wide());
    let (c, d) = (t.get(i + 1, i).wide(), t.get(i + 1, i + 1).wide() - value);
    // By elimination from the larger of the first column.
    let size = |v: Complex<T::Size>| Float::abs(v.re) + Float::abs(v.im);
    let ((a, b, p), (c, d, q)) = if size(a) >= size(c) {
        ((a, b, p), (c, d, q))
    } else {
        ((c, d, q), (a, b, p))
    };
    let a = away(a, least);
    let f = c / a;
    let y = (q - f * p) / away(d - f * b, least);
    ((p - b * y) / a, y)
}

/// Real and imaginary parts of the eigenvector for the conjugate pair at `k` of a real triangular form.
fn substitute_pair<T: Number>(
    t: View<T>,
    value: Complex<T::Size>,
    k: usize,
    least: T::Size,
    re: &mut [T::Size],
    im: &mut [T::Size],
) {
    let first = (value - t.get(k + 1, k + 1).wide()) / t.get(k + 1, k).wide();
    (re[k], im[k], re[k + 1]) = (first.re, first.im, T::Size::one());
    // Real forms alone have pairs: their elements are their own parts.
    let column = |j: usize, i: usize| T::flat(&t.column(j)[..i]);
    let subtract = |re: &mut [T::Size], im: &mut [T::Size], j: usize, i: usize| {
        let (a, b) = (-re[j], -im[j]);
        vector::add(&mut re[..i], a, column(j, i));
        vector::add(&mut im[..i], b, column(j, i));
    };
    subtract(re, im, k, k);
    subtract(re, im, k + 1, k);
    let mut i = k;
    while i > 0 {
        i -= 1;
        let at = |re: &[T::Size], im: &[T::Size], j: usize| Complex::new(re[j], im[j]);
        if i > 0 && pair(&t, i - 1) {
            let right = (at(re, im, i - 1), at(re, im, i));
            let (p, q) = two_rows(t, i - 1, value, right, least);
            (re[i - 1], im[i - 1], re[i], im[i]) = (p.re, p.im, q.re, q.im);
            i -= 1;
            subtract(re, im, i + 1, i);
        } else {
            let v = at(re, im, i) / away(t.get(i, i).wide() - value, least);
            (re[i], im[i]) = (v.re, v.im);
        }
        subtract(re, im, i, i);
        let size = Float::max(Float::abs(re[i]), Float::abs(im[i]));
        if size > large() {
            let by = T::Size::one() / size;
            vector::scale(&mut re[..k + 2], by);
            vector::scale(&mut im[..k + 2], by);
        }
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
    let mut largest = (R::zero(), 0);
    for (i, x) in v.iter_mut().enumerate() {
        *x = *x / most;
        let size = x.norm_sqr();
        square = square + size;
        if size > largest.0 {
            largest = (size, i);
        }
    }
    let real = v.iter().all(|x| x.im.is_zero());
    let largest = largest.1;
    let turn = v[largest].conj() / v[largest].norm();
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
        v[largest].im = R::zero();
    }
}
