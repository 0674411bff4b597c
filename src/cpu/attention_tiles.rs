//! Attention of bf16 on tile registers: keys and values become pairs once, and a block of queries at a time meets them. Scores
//! and sums have single precision, weights are rounded before they are divided by their sum.

#![allow(unsafe_code, reason = "operands of tiles are written by pointer")]

use super::attention::{Inputs, SCORES, Shapes, add_mask, grain, scale_by};
use super::gemm::tiled::{Kind, Pair, Rows, SIDE, STEP, Tiled, on_tiles, pair_up};
use super::halves::{Half, narrowed};
use super::lanes::{max_of, sum_by};
use super::lines::Shared;
use super::room::{Rooms, dense_in};
use super::{pool, slice_mut, transpose, view, vmath};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Result, Tensor, dims};
use half::bf16;

/// Scores that loops take at a time, several vectors of them.
const LANES: usize = 64;
/// Steps of values of a part of the sums, where there are more than [`WHOLE`].
const PART: usize = 8;
/// Steps whose tiles of weights the first cache holds.
const WHOLE: usize = 16;

/// Whether tiles would not be mostly empty.
pub(super) fn suits(i: &Inputs, s: &Shapes) -> bool {
    let bf16 = [i.query, i.key, i.value]
        .iter()
        .all(|t| t.dtype() == DType::BF16);
    let least = [s.queries, s.keys, s.width, s.values].into_iter().min();
    bf16 && least.is_some_and(|n| n >= SIDE as i64) && on_tiles()
}

/// Steps along so many elements.
fn steps(n: usize) -> usize {
    n.div_ceil(STEP)
}

/// How blocks lie in memory.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    queries: usize,
    keys: usize,
    width: usize,
    values: usize,
    /// Queries of a block, in whole tiles.
    pub rows: usize,
    /// From one row to the next of scores, weights and sums: an odd number of cache lines, so that sixteen of them do not share
    /// sets of the first cache.
    scores: usize,
    weights: usize,
    sums: usize,
}

impl Layout {
    pub(super) fn new(s: &Shapes) -> Self {
        let [queries, keys, width, values] =
            [s.queries, s.keys, s.width, s.values].map(|n| n as usize);
        let tiles = 2 * SIDE;
        let rows = (SCORES / keys).clamp(tiles, 128) / tiles * tiles;
        Self {
            queries,
            keys,
            width,
            values,
            rows: rows.min(queries.next_multiple_of(tiles)),
            scores: keys.next_multiple_of(LANES) | SIDE,
            weights: keys.next_multiple_of(LANES) | STEP,
            sums: values.next_multiple_of(tiles) | SIDE,
        }
    }

    /// Rows of pairs, and elements of a row, of keys and of values.
    pub(super) fn pairs(&self) -> [[usize; 2]; 2] {
        [
            [steps(self.width) * SIDE, 2 * self.scores],
            [steps(self.keys) * SIDE, 2 * self.sums],
        ]
    }

    /// Elements that a task works in, of single precision and of bf16.
    pub(super) fn room(&self) -> [usize; 2] {
        let single = self.scores + self.sums;
        let halves = steps(self.width) * STEP + self.weights;
        [self.rows * single, self.rows * halves]
    }

    pub(super) fn blocks(&self) -> usize {
        self.queries.div_ceil(self.rows)
    }
}

