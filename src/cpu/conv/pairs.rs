//! Convolutions of bf16 on tile registers: windows are read where they lie, in copies that hold pairs of channels.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::weights;
use super::tasks::{Bytes, Tasks, step_of, worth_copies};
use super::{Geometry, Operands, Phase};
use crate::cpu::gemm::SLACK;
use crate::cpu::gemm::tiled::{Kind, Pair, Rows, SIDE, STEP, Tiled, on_tiles, pair_up};
use crate::cpu::halves::{Half, narrowed};
use crate::cpu::{pool, slice, transpose};
use crate::{DType, Device, Result, Tensor};
use half::bf16;
use std::ops::Range;

/// An element of a copy belongs to two channels; sums have single precision.
const BYTES: Bytes = Bytes { copy: 2, sum: 4 };
/// Steps along k whose tiles of weights the first cache holds beside the windows.
const PART: usize = 8;
/// Outputs whose weights are packed together.
const OUTPUTS: usize = 2 * SIDE;

/// Whether a phase is one for tiles: they must not be mostly zeros.
pub(super) fn suits(g: &Geometry, phase: &Phase, dtype: DType) -> bool {
    let full = |n: usize, tile: usize| n.next_multiple_of(tile) <= 2 * n;
    dtype == DType::BF16
        && on_tiles()
        && full(g.outputs / g.groups, SIDE)
        && full(g.inputs / g.groups, STEP)
        && !phase.is_plain(g)
        && worth_copies(g, phase, BYTES).is_some()
}

/// Channels of a step of the sum: whole steps of tiles.
pub(super) fn channels_of(g: &Geometry, phase: &Phase) -> usize {
    (step_of(g, phase) / STEP * STEP).max(STEP)
}

/// Packed weights of all groups.
pub(super) fn packed(g: &Geometry, phase: &Phase) -> usize {
    let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
    g.groups * og.next_multiple_of(OUTPUTS) * cg.next_multiple_of(STEP) * phase.taps.len()
}

/// A convolution on tiles.
struct Convolution<'a> {
    frames: &'a Frames<'a>,
    out: &'a Tensor,
    x: &'a [bf16],
    /// Packed weights, group after group.
    w: &'a [bf16],
    bias: Option<&'a [bf16]>,
    /// Channels of a step of the sum.
    channels: usize,
}

/// One phase of a convolution; the input is laid out as the geometry says, the bias dense.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn convolve(o: &Operands, g: &Geometry, phase: &Phase) -> Result<()> {
    let w = weights(o.w, g, phase, false)?;
    let tasks = Tasks::new(Frames::new(g, phase).spread(), BYTES);
    let channels = channels_of(g, phase);
    let packed = packed_weights(&w, g, phase, channels)?;
    let all = Convolution {
        frames: &tasks.frames,
        out: o.out,
        x: slice(o.x),
        w: slice(&packed),
        bias: o.bias.map(slice),
        channels,
    };
    let tiles: Vec<usize> = (0..g.outputs / g.groups).step_by(OUTPUTS).collect();
    tasks.run(&tiles, Rooms::default, |block, group, outputs, rooms| {
        all.block(block, group, outputs, rooms);
    });
    Ok(())
}

/// Weights `[group][output][input][tap]` as tiles, for so many channels a step: of every 32 outputs, and of 32 channels of each
/// tap, two tiles.
fn packed_weights(w: &Tensor, g: &Geometry, phase: &Phase, channels: usize) -> Result<Tensor> {
    let (og, cg, taps) = (g.outputs / g.groups, g.inputs / g.groups, phase.taps.len());
    let to = Tensor::empty(&[packed(g, phase) as i64], DType::BF16, Device::CPU)?;
    let from = slice::<bf16>(w);
    let start = Shared::at(to.data_ptr());
    let (padded, depth) = (
        og.next_multiple_of(OUTPUTS),
        cg.next_multiple_of(STEP) * taps,
    );
    let pieces = padded / OUTPUTS;
    pool::parallel_for(g.groups * pieces, 1, |range| {
        for i in range {
            let (group, o) = (i / pieces, i % pieces * OUTPUTS);
            let rows = &from[(group * og + o) * cg * taps..][..OUTPUTS.min(og - o) * cg * taps];
            for first in (0..cg).step_by(channels) {
                let some = channels.min(cg - first);
                let steps = some.div_ceil(STEP) * taps;
                let at = group * padded * depth + first * taps * padded + o * steps * STEP;
                // SAFETY: these tiles are packed by one task.
                let to = unsafe {
                    let to = start.get().cast::<bf16>().add(at);
                    std::slice::from_raw_parts_mut(to, OUTPUTS * steps * STEP)
                };
                pack_rows(rows, [cg, taps], first..first + some, to);
            }
        }
    });
    Ok(to)
}

/// Some channels of at most 32 outputs `[output][channel][tap]` as tiles `[step][output][channel of the step]`; what is not
/// there becomes zero.
fn pack_rows(rows: &[bf16], [all, taps]: [usize; 2], channels: Range<usize>, to: &mut [bf16]) {
    const TILES: usize = OUTPUTS * STEP;
    if rows.len() < OUTPUTS * all * taps || !channels.len().is_multiple_of(STEP) {
        to.fill(bf16::ZERO);
    }
    for (o, row) in rows.chunks_exact(all * taps).enumerate() {
        let row = &row[channels.start * taps..channels.end * taps];
        for (tiles, some) in to
            .chunks_exact_mut(TILES * taps)
            .zip(row.chunks(STEP * taps))
        {
            let count = some.len() / taps;
            let to = &mut tiles[o * STEP..][..(taps - 1) * TILES + count];
            // SAFETY: channels of all taps are there, and places for them.
            unsafe {
                let to = (to.as_mut_ptr().cast(), TILES);
                let from = (some.as_ptr().cast(), taps);
                transpose::plane(size_of::<bf16>(), to, from, [count, taps]);
            }
        }
    }
}

