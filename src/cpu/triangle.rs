//! Triangles and diagonals of matrices.

#![allow(unsafe_code, reason = "tasks write disjoint lines")]

use super::lines::Shared;
use super::{copy, iter, memory, pool};
use crate::{Dims, Result, Scalar, Tensor};
use std::ops::Range;

/// Writes to `out` a triangle of the matrices of `t`, and zeros elsewhere: the lower one up to a diagonal, or the upper one from it
/// on. Where `t` is `out` itself, only the rest is cleared.
///
/// # Errors
/// If there is no conversion between the dtypes.
pub fn keep(out: &Tensor, t: &Tensor, diagonal: i64, lower: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let kept = |r: i64, columns: i64| {
        let edge = r.saturating_add(diagonal);
        if lower {
            0..edge.saturating_add(1).clamp(0, columns)
        } else {
            edge.clamp(0, columns)..columns
        }
    };
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy() && t.dtype() == out.dtype();
    let turned = super::matrices::transposed;
    let across = !dense(out) && dense(&turned(out));
    let fits = if across {
        dense(&turned(t))
    } else {
        dense(out) && dense(t)
    };
    if !fits && !out.lies_as(t) {
        copy::copy(out, t)?;
        return keep(out, out, diagonal, lower);
    }
    if across {
        // A column that is kept down to the diagonal is a row that is kept from it on.
        return keep(&turned(out), &turned(t), diagonal.saturating_neg(), !lower);
    }
    if !dense(out) {
        return clear(out, kept);
    }
    let same = out.lies_as(t);
    let (rows, columns) = (out.shape()[out.ndim() - 2], out.shape()[out.ndim() - 1]);
    let (size, line) = (out.dtype().size(), columns as usize * out.dtype().size());
    let from = (!same).then(|| memory::bytes(t));
    let to = Shared::new(memory::bytes_mut(out));
    let lines = (out.numel() / columns) as usize;
    pool::parallel_for(lines, (iter::GRAIN / columns as usize).max(1), |range| {
        for i in range {
            let kept = kept(i as i64 % rows, columns);
            let (start, end) = (kept.start as usize * size, kept.end as usize * size);
            // SAFETY: every task has its own lines.
            let to = unsafe { to.part(i * line, line) };
            to[..start].fill(0);
            to[end..].fill(0);
            if let Some(from) = from {
                to[start..end].copy_from_slice(&from[i * line..][start..end]);
            }
        }
    });
    Ok(())
}

/// Clears what a row is not to keep, in a tensor of any layout.
fn clear(out: &Tensor, kept: impl Fn(i64, i64) -> Range<i64>) -> Result<()> {
    let n = out.ndim();
    let (rows, columns) = (out.shape()[n - 2], out.shape()[n - 1]);
    for r in 0..rows {
        let row = out.selected(n - 2, r);
        let kept = kept(r, columns);
        for gap in [0..kept.start, kept.end..columns] {
            if !gap.is_empty() {
                let part = row.narrowed(n - 2, gap.start, gap.end - gap.start);
                memory::fill(&part, Scalar::Int(0))?;
            }
        }
    }
    Ok(())
}

/// Writes zeros to `out`, and the lines of `t` to the diagonal of its dimensions `x` and `y`.
///
/// # Errors
/// If the dtype has no zero.
pub fn embed(out: &Tensor, t: &Tensor, diagonal: i64, (x, y): (usize, usize)) -> Result<()> {
    super::fill(out, Scalar::Int(0))?;
    if t.numel() == 0 {
        return Ok(());
    }
    let (down, right) = (out.strides()[x], out.strides()[y]);
    let start = if diagonal >= 0 {
        diagonal * right
    } else {
        -diagonal * down
    };
    let rest = (0..out.ndim()).filter(|&d| d != x && d != y);
    let strides: Dims = rest
        .map(|d| out.strides()[d])
        .chain([down + right])
        .collect();
    let line = out.view_with(t.shape().clone(), strides, out.offset() + start);
    copy::copy(&line, t)
}
