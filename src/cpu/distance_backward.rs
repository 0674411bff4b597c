//! Gradients of distances: every pair of rows pulls at its first row.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::Real;
use super::lines::{self, Shared};
use super::norm::by_type;
use super::room::Room;
use super::{copy, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Dims, Result, Scalar, Tensor};

/// The gradient by the first of two batches of matrices, from the gradients and values of all distances of their rows.
///
/// # Errors
/// If memory cannot be had.
pub fn cross(out: &Tensor, pairs: [&Tensor; 2], [x, y]: [&Tensor; 2], p: f64) -> Result<()> {
    let dtype = out.dtype();
    let made = lines::results(out, dtype)?;
    super::fill(&made, Scalar::Int(0))?;
    let (m, rows) = (width(out), pairs[0].shape()[pairs[0].ndim() - 2] as usize);
    if out.numel() > 0 && y.numel() > 0 {
        let batch = Dims::new(&out.shape()[..out.ndim() - 2]);
        let spread = |t: &Tensor| t.expand_to(&batch.concat(&t.shape()[t.ndim() - 2..]));
        let [g, d] = pairs.map(|t| copy::dense(t, dtype));
        let (g, d) = (g?, d?);
        let (x, y) = (
            copy::dense(&spread(x), dtype)?,
            copy::dense(&spread(y), dtype)?,
        );
        by_type!(dtype, T => {
            let (g, d) = (slice::<T>(&g), slice::<T>(&d));
            let (x, y) = (slice::<T>(&x), slice::<T>(&y));
            let others = g.len() / (x.len() / m);
            let to = Shared::new(slice_mut::<T>(&made));
            pool::parallel_for(x.len() / m, (16384 / (others * m)).max(1), |range| {
                for i in range {
                    // SAFETY: every row has its own part.
                    let row = unsafe { to.part(i * m, m) };
                    let y = &y[i / rows * others * m..][..others * m];
                    let at = i * others..(i + 1) * others;
                    pull_all(&x[i * m..][..m], y, &g[at.clone()], &d[at], p, row);
                }
            });
        });
    }
    lines::put(out, &made)
}

/// What [`cross`] takes, or [`pairs`] of one matrix.
///
/// # Errors
/// If a size overflows.
pub fn scratch(
    room: &mut Room,
    out: &Tensor,
    pairs: [&Tensor; 2],
    rows: [Option<&Tensor>; 2],
) -> Result<()> {
    let dtype = out.dtype();
    room.dense(out, dtype)?;
    if out.numel() == 0 || rows[1].is_some_and(|y| y.numel() == 0) {
        return Ok(());
    }
    room.all_dense(pairs.map(Some), dtype)?;
    let batch = Dims::new(&out.shape()[..out.ndim() - 2]);
    for t in rows.into_iter().flatten() {
        let spread = t.expand_to(&batch.concat(&t.shape()[t.ndim() - 2..]));
        room.dense(&spread, dtype)?;
    }
    Ok(())
}

/// The gradient by a matrix, from the gradients and values of the distances of all pairs of its rows.
///
/// # Errors
/// If memory cannot be had.
pub fn pairs(out: &Tensor, [g, d]: [&Tensor; 2], x: &Tensor, p: f64) -> Result<()> {
    let dtype = out.dtype();
    let made = lines::results(out, dtype)?;
    super::fill(&made, Scalar::Int(0))?;
    let (n, m) = (out.shape()[0] as usize, width(out));
    if out.numel() > 0 {
        let (g, d) = (copy::dense(g, dtype)?, copy::dense(d, dtype)?);
        let x = copy::dense(x, dtype)?;
        by_type!(dtype, T => {
            let (g, d, x) = (slice::<T>(&g), slice::<T>(&d), slice::<T>(&x));
            let to = Shared::new(slice_mut::<T>(&made));
            pool::parallel_for(n, (16384 / (n * m)).max(1), |range| {
                for i in range {
                    // SAFETY: every row has its own part.
                    let row = unsafe { to.part(i * m, m) };
                    for j in (0..n).filter(|&j| j != i) {
                        let (low, high) = (i.min(j), i.max(j));
                        let k = low * (2 * n - low - 1) / 2 + high - low - 1;
                        let (y, k) = (&x[j * m..][..m], k..k + 1);
                        pull_all(&x[i * m..][..m], y, &g[k.clone()], &d[k], p, row);
                    }
                }
            });
        });
    }
    lines::put(out, &made)
}

fn width(t: &Tensor) -> usize {
    t.shape()[t.ndim() - 1] as usize
}

simd_fn! { wide
    /// Adds to the gradient by a row `x` what its distances `d` to the rows of `y`, with gradients `g`, bring.
    fn pull_all<T: Real>(x: &[T], y: &[T], g: &[T], d: &[T], p: f64, out: &mut [T]) {
        let (zero, one) = (T::of(0.0), T::of(1.0));
        let sign = |v: T| if v > zero { one } else if v < zero { -one } else { zero };
        if p == 0.0 {
            return;
        }
        for ((y, &g), &d) in y.chunks_exact(x.len()).zip(g).zip(d) {
            let lines = out.iter_mut().zip(x).zip(y);
            if p == 1.0 {
                lines.for_each(|((o, &x), &y)| *o += g * sign(x - y));
            } else if d == zero {
                continue;
            } else if p == 2.0 {
                let share = g / d;
                lines.for_each(|((o, &x), &y)| *o += share * (x - y));
            } else if p == f64::INFINITY {
                let size = |v: T| if v < zero { -v } else { v };
                lines.for_each(|((o, &x), &y)| {
                    *o += if size(x - y) == d { g * sign(x - y) } else { zero };
                });
            } else {
                let share = g.f64_() / d.f64_().powf(p - 1.0);
                lines.filter(|((_, x), y)| x != y).for_each(|((o, &x), &y)| {
                    let gap = (x - y).f64_();
                    *o += T::of(share * gap.signum() * gap.abs().powf(p - 1.0));
                });
            }
        }
    }
}
