//! Householder reflections `I - tau v v'`, one at a time and in blocks `I - V T V'`, and QR factorisations.
//!
//! Sources: R. Schreiber and C. Van Loan, "A storage-efficient WY representation for products of Householder
//! transformations" (1989); E. Elmroth and F. Gustavson, "Applying recursion to serial and parallel QR factorization" (2000).

use super::columns;
use super::number::{Factor, Number, add_product, hypotenuse, set_product};
use super::vector;
use super::view::{Matrix, View, ViewMut};
use num_traits::{Float, One, Zero};

/// Reflections of a block.
pub const BLOCK: usize = 32;
/// Columns of a panel that are reflected one after the other.
const SMALL: usize = 8;

/// Makes `x` a multiple of the first unit vector: `x[0]` becomes that multiple, which is real, and the rest the reflection's
/// vector, whose first element is one. Gives `tau`, of which the adjoint reflection does it.
pub fn make<T: Number>(x: &mut [T]) -> T {
    let Some((first, rest)) = x.split_first_mut() else {
        return T::zero();
    };
    let below = vector::norm(rest);
    if below.is_zero() && first.im().is_zero() {
        return T::zero();
    }
    let tiny = T::Size::min_positive_value() / T::Size::epsilon();
    let length = |a: T| hypotenuse(hypotenuse(a.re(), a.im()), below);
    if length(*first) < tiny && !length(*first).is_zero() {
        // So small that the reciprocal is out of range: as a larger vector.
        let up = T::Size::one() / tiny;
        x.iter_mut().for_each(|v| *v = v.times(up));
        let tau = make(x);
        x[0] = x[0].times(tiny);
        return tau;
    }
    let norm = length(*first);
    let beta = if first.re() >= T::Size::zero() {
        -norm
    } else {
        norm
    };
    let tau = T::parts((beta - first.re()) / beta, -first.im() / beta);
    let by = T::one().over(*first - T::real(beta));
    rest.iter_mut().for_each(|v| *v *= by);
    *first = T::real(beta);
    tau
}

/// Multiplies the columns of `c` from the right by `I - scale v v'`, of which few rows are not the identity's.
pub fn turn_columns<T: Number>(c: &mut ViewMut<T>, v: &[T], scale: T::Size) {
    assert!(c.columns() == v.len());
    let (mut first, mut rest) = c.again().split_columns(1);
    if let [p, q, r] = *v {
        let (y, z) = rest.two_columns(0, 1);
        return columns::reflect([first.column(0), y, z], [p, q, r], scale);
    }
    if let [p, q] = *v {
        return columns::reflect([first.column(0), rest.column(0)], [p, q], scale);
    }
    let mut sum = vec![T::zero(); c.rows()];
    vector::add_times(&mut sum, c.view(), v);
    for (j, v) in v.iter().enumerate() {
        vector::add(c.column(j), -v.conj().times(scale), &sum);
    }
}

/// The vectors of reflections below the diagonal of `a`, with the ones and zeros that are not stored.
#[must_use]
pub fn vectors<T: Number>(a: View<T>) -> Matrix<T> {
    let mut v = Matrix::filled(a.rows(), a.columns(), T::zero());
    for j in 0..a.columns().min(a.rows()) {
        v[(j, j)] = T::one();
        v.view_mut().column(j)[j + 1..].copy_from_slice(&a.column(j)[j + 1..]);
    }
    v
}

/// The factor T of a block of reflections.
#[must_use]
pub fn block_factor<T: Number>(v: View<T>, taus: &[T]) -> Matrix<T> {
    let n = taus.len();
    let mut t = Matrix::filled(n, n, T::zero());
    let mut gram = Matrix::filled(n, n, T::zero());
    set_product(Factor::Adjoint(v), Factor::Plain(v), gram.view_mut());
    for j in 0..n {
        for i in 0..j {
            let sum = (i..j).fold(T::zero(), |s, k| s + t[(i, k)] * gram[(k, j)]);
            t[(i, j)] = -taus[j] * sum;
        }
        t[(j, j)] = taus[j];
    }
    t
}

/// Multiplies `c` from the left by `I - V T V'`, or its adjoint.
pub fn from_left<T: Number>(v: View<T>, t: View<T>, adjoint: bool, c: ViewMut<T>) {
    let (k, n) = (v.columns(), c.columns());
    if n == 0 || k == 0 {
        return;
    }
    let mut w = Matrix::filled(k, n, T::zero());
    set_product(Factor::Adjoint(v), Factor::Plain(c.view()), w.view_mut());
    let mut u = Matrix::filled(k, n, T::zero());
    let t = if adjoint {
        Factor::Adjoint(t)
    } else {
        Factor::Plain(t)
    };
    set_product(t, Factor::Plain(w.view()), u.view_mut());
    add_product(-1, Factor::Plain(v), Factor::Plain(u.view()), c);
}

/// QR factorisation in place: R on and above the diagonal, the vectors of reflections below, and their factors.
pub fn factor<T: Number>(mut a: ViewMut<T>, taus: &mut [T]) {
    let (m, n) = (a.rows(), a.columns());
    let k = m.min(n);
    assert!(taus.len() == k);
    for j in (0..k).step_by(BLOCK) {
        let wide = BLOCK.min(k - j);
        let (mut panel, rest) = a.block(j, j, m - j, n - j).split_columns(wide);
        let t = panel_factor(panel.again(), &mut taus[j..j + wide]);
        if rest.columns() > 0 {
            let v = vectors(panel.view());
            from_left(v.view(), t.view(), true, rest);
        }
    }
}

