//! Convolutions as products with windows that are read where they lie: in small copies with zeros around them.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::weights;
use super::tasks::{Bytes, Tasks, step_of, worth_copies};
use super::{Geometry, Operands, Phase};
use crate::cpu::gemm::{Mat, SLACK, WindowElement, Windows, row_tiles};
use crate::cpu::{pool, slice};
use crate::{DType, Element, Result, Tensor};
use std::ops::Range;

/// A convolution by windows in place.
struct Convolution<'a, T> {
    frames: &'a Frames<'a>,
    out: &'a Tensor,
    x: &'a [T],
    /// Packed weights, group after group.
    w: &'a [T],
    bias: Option<&'a [T]>,
    /// Channels of a step of the sum.
    channels: usize,
}

/// How copies of a phase's windows lie, if it is worth them.
pub(super) fn frames_of<'a>(g: &'a Geometry, phase: &'a Phase, dtype: DType) -> Option<Frames<'a>> {
    let grouped = g.groups > 1 && g.outputs == g.groups;
    let here = matches!(dtype, DType::F32 | DType::F64) && (grouped || !phase.is_plain(g));
    here.then(|| worth_copies(g, phase, Bytes::of(dtype.size())))
        .flatten()
}

/// Whether a phase is worth copies of its windows.
pub(super) fn suits(g: &Geometry, phase: &Phase, dtype: DType) -> bool {
    frames_of(g, phase, dtype).is_some()
}

/// One phase of a convolution; the input is laid out as the geometry says, the bias dense.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn windows<T: WindowElement + Element>(o: &Operands, frames: Frames) -> Result<()> {
    let (g, phase) = (frames.g, frames.phase);
    let w = weights(o.w, g, phase, false)?;
    let tasks = Tasks::new(frames, Bytes::of(size_of::<T>()));
    let channels = step_of(g, phase);
    let packed = packed_weights::<T>(&w, g, phase.taps.len(), channels)?;
    let all = Convolution {
        frames: &tasks.frames,
        out: o.out,
        x: slice::<T>(o.x),
        w: slice::<T>(&packed),
        bias: o.bias.map(slice::<T>),
        channels,
    };
    let tiles: Vec<usize> = row_tiles::<T>(g.outputs / g.groups)
        .map(|(first, _)| first)
        .collect();
    tasks.run(&tiles, Rooms::default, |block, group, outputs, rooms| {
        all.block(block, group, outputs, rooms);
    });
    Ok(())
}

/// Weights `[group][output][input][tap]` as tiles, for so many channels a step.
fn packed_weights<T: WindowElement + Element>(
    w: &Tensor,
    g: &Geometry,
    taps: usize,
    channels: usize,
) -> Result<Tensor> {
    let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
    if og == 1 {
        return Ok(w.clone());
    }
    let depth = cg * taps;
    let packed = Tensor::empty(&[w.numel()], w.dtype(), crate::Device::CPU)?;
    let to = Shared::at(packed.data_ptr());
    let from = slice::<T>(w);
    let steps = cg.div_ceil(channels);
    let grain = (16384 / (og * channels * taps).max(1)).max(1);
    pool::parallel_for(g.groups * steps, grain, |r| {
        for i in r {
            let (group, first) = (i / steps, i % steps * channels);
            let len = channels.min(cg - first) * taps;
            // SAFETY: the rows of a group; each step of each group is packed by one task.
            unsafe {
                let to = to
                    .get()
                    .cast::<T>()
                    .add(group * og * depth + first * taps * og);
                let from = from[group * og * depth + first * taps..].as_ptr();
                T::pack_tiles(Mat::new(from, depth as isize, 1), og, 0, len, len, to);
            }
        }
    });
    Ok(packed)
}

/// What a thread works in.
#[derive(Default)]
struct Rooms<T> {
    /// The block that the table is for.
    block: Option<Block>,
    table: Vec<usize>,
    frame: Vec<T>,
    sums: Vec<T>,
}

impl<T: WindowElement + Element> Convolution<'_, T> {
    /// Some outputs of a block of positions.
    fn block(&self, b: &Block, group: usize, outputs: Range<usize>, rooms: &mut Rooms<T>) {
        let g = self.frames.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let taps = self.frames.phase.taps.len();
        let s = self.frames.sizes(b);
        let pitch = s.flat.next_multiple_of(16) + SLACK;
        let before = rooms
            .block
            .filter(|k| (k.units, k.count) == (b.units, b.count));
        if before.is_none() {
            rooms.table = self.frames.table(b, 0..self.channels);
            rooms
                .frame
                .resize(self.frames.room(b, self.channels), T::default());
        }
        rooms.sums.resize(outputs.len() * pitch, T::default());
        // One step leaves the zeros of the last block where those of this are.
        let alike = before.is_some_and(|k| self.frames.alike(&k, b));
        let zeros = !alike || cg > self.channels;
        rooms.block = Some(*b);
        let steps = g.steps();
        for first in (0..cg).step_by(self.channels) {
            let channels = self.channels.min(cg - first);
            let from = (group * cg + first) * steps.1;
            // SAFETY: the channels lie in `x`, the rooms hold what the layout of the block says.
            unsafe {
                let x = self.x.as_ptr().add(from);
                let frame = rooms.frame.as_mut_ptr();
                self.frames.fill(b, channels, x, steps, frame, zeros);
                let w = &self.w[(group * cg + first) * og * taps..];
                T::windows(Windows {
                    m: outputs.len(),
                    n: s.flat,
                    a: w[outputs.start * channels * taps..].as_ptr(),
                    b: rooms.frame.as_ptr(),
                    rows: &rooms.table[..channels * taps],
                    c: rooms.sums.as_mut_ptr(),
                    pitch,
                    add: first > 0,
                });
            }
        }
        if let Some(bias) = self.bias {
            for (o, sums) in outputs.clone().zip(rooms.sums.chunks_exact_mut(pitch)) {
                let by = bias[group * og + o];
                sums[..s.flat].iter_mut().for_each(|v| *v = *v + by);
            }
        }
        let outputs = group * og + outputs.start..group * og + outputs.end;
        // SAFETY: the result is dense in the geometry's format, and no other task has these positions.
        unsafe {
            self.frames
                .store(self.out.data_ptr().cast(), b, outputs, &rooms.sums, pitch)
        };
    }
}
