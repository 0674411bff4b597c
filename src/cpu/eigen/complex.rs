//! Complex Schur forms: implicit single shifts (Wilkinson).

use super::Grid;
use crate::cpu::dense::columns;
use crate::cpu::dense::number::{Number, Real, hypotenuse};
use num_complex::Complex;
use num_traits::Float;

/// See [`Number::schur`](super::Number::schur).
pub(super) fn schur<R: Real>(
    h: &mut Grid<Complex<R>>,
    mut basis: Option<&mut Grid<Complex<R>>>,
) -> Option<()>
where
    Complex<R>: Number<Size = R>,
{
    let mut end = h.n;
    let mut steps = 0usize;
    while end > 0 {
        let start = split(h, end);
        if end - start == 1 {
            (end, steps) = (start, 0);
            continue;
        }
        steps += 1;
        if steps > 60 {
            return None;
        }
        let shift = shift(h, end, steps);
        step(h, basis.as_deref_mut(), start, end, shift);
    }
    Some(())
}

fn size<R: Float>(v: Complex<R>) -> R {
    v.re.abs() + v.im.abs()
}

fn split<R: Float>(h: &mut Grid<Complex<R>>, end: usize) -> usize {
    for k in (1..end).rev() {
        let mut near = size(h[(k - 1, k - 1)]) + size(h[(k, k)]);
        if near.is_zero() {
            near = h
                .data
                .iter()
                .fold(R::zero(), |m, &v| Float::max(m, size(v)));
        }
        if size(h[(k, k - 1)]) <= R::epsilon() * near {
            h[(k, k - 1)] = Complex::new(R::zero(), R::zero());
            return k;
        }
    }
    0
}

/// The eigenvalue of the last 2 x 2 block that is nearer to its last element.
fn shift<R: Float>(h: &Grid<Complex<R>>, end: usize, steps: usize) -> Complex<R> {
    let (a, b) = (h[(end - 2, end - 2)], h[(end - 2, end - 1)]);
    let (c, d) = (h[(end - 1, end - 2)], h[(end - 1, end - 1)]);
    if steps % 10 == 0 {
        return d + size(c);
    }
    let two = R::one() + R::one();
    let half = (a - d) / two;
    let root = (half * half + b * c).sqrt();
    let (plus, minus) = (half + root, half - root);
    d + if size(plus) < size(minus) {
        plus
    } else {
        minus
    }
}

/// One step on `start..end`.
fn step<R: Real>(
    h: &mut Grid<Complex<R>>,
    mut basis: Option<&mut Grid<Complex<R>>>,
    start: usize,
    end: usize,
    shift: Complex<R>,
) where
    Complex<R>: Number<Size = R>,
{
    let n = h.n;
    let (first, last) = if basis.is_some() {
        (0, n)
    } else {
        (start, end)
    };
    let (mut x, mut y) = (h[(start, start)] - shift, h[(start + 1, start)]);
    for k in start..end - 1 {
        let (cos, sin) = rotation(x, y);
        let from = k.saturating_sub(1).max(start);
        turn_rows(h, k, from..last, cos, sin);
        for i in first..(k + 3).min(end) {
            let (x, y) = (h[(i, k)], h[(i, k + 1)]);
            h[(i, k)] = x.times(cos) + sin.conj() * y;
            h[(i, k + 1)] = y.times(cos) - sin * x;
        }
        if let Some(b) = basis.as_deref_mut() {
            turn_rows(b, k, 0..n, cos, sin.conj());
        }
        if k > start {
            h[(k + 1, k - 1)] = Complex::new(R::zero(), R::zero());
        }
        if k + 2 < end {
            (x, y) = (h[(k + 1, k)], h[(k + 2, k)]);
        }
    }
}

/// Cosine (real) and sine of the rotation that turns `(x, y)` into a number and zero.
fn rotation<R: Float>(x: Complex<R>, y: Complex<R>) -> (R, Complex<R>) {
    let (a, b) = (hypotenuse(x.re, x.im), hypotenuse(y.re, y.im));
    if b.is_zero() {
        return (R::one(), Complex::new(R::zero(), R::zero()));
    }
    if a.is_zero() {
        return (R::zero(), y.conj() / b);
    }
    let length = hypotenuse(a, b);
    (a / length, (x / a) * y.conj() / length)
}

/// Part of two rows.
fn turn_rows<R: Real>(
    g: &mut Grid<Complex<R>>,
    at: usize,
    part: std::ops::Range<usize>,
    cos: R,
    sin: Complex<R>,
) where
    Complex<R>: Number<Size = R>,
{
    let n = g.n;
    let (first, rest) = g.data[at * n..].split_at_mut(n);
    columns::rotate(&mut first[part.clone()], &mut rest[part], cos, sin);
}