/// What a thread works in.
#[derive(Default)]
struct Rooms {
    /// The block that the table is for.
    block: Option<Block>,
    table: Vec<usize>,
    /// Two channels, whose elements become pairs.
    two: Vec<bf16>,
    frame: Vec<Pair>,
    sums: Vec<f32>,
    rounded: Vec<bf16>,
}

impl Convolution<'_> {
    /// Some outputs of a block of positions.
    fn block(&self, b: &Block, group: usize, outputs: Range<usize>, rooms: &mut Rooms) {
        let g = self.frames.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let taps = self.frames.phase.taps.len();
        let flat = self.frames.sizes(b).flat;
        // Sixteen rows of sums do not share sets of the first cache.
        let pitch = flat.next_multiple_of(2 * SIDE) | SIDE;
        let before = rooms
            .block
            .filter(|k| (k.units, k.count) == (b.units, b.count));
        let lanes = self.channels.min(cg).div_ceil(STEP) * (STEP / 2);
        if before.is_none() {
            rooms.table = self.frames.table(b, (0..lanes).step_by(STEP / 2));
            let room = self.frames.room(b, lanes);
            rooms.frame.resize(room, [bf16::ZERO; 2]);
            rooms.two.resize(self.frames.room(b, 2), bf16::ZERO);
        }
        let rows = outputs.len().next_multiple_of(SIDE);
        rooms.sums.resize(rows * pitch, 0.0);
        let zeros = !before.is_some_and(|k| self.frames.alike(&k, b));
        rooms.block = Some(*b);
        let padded = og.next_multiple_of(OUTPUTS);
        let of_group = group * padded * cg.next_multiple_of(STEP) * taps;
        for first in (0..cg).step_by(self.channels) {
            let some = self.channels.min(cg - first);
            let steps = some.div_ceil(STEP) * taps;
            // SAFETY: the channels lie in `x`, the rooms hold what the layout of the block says; `suits` asked for tiles.
            unsafe {
                self.fill(
                    b,
                    group * cg + first..group * cg + first + some,
                    rooms,
                    zeros,
                );
                let w = &self.w[of_group + first * taps * padded + outputs.start * steps * STEP..];
                let product = Tiled {
                    kind: Kind::Halves,
                    m: outputs.len(),
                    n: flat,
                    a: Rows::packed(w.as_ptr().cast(), steps),
                    b: rooms.frame.as_ptr().cast(),
                    places: &rooms.table[..steps],
                    lane: self.frames.each(b),
                    part: (PART / taps).max(1) * taps,
                    c: rooms.sums.as_mut_ptr().cast(),
                    pitch,
                    add: first > 0,
                };
                product.run();
            }
        }
        let outputs = group * og + outputs.start..group * og + outputs.end;
        self.round(outputs.clone(), pitch, rooms);
        // SAFETY: the result is dense in the geometry's format, and no other task has these positions.
        unsafe {
            let out = self.out.data_ptr().cast();
            self.frames.store(out, b, outputs, &rooms.rounded, pitch);
        }
    }

    /// Copies channels as pairs; those that fill the last step up are zero.
    ///
    /// # Safety
    /// The channels lie in `x`, the rooms have a step's.
    unsafe fn fill(&self, b: &Block, channels: Range<usize>, rooms: &mut Rooms, zeros: bool) {
        let (g, each) = (self.frames.g, self.frames.each(b));
        let (image, step, pixel) = g.steps();
        let (x, n) = (&self.x[channels.start * step..], channels.len());
        let whole = n.next_multiple_of(STEP) / 2;
        let there = n.div_ceil(2);
        rooms.frame[there * each..whole * each].fill([bf16::ZERO; 2]);
        let pairs = step == 1 && pixel % 2 == 0 && n % 2 == 0;
        if pairs {
            let to = rooms.frame.as_mut_ptr();
            // Steps share the copy, whose zeros a shorter one may have written over.
            let zeros = zeros || n < g.inputs / g.groups;
            // SAFETY: neighbours are pairs of the same layout.
            unsafe {
                let steps = (image / 2, 1, pixel / 2);
                self.frames
                    .fill(b, n / 2, x.as_ptr().cast(), steps, to, zeros);
            }
            return;
        }
        for (pair, to) in rooms.frame.chunks_exact_mut(each).take(there).enumerate() {
            let some = (n - 2 * pair).min(2);
            let two = rooms.two.as_mut_ptr();
            // SAFETY: the caller's.
            unsafe {
                let x = x.as_ptr().add(2 * pair * step);
                let steps = (image, step, pixel);
                self.frames.fill(b, some, x, steps, two, zeros && pair == 0);
            }
            let (a, second) = rooms.two.split_at_mut(each);
            if some == 1 {
                second[..each].fill(bf16::ZERO);
            }
            pair_up(a, second, to);
        }
    }

    /// The sums with their bias, rounded once.
    fn round(&self, outputs: Range<usize>, pitch: usize, rooms: &mut Rooms) {
        let sums = &mut rooms.sums[..outputs.len() * pitch];
        if let Some(bias) = self.bias {
            for (sums, by) in sums.chunks_exact_mut(pitch).zip(&bias[outputs]) {
                let by = by.widen();
                sums.iter_mut().for_each(|v| *v += by);
            }
        }
        // What is stored is read as lines, up to the slack.
        rooms.rounded.resize(sums.len() + SLACK, bf16::ZERO);
        narrowed(sums, &mut rooms.rounded[..sums.len()]);
    }
}
