//! Loops over columns: sums of products, multiples added, products of a matrix and a vector.

use super::number::{Number, Real};
use super::view::View;
use crate::cpu::simd::simd_fn;
use num_traits::{Float, Zero};

/// Sums kept side by side: enough for the additions of one not to wait for each other.
const LANES: usize = 32;

/// The sum of lanes, in a fixed order.
#[inline(always)]
fn total<R: Real>(lanes: &[R]) -> R {
    let mut sum = R::zero();
    for &v in lanes {
        sum += v;
    }
    sum
}

simd_fn! { stream
    /// The sum of products of real numbers.
    fn dot_real<R: Real>(x: &[R], y: &[R]) -> R {
        let mut lanes = [R::zero(); LANES];
        let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
        let (xr, yr) = (xs.remainder(), ys.remainder());
        for (x, y) in xs.zip(ys) {
            for i in 0..LANES {
                lanes[i] += x[i] * y[i];
            }
        }
        let mut rest = R::zero();
        for (&x, &y) in xr.iter().zip(yr) {
            rest += x * y;
        }
        total(&lanes) + rest
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
        let (mut re, mut im) = (total(&same), R::zero());
        for i in 0..WIDE {
            im = if i % 2 == 0 { im + cross[i] } else { im - cross[i] };
        }
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

simd_fn! { stream
    fn add_real<R: Real>(y: &mut [R], a: R, x: &[R]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y += a * x;
        }
    }
}

simd_fn! { stream
    fn add_pairs<R: Real>(y: &mut [R], a: (R, R), x: &[R]) {
        for (y, x) in y.chunks_exact_mut(2).zip(x.chunks_exact(2)) {
            y[0] += a.0 * x[0] - a.1 * x[1];
            y[1] += a.0 * x[1] + a.1 * x[0];
        }
    }
}

/// `y += a x`.
pub fn add<T: Number>(y: &mut [T], a: T, x: &[T]) {
    let (to, from) = (T::flat_mut(y), T::flat(x));
    if T::COMPLEX {
        add_pairs(to, (a.re(), a.im()), from);
    } else {
        add_real(to, a.re(), from);
    }
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

simd_fn! { stream
    /// `y += a0 x0 + a1 x1 + a2 x2 + a3 x3`.
    fn add_four_real<R: Real>(y: &mut [R], a: [R; 4], x: [&[R]; 4]) {
        let n = y.len();
        let [p, q, r, s] = x.map(|x| &x[..n]);
        for i in 0..n {
            y[i] += (a[0] * p[i] + a[1] * q[i]) + (a[2] * r[i] + a[3] * s[i]);
        }
    }
}

simd_fn! { stream
    fn add_four_pairs<R: Real>(y: &mut [R], a: [(R, R); 4], x: [&[R]; 4]) {
        let n = y.len() / 2;
        let [p, q, r, s] = x.map(|x| &x[..2 * n]);
        for i in 0..n {
            let (k, l) = (2 * i, 2 * i + 1);
            y[k] += (a[0].0 * p[k] - a[0].1 * p[l] + a[1].0 * q[k] - a[1].1 * q[l])
                + (a[2].0 * r[k] - a[2].1 * r[l] + a[3].0 * s[k] - a[3].1 * s[l]);
            y[l] += (a[0].0 * p[l] + a[0].1 * p[k] + a[1].0 * q[l] + a[1].1 * q[k])
                + (a[2].0 * r[l] + a[2].1 * r[k] + a[3].0 * s[l] + a[3].1 * s[k]);
        }
    }
}

/// `y += A x`.
pub fn add_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    assert!(x.len() == n && y.len() == a.rows());
    let mut j = 0;
    while j + 4 <= n {
        let columns = [0, 1, 2, 3].map(|k| T::flat(a.column(j + k)));
        let by = [x[j], x[j + 1], x[j + 2], x[j + 3]];
        if T::COMPLEX {
            add_four_pairs(T::flat_mut(y), by.map(|v| (v.re(), v.im())), columns);
        } else {
            add_four_real(T::flat_mut(y), by.map(|v| v.re()), columns);
        }
        j += 4;
    }
    (j..n).for_each(|j| add(y, x[j], a.column(j)));
}

simd_fn! { stream
    /// Four sums of products with one vector.
    fn dot_four_real<R: Real>(x: [&[R]; 4], y: &[R]) -> [R; 4] {
        const WIDE: usize = 8;
        let n = y.len();
        let [p, q, r, s] = x.map(|x| &x[..n]);
        let mut lanes = [[R::zero(); WIDE]; 4];
        let whole = n / WIDE * WIDE;
        let mut i = 0;
        while i < whole {
            let (v, p, q) = (&y[i..i + WIDE], &p[i..i + WIDE], &q[i..i + WIDE]);
            let (r, s) = (&r[i..i + WIDE], &s[i..i + WIDE]);
            for k in 0..WIDE {
                lanes[0][k] += p[k] * v[k];
                lanes[1][k] += q[k] * v[k];
                lanes[2][k] += r[k] * v[k];
                lanes[3][k] += s[k] * v[k];
            }
            i += WIDE;
        }
        let mut sums = [total(&lanes[0]), total(&lanes[1]), total(&lanes[2]), total(&lanes[3])];
        for i in whole..n {
            sums[0] += p[i] * y[i];
            sums[1] += q[i] * y[i];
            sums[2] += r[i] * y[i];
            sums[3] += s[i] * y[i];
        }
        sums
    }
}

/// `y = A' x`: the adjoint times a vector.
pub fn adjoint_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    assert!(y.len() == n && x.len() == a.rows());
    let mut j = 0;
    while !T::COMPLEX && j + 4 <= n {
        let columns = [0, 1, 2, 3].map(|k| T::flat(a.column(j + k)));
        let sums = dot_four_real(columns, T::flat(x));
        (0..4).for_each(|k| y[j + k] = T::real(sums[k]));
        j += 4;
    }
    (j..n).for_each(|j| y[j] = dot(a.column(j), x));
}

