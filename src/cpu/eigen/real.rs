//! Real Schur forms: implicit double shifts (Francis).

use super::{Grid, reflection};
use crate::cpu::dense::columns;
use crate::cpu::dense::number::{Real, hypotenuse};
use num_traits::Float;

/// See [`Number::schur`].
pub(super) fn schur<R: Real>(h: &mut Grid<R>, mut basis: Option<&mut Grid<R>>) -> Option<()> {
    let mut end = h.n;
    let mut steps = 0usize;
    while end > 0 {
        let start = split(h, end);
        match end - start {
            1 => (end, steps) = (start, 0),
            2 => {
                part(h, basis.as_deref_mut(), start);
                (end, steps) = (start, 0);
            }
            _ => {
                steps += 1;
                if steps > 60 {
                    return None;
                }
                double_step(h, basis.as_deref_mut(), start, end, steps);
            }
        }
    }
    Some(())
}

/// Where the last block that does not fall apart begins; what is negligible below the diagonal becomes zero.
fn split<R: Real>(h: &mut Grid<R>, end: usize) -> usize {
    for k in (1..end).rev() {
        let mut near = Float::abs(h[(k - 1, k - 1)]) + Float::abs(h[(k, k)]);
        if near.is_zero() {
            near = h
                .data
                .iter()
                .fold(R::zero(), |m, &v| Float::max(m, Float::abs(v)));
        }
        if Float::abs(h[(k, k - 1)]) <= R::epsilon() * near {
            h[(k, k - 1)] = R::zero();
            return k;
        }
    }
    0
}

/// One step with both shifts of the last 2 x 2 block of `start..end`.
fn double_step<R: Real>(
    h: &mut Grid<R>,
    mut basis: Option<&mut Grid<R>>,
    start: usize,
    end: usize,
    steps: usize,
) {
    let n = h.n;
    let (a, b) = (h[(end - 2, end - 2)], h[(end - 2, end - 1)]);
    let (c, d) = (h[(end - 1, end - 2)], h[(end - 1, end - 1)]);
    let (mut trace, mut det) = (a + d, a * d - b * c);
    if steps % 10 == 0 {
        // Something else, where the usual shifts go round in circles.
        let size = Float::abs(c) + Float::abs(h[(end - 2, end - 3)]);
        let three = R::one() + R::one() + R::one();
        let base = d + size * three / (three + R::one());
        (trace, det) = (base + base, base * base + size * size);
    }
    let s = start;
    let mut x = [
        h[(s, s)] * h[(s, s)] + h[(s, s + 1)] * h[(s + 1, s)] - trace * h[(s, s)] + det,
        h[(s + 1, s)] * (h[(s, s)] + h[(s + 1, s + 1)] - trace),
        h[(s + 1, s)] * h[(s + 2, s + 1)],
    ];
    // Values alone need the block and nothing else.
    let (first, last) = if basis.is_some() {
        (0, n)
    } else {
        (start, end)
    };
    for k in start..end - 1 {
        let width = 3.min(end - k);
        if let Some(scale) = reflection(&mut x[..width]) {
            let from = k.saturating_sub(1).max(start);
            turn_rows(h, k, &x[..width], scale, from..last);
            turn_columns(h, k, &x[..width], scale, first..(k + 4).min(end));
            if let Some(b) = basis.as_deref_mut() {
                turn_rows(b, k, &x[..width], scale, 0..n);
            }
        }
        if k > start {
            (k + 1..(k + 3).min(end)).for_each(|i| h[(i, k - 1)] = R::zero());
        }
        if k + 2 < end {
            x = [h[(k + 1, k)], h[(k + 2, k)], R::zero()];
            if k + 3 < end {
                x[2] = h[(k + 3, k)];
            }
        }
    }
}

/// A reflection of two or three rows.
fn turn_rows<R: Real>(h: &mut Grid<R>, at: usize, v: &[R], scale: R, part: std::ops::Range<usize>) {
    let n = h.n;
    let (first, rest) = h.data[at * n..].split_at_mut(n);
    let first = &mut first[part.clone()];
    if let [a, b, c] = *v {
        let (second, third) = rest.split_at_mut(n);
        let (second, third) = (&mut second[part.clone()], &mut third[part]);
        columns::reflect([first, second, third], [a, b, c], scale);
    } else if let [a, b] = *v {
        columns::reflect([first, &mut rest[part]], [a, b], scale);
    }
}

/// A reflection of two or three columns.
fn turn_columns<R: Real>(
    h: &mut Grid<R>,
    at: usize,
    v: &[R],
    scale: R,
    rows: std::ops::Range<usize>,
) {
    let n = h.n;
    let lines = h.data.chunks_exact_mut(n).take(rows.end).skip(rows.start);
    if let [a, b, c] = *v {
        for line in lines {
            if let [x, y, z] = &mut line[at..at + 3] {
                let sum = (a * *x + b * *y + c * *z) * scale;
                *x -= sum * a;
                *y -= sum * b;
                *z -= sum * c;
            }
        }
    } else if let [a, b] = *v {
        for line in lines {
            if let [x, y] = &mut line[at..at + 2] {
                let sum = (a * *x + b * *y) * scale;
                *x -= sum * a;
                *y -= sum * b;
            }
        }
    }
}

/// Makes a 2 x 2 block triangular if its eigenvalues are real.
fn part<R: Real>(h: &mut Grid<R>, basis: Option<&mut Grid<R>>, k: usize) {
    let n = h.n;
    let two = R::one() + R::one();
    let (b, c, d) = (h[(k, k + 1)], h[(k + 1, k)], h[(k + 1, k + 1)]);
    let half = (h[(k, k)] - d) / two;
    let size = Float::max(Float::max(Float::abs(half), Float::abs(b)), Float::abs(c));
    let under = (half / size) * (half / size) + (b / size) * (c / size);
    if c.is_zero() || under < R::zero() {
        return;
    }
    let root = size * Float::sqrt(under);
    let z = half + if half < R::zero() { -root } else { root };
    let length = hypotenuse(z, c);
    // (z, c) is a vector of the value d + z.
    let (cos, sin) = (z / length, c / length);
    let turn = |x: &mut R, y: &mut R| {
        (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
    };
    let rows = |g: &mut Grid<R>| {
        let (first, rest) = g.data[k * n..].split_at_mut(n);
        first.iter_mut().zip(rest).for_each(|(x, y)| turn(x, y));
    };
    rows(h);
    if let Some(b) = basis {
        rows(b);
    }
    for i in 0..n {
        let (x, y) = h.data[i * n + k..].split_at_mut(1);
        turn(&mut x[0], &mut y[0]);
    }
    h[(k + 1, k)] = R::zero();
}
