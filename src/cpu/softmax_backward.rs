//! Gradients of softmax and log_softmax along one dimension.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::halves::{Half as _, Pair};
use super::lanes::{Cell, Real, Two, sum2_by};
use super::lines::{self, Shared};
use super::math::RealFns;
use super::stored::Stored;
use super::{copy, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{Result, Tensor, with_dtype};
use half::{bf16, f16};

/// The most columns that are worked on together where the dimension is not the last.
const WIDTH: usize = 1024;
/// Elements of an operand that stay near while its strip is read twice.
const NEAR: usize = 1 << 16;

/// The gradient by the input, from that by the result and the result itself.
///
/// # Errors
/// If memory cannot be had.
pub fn softmax(out: &Tensor, g: &Tensor, y: &Tensor, dim: usize, log: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let dtype = out.dtype();
    let (g, y) = (copy::dense(g, dtype)?, copy::dense(y, dtype)?);
    let result = lines::results(out, dtype)?;
    let n = y.shape().get(dim).map_or(1, |&n| n as usize);
    let inner: usize = y
        .shape()
        .iter()
        .skip(dim + 1)
        .map(|&d| d as usize)
        .product();
    with_dtype!(dtype, [half float] => E, {
        run(slice::<E>(&g), slice::<E>(&y), slice_mut::<E>(&result), n, inner, log);
    }, else {});
    lines::put(out, &result)
}

fn run<E: Lines>(g: &[E], y: &[E], out: &mut [E], n: usize, inner: usize, log: bool) {
    let outer = y.len() / (n * inner);
    let width = (NEAR / n / 64 * 64).clamp(64, WIDTH).min(inner);
    let strips = inner.div_ceil(width);
    let grain = (8192 / (n * width)).max(1);
    let shared = Shared::new(out);
    pool::parallel_for(outer * strips, grain, |tasks| {
        let mut rooms = [Vec::new(), Vec::new(), Vec::new()];
        for task in tasks {
            let at = task / strips * n * inner;
            let (g, y) = (&g[at..][..n * inner], &y[at..][..n * inner]);
            if inner == 1 {
                // SAFETY: every line has its own part.
                E::line(g, y, unsafe { shared.part(at, n) }, &mut rooms, log);
            } else {
                let start = task % strips * width;
                let width = width.min(inner - start);
                strip(g, y, shared, at, [inner, start, width], &mut rooms, log);
            }
        }
    });
}

/// Elements whose lines have gradients.
trait Lines: Stored {
    /// The gradient of a line, by way of rooms where its elements have to be converted.
    fn line(g: &[Self], y: &[Self], out: &mut [Self], rooms: &mut [Vec<Self::Wide>; 3], log: bool) {
        let [a, b, c] = rooms;
        let (g, y) = (Self::wide(g, a), Self::wide(y, b));
        let sum = total(g, y, log);
        Self::fill(out, c, &mut |to| finish(g, y, to, sum, log));
    }
}

impl Lines for f16 {}
impl Lines for f32 {}
impl Lines for f64 {}
impl Lines for bf16 {
    fn line(g: &[Self], y: &[Self], out: &mut [Self], _: &mut [Vec<f32>; 3], log: bool) {
        let ((pairs_g, g), (pairs_y, y)) = (Pair::of_row(g), Pair::of_row(y));
        let (pairs, out) = Pair::of_row_mut(out);
        let last = |row: &[Self]| row.first().map_or(0.0, |v| v.widen());
        let (g, y) = ([last(g)], [last(y)]);
        let sum = total(pairs_g, pairs_y, log) + if log { g[0] } else { g[0] * y[0] };
        finish(pairs_g, pairs_y, pairs, sum, log);
        if let [out] = out {
            let mut made = [0.0];
            finish(&g, &y, &mut made, sum, log);
            *out = Self::narrow(made[0]);
        }
    }
}

simd_fn! { wide
    /// What the gradient of all elements of a line together adds to each.
    fn total<C: Cell>(g: &[C], y: &[C], log: bool) -> C::T {
        // In blocks, which keep long sums exact enough.
        let mut total = <C::T as RealFns>::of(0.0);
        for (g, y) in g.chunks(4096).zip(y.chunks(4096)) {
            total += if log { sum2_by(g, y, |g, _| g) } else { sum2_by(g, y, |g, y| g * y) };
        }
        total
    }
}

simd_fn! { wide
    fn finish<C: Cell>(g: &[C], y: &[C], out: &mut [C], sum: C::T, log: bool) {
        for ((o, &g), &y) in out.iter_mut().zip(g).zip(y) {
            *o = g.zip(y, Finish { sum, log });
        }
    }
}

/// The gradient of an element, from that by the result and the result itself.
#[derive(Clone, Copy)]
struct Finish<T> {
    sum: T,
    log: bool,
}

impl<T: Real> Two<T> for Finish<T> {
    #[inline(always)]
    fn of(self, g: T, y: T) -> T {
        if self.log {
            g - y.exp_() * self.sum
        } else {
            (g - self.sum) * y
        }
    }
}

/// Some columns of a matrix, whose part of the result begins at `at`.
fn strip<E: Stored>(
    g: &[E],
    y: &[E],
    out: Shared<E>,
    at: usize,
    [inner, start, width]: [usize; 3],
    rooms: &mut [Vec<E::Wide>; 3],
    log: bool,
) {
    let [a, b, c] = rooms;
    let mut sums = vec![<E::Wide as RealFns>::of(0.0); width];
    let rows = || g.chunks_exact(inner).zip(y.chunks_exact(inner));
    for (g, y) in rows() {
        let (g, y) = (&g[start..start + width], &y[start..start + width]);
        add_row(E::wide(g, a), E::wide(y, b), &mut sums, log);
    }
    for (r, (g, y)) in rows().enumerate() {
        let (g, y) = (&g[start..start + width], &y[start..start + width]);
        let (g, y) = (E::wide(g, a), E::wide(y, b));
        // SAFETY: every strip has its own columns of each row.
        let to = unsafe { out.part(at + r * inner + start, width) };
        E::fill(to, c, &mut |to| finish_row(g, y, &sums, to, log));
    }
}

simd_fn! { wide
    fn add_row<T: Real>(g: &[T], y: &[T], sums: &mut [T], log: bool) {
        for ((s, &g), &y) in sums.iter_mut().zip(g).zip(y) {
            *s += if log { g } else { g * y };
        }
    }
}

simd_fn! { wide
    fn finish_row<T: Real>(g: &[T], y: &[T], sums: &[T], out: &mut [T], log: bool) {
        for (((o, &g), &y), &sum) in out.iter_mut().zip(g).zip(y).zip(sums) {
            *o = Finish { sum, log }.of(g, y);
        }
    }
}