/// As [`super::attention::attention`], of what [`suits`]: `kept` takes the logarithms in single precision, `mask` is spread out,
/// of truth values or in single precision.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn attention(
    out: &Tensor,
    kept: Option<&Tensor>,
    i: &Inputs,
    s: &Shapes,
    mask: Option<&Tensor>,
) -> Result<()> {
    let l = Layout::new(s);
    let batch = dims::numel(&s.batch)? as usize;
    let [of_keys, of_values] = l.pairs();
    let whole = |t: Tensor, [rows, columns]: [usize; 2]| {
        t.expand_to(&s.batch.concat(&[rows as i64, columns as i64]))
    };
    let work = Work {
        query: &i.query.expand_to(&s.batch.concat(&[s.queries, s.width])),
        keys: &whole(pairs_of(i.key, of_keys, turned_pairs)?, of_keys),
        values: &whole(pairs_of(i.value, of_values, stacked_pairs)?, of_values),
        mask,
        causal: i.causal,
        scale: i.scale as f32,
        sums: kept.map(|t| Shared::new(slice_mut::<f32>(t))),
        out,
        l,
    };
    let part = mask.map(|m| {
        let rows = l.rows.min(l.queries);
        view::matrix(m, 0).narrowed(0, 0, rows as i64)
    });
    // Where queries see only the keys before them, blocks are narrower than the mask.
    let part = part.filter(|p| i.causal || !p.is_contiguous());
    let rooms = Rooms::new(batch * l.blocks(), || {
        let [single, halves] = l.room();
        let mask = part.as_ref();
        Ok(Buffers {
            single: Tensor::empty(&[single as i64], DType::F32, Device::CPU)?,
            halves: Tensor::empty(&[halves as i64], DType::BF16, Device::CPU)?,
            mask: mask
                .map(|p| Tensor::empty(p.shape(), p.dtype(), Device::CPU))
                .transpose()?,
        })
    })?;
    let products = l.rows * l.keys * (l.width + l.values);
    rooms.run(batch * l.blocks(), grain(products), |task, room| {
        work.block(task / l.blocks(), task % l.blocks() * l.rows, room)
    })
}

/// Every matrix of a tensor as rows of pairs, written by `pack`.
fn pairs_of(
    t: &Tensor,
    [rows, columns]: [usize; 2],
    pack: fn(&Tensor, &mut [Pair], usize),
) -> Result<Tensor> {
    let lead = &t.shape()[..t.ndim() - 2];
    let count = dims::numel(lead)? as usize;
    let shape = crate::Dims::from(lead).concat(&[rows as i64, columns as i64]);
    let made = Tensor::empty(&shape, DType::BF16, Device::CPU)?;
    let to = Shared::at(made.data_ptr());
    let each = rows * columns / 2;
    pool::parallel_for(count, (16384 / each.max(1)).max(1), |range| {
        for i in range {
            // SAFETY: every matrix is packed by one task.
            let to = unsafe {
                std::slice::from_raw_parts_mut(to.get().cast::<Pair>().add(i * each), each)
            };
            pack(&view::matrix(t, i), to, columns / 2);
        }
    });
    Ok(made)
}

/// The rows of a matrix one after the other, each of neighbours.
fn rows_of(t: &Tensor, from: usize, len: usize, mut f: impl FnMut(usize, &[bf16])) {
    let (columns, down, right) = (t.shape()[1] as usize, t.strides()[0], t.strides()[1]);
    let mut copy = Vec::new();
    for row in 0..len {
        let at = (from + row) as i64 * down;
        let first = t
            .data_ptr()
            .cast::<bf16>()
            .wrapping_offset(at as isize)
            .cast_const();
        // SAFETY: the elements of a row lie within the tensor.
        unsafe {
            if right == 1 {
                f(row, std::slice::from_raw_parts(first, columns));
                continue;
            }
            copy.clear();
            copy.extend((0..columns as isize).map(|i| *first.offset(i * right as isize)));
        }
        f(row, &copy);
    }
}

/// The columns of a matrix in pairs, one pair after the other: of keys, whose products go along their rows.
fn turned_pairs(t: &Tensor, to: &mut [Pair], pitch: usize) {
    let [rows, columns] = [0, 1].map(|d| t.shape()[d] as usize);
    let (at, down) = (t.data_ptr(), t.strides()[0]);
    let aligned = at.cast::<u32>().is_aligned() && columns.is_multiple_of(2);
    if aligned && t.strides()[1] == 1 && down >= 0 && down % 2 == 0 {
        let from = (at.cast_const(), down as usize / 2);
        // SAFETY: pairs are words of the rows; the other side has room for all of them.
        unsafe {
            let to = (to.as_mut_ptr().cast(), pitch);
            transpose::plane(size_of::<Pair>(), to, from, [rows, columns / 2]);
        }
    } else {
        rows_of(t, 0, rows, |row, elements| {
            for (i, pair) in elements.chunks(2).enumerate() {
                let second = pair.get(1).copied().unwrap_or(bf16::ZERO);
                to[i * pitch + row] = [pair[0], second];
            }
        });
    }
    to[columns.div_ceil(2) * pitch..].fill([bf16::ZERO; 2]);
}

