//! Tensors joined in one: where the parts lie, and dense ones brought there.

#![allow(unsafe_code, reason = "tasks write disjoint rows")]

use super::copy::{copy_bytes, copy_run};
use super::lines::Shared;
use super::{iter, memory, pool};
use crate::Tensor;
use smallvec::SmallVec;

/// The tensors of a concatenation along `dim` with their places in `out`; tensors without elements are left out.
pub fn places<'t>(
    out: &Tensor,
    list: impl Iterator<Item = &'t Tensor>,
    dim: usize,
) -> Vec<(Tensor, &'t Tensor)> {
    let mut at = 0;
    list.filter(|t| t.numel() > 0)
        .map(|t| {
            let start = at;
            at += t.shape()[dim];
            (out.narrowed(dim, start, t.shape()[dim]), t)
        })
        .collect()
}

/// The tensors of a stack with their places in `out`, one index of `dim` each.
pub fn layers<'t>(
    out: &Tensor,
    list: impl Iterator<Item = &'t Tensor>,
    dim: usize,
) -> Vec<(Tensor, &'t Tensor)> {
    (0..)
        .zip(list)
        .filter(|(_, t)| t.numel() > 0)
        .map(|(i, t)| (out.selected(dim, i), t))
        .collect()
}

/// Parts of rows that are shorter than this many bytes are moved faster element by element.
const SHORT: usize = 32;
/// So few parts are worth no other way.
const FEW: usize = 64;

/// Joins dense tensors of the result's dtype along its dimension `dim`, each a part of every row; false, having done nothing, where
/// some are of another kind or parts are too short to be worth it.
pub fn rows<'t>(out: &Tensor, list: impl Iterator<Item = &'t Tensor>, dim: usize) -> bool {
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy() && t.dtype() == out.dtype();
    let rows: i64 = out.shape()[..dim].iter().product();
    let mut parts: SmallVec<[(&[u8], usize); 8]> = SmallVec::new();
    let (mut line, mut shortest) = (0, usize::MAX);
    for t in list.filter(|t| t.numel() > 0) {
        if !dense(t) {
            return false;
        }
        let part = (t.numel() / rows) as usize * t.dtype().size();
        parts.push((memory::bytes(t), part));
        shortest = shortest.min(part);
        line += part;
    }
    let rows = rows as usize;
    if !dense(out) || shortest < SHORT && rows * parts.len() > FEW {
        return false;
    }
    let to = memory::bytes_mut(out);
    if rows == 1 {
        let mut rest = to;
        for (from, part) in parts {
            let (to, after) = rest.split_at_mut(part);
            if part <= iter::GRAIN {
                to.copy_from_slice(from);
            } else {
                // SAFETY: both sides have so many bytes.
                unsafe { copy_bytes(to.as_mut_ptr(), from.as_ptr(), part) };
            }
            rest = after;
        }
        return true;
    }
    let to = Shared::new(to);
    pool::parallel_for(rows, (4 * iter::GRAIN / line.max(1)).max(1), |range| {
        for i in range {
            let mut at = i * line;
            for &(from, part) in &parts {
                let from = &from[i * part..][..part];
                // SAFETY: every row has its own bytes, and every part of it.
                unsafe { copy_run(to.part(at, part).as_mut_ptr(), from.as_ptr(), part) };
                at += part;
            }
        }
    });
    true
}
