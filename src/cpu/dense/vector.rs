//! Loops over columns: sums of products, multiples added, products of a matrix and a vector.

use super::columns::{self, ABREAST};
use super::number::{Number, Real};
use super::view::View;
use crate::cpu::lanes::{across, sum2_by};
use crate::cpu::simd::simd_fn;
use num_traits::{Float, Zero};

simd_fn! { wide
    /// The sum of products of real numbers.
    fn dot_real<R: Real>(x: &[R], y: &[R]) -> R {
        sum2_by(x, y, |a: R, b: R| a * b)
    }
}

simd_fn! { stream
    /// Both parts of the sum of products of pairs, the first conjugated.
    fn dot_pairs<R: Real>(x: &[R], y: &[R]) -> (R, R) {
        const WIDE: usize = 16;
        let (mut same, mut cross) = ([R::zero(); WIDE], [R::zero(); WIDE]);
        let (xs, ys) = (x.chunks_exact(WIDE), y.chunks_exact(WIDE));
        let (xr, yr) = (xs.remainder(), ys.remainder());
        for (x, y) in xs.zip(ys) {
            for i in 0..WIDE {
                same[i] += x[i] * y[i];
            }
            for i in 0..WIDE {
                cross[i] += x[i] * y[i ^ 1];
            }
        }
        for odd in cross.iter_mut().skip(1).step_by(2) {
            *odd = -*odd;
        }
        let (mut re, mut im) = (across(same, |a, b| a + b), across(cross, |a, b| a + b));
        for (x, y) in xr.chunks_exact(2).zip(yr.chunks_exact(2)) {
            re += x[0] * y[0] + x[1] * y[1];
            im += x[0] * y[1] - x[1] * y[0];
        }
        (re, im)
    }
}

/// The sum of `conj(x) y`.
#[must_use]
pub fn dot<T: Number>(x: &[T], y: &[T]) -> T {
    let (a, b) = (T::flat(x), T::flat(y));
    if T::COMPLEX {
        let (re, im) = dot_pairs(a, b);
        return T::parts(re, im);
    }
    T::real(dot_real(a, b))
}

/// `y += a x`.
pub fn add<T: Number>(y: &mut [T], a: T, x: &[T]) {
    columns::add(y, [a], [x]);
}

simd_fn! { stream
    fn scale_real<R: Real>(y: &mut [R], a: R) {
        for y in y {
            *y *= a;
        }
    }
}

/// `y *= a` with a real number.
pub fn scale<T: Number>(y: &mut [T], a: T::Size) {
    scale_real(T::flat_mut(y), a);
}

/// `y += A x`.
pub fn add_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    assert!(x.len() == n && y.len() == a.rows());
    let whole = n - n % ABREAST;
    for j in (0..whole).step_by(ABREAST) {
        columns::add(y, abreast(j, |j| x[j]), abreast(j, |j| a.column(j)));
    }
    (whole..n).for_each(|j| add(y, x[j], a.column(j)));
}

/// What there is for each of the columns of a pass.
fn abreast<V>(first: usize, of: impl Fn(usize) -> V) -> [V; ABREAST] {
    std::array::from_fn(|k| of(first + k))
}

/// `y = A' x`: the adjoint times a vector.
pub fn adjoint_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    assert!(y.len() == n && x.len() == a.rows());
    let whole = n - n % ABREAST;
    for j in (0..whole).step_by(ABREAST) {
        y[j..j + ABREAST].copy_from_slice(&columns::dot(abreast(j, |j| a.column(j)), x));
    }
    (whole..n).for_each(|j| y[j] = dot(a.column(j), x));
}

/// `y = A x` with a Hermitian matrix, of which the lower triangle is read, and of the diagonal the real parts.
pub fn hermitian_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    y.fill(T::zero());
    let whole = n - n % ABREAST;
    for j in (0..whole).step_by(ABREAST) {
        let end = j + ABREAST;
        let (above, below) = y.split_at_mut(end);
        let (by, columns) = (abreast(j, |j| x[j]), abreast(j, |c| &a.column(c)[j..]));
        // The columns below, and as rows what stands right of the diagonal.
        let mut own = if end < n {
            columns::add_and_dot(below, by, columns.map(|c| &c[ABREAST..]), &x[end..])
        } else {
            [T::zero(); ABREAST]
        };
        diagonal(&mut own, columns.map(|c| abreast(0, |r| c[r])), by);
        for (y, v) in above[j..].iter_mut().zip(own) {
            *y += v;
        }
    }
    for c in whole..n {
        let column = a.column(c);
        y[c] += x[c].times(column[c].re());
        for r in c + 1..n {
            y[r] += column[r] * x[c];
            y[c] += column[r].conj() * x[r];
        }
    }
}

/// The same of a block on the diagonal, added to `y`.
#[inline(always)]
fn diagonal<T: Number>(y: &mut [T; ABREAST], a: [[T; ABREAST]; ABREAST], x: [T; ABREAST]) {
    for c in 0..ABREAST {
        y[c] += x[c].times(a[c][c].re());
        for r in c + 1..ABREAST {
            y[r] += a[c][r] * x[c];
            y[c] += a[c][r].conj() * x[r];
        }
    }
}

/// The length of a vector, whatever the size of its elements.
#[must_use]
pub fn norm<T: Number>(x: &[T]) -> T::Size {
    let flat = T::flat(x);
    let plain = dot_real(flat, flat);
    let least = T::Size::min_positive_value() / T::Size::epsilon();
    if plain > least && Float::is_finite(plain) {
        return Float::sqrt(plain);
    }
    let most = super::number::largest(x);
    if most.is_zero() || !Float::is_finite(most) {
        return if plain.is_zero() { most } else { plain };
    }
    let sum: T::Size = flat.iter().map(|&v| (v / most) * (v / most)).sum();
    most * Float::sqrt(sum)
}