/// A panel by halves of its columns; gives its factor T.
fn panel_factor<T: Number>(a: ViewMut<T>, taus: &mut [T]) -> Matrix<T> {
    let (m, n) = (a.rows(), a.columns());
    if n <= SMALL {
        return small(a, taus);
    }
    let h = n / 2;
    let (mut left, mut right) = a.split_columns(h);
    let first = panel_factor(left.again(), &mut taus[..h]);
    let v1 = vectors(left.view());
    from_left(v1.view(), first.view(), true, right.again());
    let mut below = right.block(h, 0, m - h, n - h);
    let second = panel_factor(below.again(), &mut taus[h..]);
    let v2 = vectors(below.view());
    // T12 = -T1 (V1' V2) T2
    let low = v1.view().block(h, 0, m - h, h);
    let mut cross = Matrix::filled(h, n - h, T::zero());
    set_product(
        Factor::Adjoint(low),
        Factor::Plain(v2.view()),
        cross.view_mut(),
    );
    let mut part = Matrix::filled(h, n - h, T::zero());
    set_product(
        Factor::Plain(first.view()),
        Factor::Plain(cross.view()),
        part.view_mut(),
    );
    let mut t = Matrix::filled(n, n, T::zero());
    let mut all = t.view_mut();
    all.block(0, 0, h, h).copy(first.view());
    all.block(h, h, n - h, n - h).copy(second.view());
    let to = all.block(0, h, h, n - h);
    T::product(
        -T::one(),
        Factor::Plain(part.view()),
        Factor::Plain(second.view()),
        T::zero(),
        to,
    );
    t
}

fn small<T: Number>(mut a: ViewMut<T>, taus: &mut [T]) -> Matrix<T> {
    let n = a.columns();
    for j in 0..n {
        let (mut done, mut rest) = a.again().split_columns(j + 1);
        let column = &mut done.column(j)[j..];
        let tau = make(column);
        taus[j] = tau;
        if tau.is_zero() {
            continue;
        }
        let beta = std::mem::replace(&mut column[0], T::one());
        for k in 0..n - j - 1 {
            let other = &mut rest.column(k)[j..];
            let sum = vector::dot(column, other);
            vector::add(other, -(tau.conj() * sum), column);
        }
        column[0] = beta;
    }
    block_factor(vectors(a.view()).view(), taus)
}

/// Multiplies `c` from the left by the product of the reflections in `a`, or its adjoint.
pub fn apply<T: Number>(a: View<T>, taus: &[T], adjoint: bool, c: &mut ViewMut<T>) {
    let k = taus.len();
    let starts = (0..k).step_by(BLOCK);
    let order: Vec<usize> = if adjoint {
        starts.collect()
    } else {
        starts.rev().collect()
    };
    let (m, n) = (a.rows(), c.columns());
    for j in order {
        let wide = BLOCK.min(k - j);
        let v = vectors(a.block(j, j, m - j, wide));
        let t = block_factor(v.view(), &taus[j..j + wide]);
        from_left(v.view(), t.view(), adjoint, c.block(j, 0, m - j, n));
    }
}

/// The first columns of the product of the reflections in `a`, written to `q`.
pub fn product<T: Number>(a: View<T>, taus: &[T], q: &mut ViewMut<T>) {
    let (m, n, k) = (a.rows(), q.columns(), taus.len());
    q.set_identity();
    for j in (0..k).step_by(BLOCK).rev() {
        let wide = BLOCK.min(k - j);
        let v = vectors(a.block(j, j, m - j, wide));
        let t = block_factor(v.view(), &taus[j..j + wide]);
        // Rows and columns before are those of the identity still.
        from_left(v.view(), t.view(), false, q.block(j, j, m - j, n - j));
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, near, orthonormal, sample, times};
    use super::*;

    fn check<T: Sample>(m: usize, n: usize) {
        let a: Matrix<T> = sample(m, n, 7);
        let k = m.min(n);
        let (mut h, mut taus) = (a.clone(), vec![T::zero(); k]);
        factor(h.view_mut(), &mut taus);
        let mut q = Matrix::filled(m, k, T::zero());
        product(h.view(), &taus, &mut q.view_mut());
        orthonormal(&q);
        let r = Matrix::from_fn(k, n, |i, j| if i <= j { h[(i, j)] } else { T::zero() });
        let made = times(Factor::Plain(q.view()), Factor::Plain(r.view()), m, n);
        near(&made, &a, 2.0 * (m.max(n) as f64));
        let mut back = a.clone();
        apply(h.view(), &taus, true, &mut back.view_mut());
        let whole = Matrix::from_fn(m, n, |i, j| if i <= j { h[(i, j)] } else { T::zero() });
        near(&back, &whole, 2.0 * (m.max(n) as f64));
        apply(h.view(), &taus, false, &mut back.view_mut());
        near(&back, &a, 2.0 * (m.max(n) as f64));
    }

    #[test]
    fn factors_multiply_to_the_matrix() {
        for (m, n) in [
            (1, 1),
            (3, 5),
            (5, 3),
            (8, 8),
            (70, 70),
            (200, 33),
            (33, 90),
        ] {
            check::<f32>(m, n);
            check::<f64>(m, n);
            check::<num_complex::Complex<f32>>(m, n);
            check::<num_complex::Complex<f64>>(m, n);
        }
    }

    #[test]
    fn tiny_and_huge_columns_keep_their_digits() {
        for scale in [1e-300, 1e-160, 1.0, 1e150, 1e300] {
            let mut x = [3.0 * scale, 4.0 * scale, 12.0 * scale];
            let tau = make(&mut x);
            assert!((x[0] / scale + 13.0).abs() < 1e-13 && (tau - 16.0 / 13.0).abs() < 1e-14);
        }
        assert!(make(&mut [0.0f64; 3]) == 0.0 && make(&mut [2.0f32, 0.0]) == 0.0);
    }
}