/// The rows of a matrix in pairs: of values, whose products go along their columns.
fn stacked_pairs(t: &Tensor, to: &mut [Pair], pitch: usize) {
    let [rows, columns] = [0, 1].map(|d| t.shape()[d] as usize);
    let mut first = vec![bf16::ZERO; columns];
    rows_of(t, 0, rows, |row, elements| {
        if row % 2 == 0 {
            first.copy_from_slice(elements);
        }
        if row % 2 == 1 {
            pair_up(&first, elements, &mut to[row / 2 * pitch..][..columns]);
        } else if row + 1 == rows {
            let none = vec![bf16::ZERO; columns];
            pair_up(&first, &none, &mut to[row / 2 * pitch..][..columns]);
        }
    });
    to[rows.div_ceil(2) * pitch..].fill([bf16::ZERO; 2]);
}

/// What a task works in.
struct Buffers {
    single: Tensor,
    halves: Tensor,
    mask: Option<Tensor>,
}

/// What all blocks have in common.
struct Work<'a> {
    query: &'a Tensor,
    keys: &'a Tensor,
    values: &'a Tensor,
    mask: Option<&'a Tensor>,
    causal: bool,
    scale: f32,
    sums: Option<Shared<f32>>,
    out: &'a Tensor,
    l: Layout,
}

