//! Gradients of softmax and log_softmax along one dimension.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, sum_by, sum2_by};
use super::lines::{self, Shared};
use super::norm::{by_type, compute_type};
use super::{copy, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, Tensor};

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
    let compute = compute_type(g.dtype());
    let (g, y) = (copy::dense(g, compute)?, copy::dense(y, compute)?);
    let result = lines::results(out, compute)?;
    let n = y.shape().get(dim).map_or(1, |&n| n as usize);
    let inner: usize = y
        .shape()
        .iter()
        .skip(dim + 1)
        .map(|&d| d as usize)
        .product();
    by_type!(compute, T => run(slice::<T>(&g), slice::<T>(&y), slice_mut::<T>(&result), n, inner, log));
    lines::put(out, &result)
}

fn run<T: Real>(g: &[T], y: &[T], out: &mut [T], n: usize, inner: usize, log: bool) {
    let outer = y.len() / (n * inner);
    let width = (NEAR / n / 64 * 64).clamp(64, WIDTH).min(inner);
    let strips = inner.div_ceil(width);
    let grain = (8192 / (n * width)).max(1);
    let shared = Shared::new(out);
    pool::parallel_for(outer * strips, grain, |tasks| {
        for task in tasks {
            let at = task / strips * n * inner;
            let (g, y) = (&g[at..][..n * inner], &y[at..][..n * inner]);
            if inner == 1 {
                // SAFETY: every line has its own part.
                row(g, y, unsafe { shared.part(at, n) }, log);
            } else {
                let start = task % strips * width;
                let width = width.min(inner - start);
                strip(g, y, shared, at, [inner, start, width], log);
            }
        }
    });
}

simd_fn! { wide
    fn row<T: Real>(g: &[T], y: &[T], out: &mut [T], log: bool) {
        let lines = out.iter_mut().zip(g).zip(y);
        if log {
            let sum = sum_by(g, |v| v);
            for ((o, &g), &y) in lines {
                *o = g - y.exp_() * sum;
            }
        } else {
            let sum = sum2_by(g, y, |g, y| g * y);
            for ((o, &g), &y) in lines {
                *o = (g - sum) * y;
            }
        }
    }
}

simd_fn! { wide
    /// Some columns of a matrix, whose part of the result begins at `at`.
    fn strip<T: Real>(g: &[T], y: &[T], out: Shared<T>, at: usize, columns: [usize; 3], log: bool) {
        let [inner, start, width] = columns;
        let mut sums = [T::of(0.0); WIDTH];
        let sums = &mut sums[..width];
        for (g, y) in g.chunks_exact(inner).zip(y.chunks_exact(inner)) {
            let (g, y) = (&g[start..start + width], &y[start..start + width]);
            for j in 0..width {
                sums[j] += if log { g[j] } else { g[j] * y[j] };
            }
        }
        for (r, (g, y)) in g.chunks_exact(inner).zip(y.chunks_exact(inner)).enumerate() {
            let (g, y) = (&g[start..start + width], &y[start..start + width]);
            // SAFETY: every strip has its own columns of each row.
            let o = &mut unsafe { out.part(at + r * inner + start, width) }[..width];
            for j in 0..width {
                o[j] = if log { g[j] - y[j].exp_() * sums[j] } else { (g[j] - sums[j]) * y[j] };
            }
        }
    }
}
