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

/// Rows that are written part by part.
const ROWS: usize = 64;
/// Parts of rows that are shorter than this many bytes are moved faster element by element.
const SHORT: usize = 32;
/// So few parts are worth no other way.
const FEW: usize = 64;

/// Tensors of which each row of a result has a part, and the bytes of that.
type Parts<'a> = [(&'a [u8], usize)];

/// What writes rows whose parts all have so many bytes.
fn alike(bytes: usize) -> Option<fn(&mut [u8], &Parts, usize)> {
    Some(match bytes {
        8 => pieces::<8>,
        16 => pieces::<16>,
        32 => pieces::<32>,
        64 => pieces::<64>,
        _ => return None,
    })
}

/// Writes rows of parts of `N` bytes each, from row `first` on.
fn pieces<const N: usize>(to: &mut [u8], parts: &Parts, first: usize) {
    let (to, _) = to.as_chunks_mut::<N>();
    // Some rows at a time, so that their lines are still in the first cache when the next part comes.
    for (at, to) in (first..)
        .step_by(ROWS)
        .zip(to.chunks_mut(ROWS * parts.len()))
    {
        for (k, &(from, _)) in parts.iter().enumerate() {
            let (from, _) = from.as_chunks::<N>();
            for (to, from) in to[k..].iter_mut().step_by(parts.len()).zip(&from[at..]) {
                *to = *from;
            }
        }
    }
}

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
    let alike = alike(shortest).filter(|_| parts.iter().all(|p| p.1 == shortest));
    if !dense(out) || shortest < SHORT && alike.is_none() && rows * parts.len() > FEW {
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
        if let Some(pieces) = alike {
            // SAFETY: every task has its own rows.
            let to = unsafe { to.part(range.start * line, range.len() * line) };
            return pieces(to, &parts, range.start);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device};

    #[test]
    fn rows_are_those_of_the_parts_one_beside_the_other() {
        for width in [1i64, 8, 12, 16, 32, 64] {
            for n in [1i64, 63, 64, 65, 200] {
                let part = |k: i64, width: i64| {
                    let v: Vec<u8> = (0..n * width).map(|i| (i * 3 + k * 101) as u8).collect();
                    Tensor::from_slice(&v, &[n, width]).unwrap()
                };
                for last in [width, width + 1] {
                    let parts = [part(0, width), part(1, width), part(2, last)];
                    let whole = 2 * width + last;
                    let out = Tensor::empty(&[n, whole], DType::U8, Device::CPU).unwrap();
                    if !rows(&out, parts.iter(), 1) {
                        assert!(width < SHORT as i64);
                        continue;
                    }
                    let made = memory::bytes(&out).chunks_exact(whole as usize);
                    for (i, row) in made.enumerate() {
                        let of = |t: &Tensor| {
                            let width = t.shape()[1] as usize;
                            memory::bytes(t)[i * width..][..width].to_vec()
                        };
                        assert_eq!(row, parts.iter().flat_map(of).collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