simd_fn! { stream
    /// `y += a x`, and the sum of `x z`.
    fn add_and_dot_real<R: Real>(y: &mut [R], a: R, x: &[R], z: &[R]) -> R {
        let mut lanes = [R::zero(); LANES];
        let n = y.len();
        let (x, z) = (&x[..n], &z[..n]);
        let whole = n / LANES * LANES;
        let mut i = 0;
        while i < whole {
            let (y, x, z) = (&mut y[i..i + LANES], &x[i..i + LANES], &z[i..i + LANES]);
            for k in 0..LANES {
                y[k] += a * x[k];
                lanes[k] += x[k] * z[k];
            }
            i += LANES;
        }
        let mut rest = R::zero();
        for i in whole..n {
            y[i] += a * x[i];
            rest += x[i] * z[i];
        }
        total(&lanes) + rest
    }
}

simd_fn! { stream
    /// Two columns at once: `y += a0 x0 + a1 x1`, and the sums of `x0 z` and `x1 z`.
    fn add_and_dot_two<R: Real>(y: &mut [R], a: (R, R), x0: &[R], x1: &[R], z: &[R]) -> (R, R) {
        const WIDE: usize = 16;
        let (mut first, mut second) = ([R::zero(); WIDE], [R::zero(); WIDE]);
        let n = y.len();
        let (x0, x1, z) = (&x0[..n], &x1[..n], &z[..n]);
        let whole = n / WIDE * WIDE;
        let mut i = 0;
        while i < whole {
            let (y, z) = (&mut y[i..i + WIDE], &z[i..i + WIDE]);
            let (p, q) = (&x0[i..i + WIDE], &x1[i..i + WIDE]);
            for k in 0..WIDE {
                y[k] += a.0 * p[k] + a.1 * q[k];
                first[k] += p[k] * z[k];
                second[k] += q[k] * z[k];
            }
            i += WIDE;
        }
        let (mut s, mut t) = (total(&first), total(&second));
        for i in whole..n {
            y[i] += a.0 * x0[i] + a.1 * x1[i];
            s += x0[i] * z[i];
            t += x1[i] * z[i];
        }
        (s, t)
    }
}

/// `y += a x`, and the sum of `conj(x) z`.
fn add_and_dot<T: Number>(y: &mut [T], a: T, x: &[T], z: &[T]) -> T {
    if T::COMPLEX {
        add(y, a, x);
        return dot(x, z);
    }
    T::real(add_and_dot_real(
        T::flat_mut(y),
        a.re(),
        T::flat(x),
        T::flat(z),
    ))
}

/// `y = A x` with a Hermitian matrix, of which the lower triangle is read, and of the diagonal the real parts.
pub fn hermitian_times<T: Number>(y: &mut [T], a: View<T>, x: &[T]) {
    let n = a.columns();
    y.fill(T::zero());
    let mut j = 0;
    while !T::COMPLEX && j + 2 <= n {
        let (first, second) = (a.column(j), a.column(j + 1));
        let (d, e, f) = (first[j].re(), first[j + 1].re(), second[j + 1].re());
        let (u, v) = (x[j].re(), x[j + 1].re());
        let (c0, c1) = (T::flat(&first[j + 2..]), T::flat(&second[j + 2..]));
        let below = T::flat_mut(&mut y[j + 2..]);
        let (s, t) = add_and_dot_two(below, (u, v), c0, c1, T::flat(&x[j + 2..]));
        y[j] += T::real(s + d * u + e * v);
        y[j + 1] += T::real(t + e * u + f * v);
        j += 2;
    }
    for j in j..n {
        let (by, column) = (x[j], a.column(j));
        let sum = add_and_dot(&mut y[j + 1..], by, &column[j + 1..], &x[j + 1..]);
        y[j] += sum + by.times(column[j].re());
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

simd_fn! { stream
    /// Turns two columns: `x, y = c x + s y, c y - s x`.
    pub fn rotate<R: Real>(x: &mut [R], y: &mut [R], c: R, s: R) {
        for (x, y) in x.iter_mut().zip(y) {
            let (a, b) = (*x, *y);
            *x = c * a + s * b;
            *y = c * b - s * a;
        }
    }
}