impl Work<'_> {
    /// The queries from `first` on of matrix `b`.
    fn block(&self, b: usize, first: usize, room: &Buffers) -> Result<()> {
        let l = &self.l;
        let len = l.rows.min(l.queries - first);
        // Keys behind the last query of a causal block are never looked at.
        let width = if self.causal {
            l.keys.min(first + len)
        } else {
            l.keys
        };
        let (scores, sums) = slice_mut::<f32>(&room.single).split_at_mut(l.rows * l.scores);
        let (query, weights) =
            slice_mut::<bf16>(&room.halves).split_at_mut(l.rows * steps(l.width) * STEP);
        pack_queries(&view::matrix(self.query, b), first, len, query);
        let places = |rows: usize, pitch: usize| -> Vec<usize> {
            (0..steps(rows)).map(|i| i * SIDE * pitch).collect()
        };
        let product = Tiled {
            kind: Kind::Halves,
            m: len,
            n: width,
            a: Rows::packed(query.as_ptr().cast(), steps(l.width)),
            b: view::matrix(self.keys, b).data_ptr().cast(),
            places: &places(l.width, l.scores),
            lane: l.scores,
            part: steps(l.width),
            c: scores.as_mut_ptr().cast(),
            pitch: l.scores,
            add: false,
        };
        // SAFETY: `suits` asked for tiles; buffers have whole ones.
        unsafe { product.run() };
        let scale = if self.mask.is_none() && self.scale > 0.0 {
            self.scale
        } else {
            self.add_masks(b, first, width, scores, room.mask.as_ref())?;
            1.0
        };
        let mut by = [0.0; 128];
        // SAFETY: every task has its own rows.
        let mut kept = self
            .sums
            .map(|s| unsafe { s.part(b * l.queries + first, len) });
        let rows = scores.chunks_exact_mut(l.scores);
        for (i, (row, to)) in rows.zip(weights.chunks_exact_mut(l.weights)).enumerate() {
            if i == len {
                break;
            }
            let seen = if self.causal {
                width.min(first + i + 1)
            } else {
                width
            };
            let whole = seen.next_multiple_of(LANES);
            row[seen..whole].fill(f32::NEG_INFINITY);
            let all = width.next_multiple_of(STEP);
            to[whole.min(all)..all].fill(bf16::ZERO);
            let (top, sum) = weigh(&mut row[..whole], scale, &mut to[..whole]);
            by[i] = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            if let Some(kept) = &mut kept {
                kept[i] = if sum == 0.0 { 0.0 } else { top + sum.ln() };
            }
        }
        let all = steps(width);
        let product = Tiled {
            n: l.values,
            a: Rows::apart(weights.as_ptr().cast(), l.weights / 2),
            b: view::matrix(self.values, b).data_ptr().cast(),
            places: &places(width, l.sums),
            lane: l.sums,
            part: if all > WHOLE { PART } else { all },
            c: sums.as_mut_ptr().cast(),
            pitch: l.sums,
            ..product
        };
        // SAFETY: as above.
        unsafe { product.run() };
        self.store(b, first, sums, &by[..len]);
        Ok(())
    }

    /// Scales scores, and adds what a mask says.
    fn add_masks(
        &self,
        b: usize,
        first: usize,
        width: usize,
        scores: &mut [f32],
        room: Option<&Tensor>,
    ) -> Result<()> {
        let l = &self.l;
        let len = l.rows.min(l.queries - first);
        let mask = match self.mask {
            Some(m) => {
                let part = view::matrix(m, b).narrowed(0, first as i64, len as i64);
                Some(dense_in(&part.narrowed(1, 0, width as i64), room)?)
            }
            None => None,
        };
        for (i, row) in scores.chunks_exact_mut(l.scores).take(len).enumerate() {
            let row = &mut row[..width];
            if self.scale != 1.0 {
                scale_by(row, self.scale);
            }
            if let Some(mask) = &mask {
                add_mask(row, mask, i * width);
            }
        }
        Ok(())
    }

    /// Sums times a factor of each row, rounded, to their places.
    fn store(&self, b: usize, first: usize, sums: &mut [f32], by: &[f32]) {
        let l = &self.l;
        let to = view::matrix(self.out, b);
        let (down, right) = (to.strides()[0] as isize, to.strides()[1] as isize);
        let mut rounded = vec![bf16::ZERO; l.values];
        let rows = sums.chunks_exact_mut(l.sums).zip(by).enumerate();
        for (i, (row, &factor)) in rows {
            let row = &mut row[..l.values];
            scale_by(row, factor);
            narrowed(row, &mut rounded);
            let at = to.data_ptr().cast::<bf16>();
            let at = at.wrapping_offset((first + i) as isize * down);
            // SAFETY: the rows of a block lie within the result, and are this task's.
            unsafe {
                if right == 1 {
                    std::ptr::copy_nonoverlapping(rounded.as_ptr(), at, l.values);
                } else {
                    for (j, &v) in rounded.iter().enumerate() {
                        *at.offset(j as isize * right) = v;
                    }
                }
            }
        }
    }
}

/// Some queries as tiles; what fills the last step up is zero.
fn pack_queries(t: &Tensor, first: usize, len: usize, to: &mut [bf16]) {
    const TILE: usize = SIDE * STEP;
    let all = steps(t.shape()[1] as usize);
    rows_of(t, first, len, |row, elements| {
        let (both, second, row) = (row / (2 * SIDE), row / SIDE % 2, row % SIDE);
        for (step, some) in elements.chunks(STEP).enumerate() {
            let to = &mut to[((both * all + step) * 2 + second) * TILE + row * STEP..][..STEP];
            to[..some.len()].copy_from_slice(some);
            to[some.len()..].fill(bf16::ZERO);
        }
    });
}

simd_fn! { wide
    /// A row of scores becomes the exponentials of them times a factor above zero, less the largest, and is rounded; the largest,
    /// and the sum of the exponentials: 0 where no score is finite. Rows of whole vectors are quickest.
    fn weigh(row: &mut [f32], scale: f32, to: &mut [bf16]) -> (f32, f32) {
        let top = max_of(row);
        if top == f32::NEG_INFINITY && !row.iter().any(|v| v.is_nan()) {
            to.fill(bf16::ZERO);
            return (top, 0.0);
        }
        let top = top * scale;
        for v in row.iter_mut() {
            *v = vmath::exp(*v * scale - top);
        }
        for (to, &v) in to.iter_mut().zip(row.iter()) {
            *to = bf16::narrow(v);
        }
        (top, sum_by(row, |v| v))
    }
}
