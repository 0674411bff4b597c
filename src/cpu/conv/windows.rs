//! Convolutions as products with windows that are read where they lie: in small copies with zeros around them.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames, turn};
use super::gather::{copy_lines, weights};
use super::{Geometry, Phase};
use crate::cpu::gemm::{Mat, SLACK, WindowElement, Windows, row_tiles};
use crate::cpu::simd::second_cache;
use crate::cpu::{pool, slice};
use crate::{DType, Element, Result, Tensor};
use std::ops::Range;

/// A copy of windows has this part of the second cache, which holds its results and the weights of a tile besides.
const FRAME: usize = 5;
/// The results of a block have this part.
const RESULT: usize = 2;
/// Steps of a product between which sums are stored.
const DEPTH: usize = 2304;
/// Outputs that are worth a task, which makes its own copy of the windows.
const FEWEST: usize = 64;
/// Bytes of a copy for few channels a group, of which the first cache holds two.
const SMALL: usize = 14 << 10;

/// A convolution by windows in place.
struct Convolution<'a, T> {
    frames: Frames<'a>,
    out: &'a Tensor,
    x: &'a [T],
    /// Packed weights, group after group.
    w: &'a [T],
    bias: Option<&'a [T]>,
    /// Channels of a step of the sum.
    channels: usize,
    /// Positions of a block.
    count: [usize; 2],
    units: usize,
}

/// Whether a phase is worth copies of its windows: they must not be mostly zeros, or overlap too much.
pub(super) fn suits(g: &Geometry, phase: &Phase, dtype: DType) -> bool {
    if !matches!(dtype, DType::F32 | DType::F64)
        || phase.taps.is_empty()
        || phase.count.contains(&0)
        || g.batch == 0
    {
        return false;
    }
    let grouped = g.groups > 1 && g.outputs == g.groups;
    if phase.is_plain(g) && !grouped {
        return false;
    }
    let frames = Frames::new(g, phase);
    let (count, units) = extents(&frames, g, dtype.size(), 1);
    let block = Block {
        unit: 0,
        units,
        first: [0; 2],
        count,
    };
    let s = frames.sizes(&block);
    let useful = units * count[0] * count[1];
    let copied = frames.planes() * s.plane;
    s.flat <= 2 * useful + SLACK && copied <= 3 * useful * phase.taps.len() + 4096
}

/// Channels of a step, which all blocks share.
fn step_of(g: &Geometry, phase: &Phase) -> usize {
    (DEPTH / phase.taps.len()).clamp(1, g.inputs / g.groups)
}

/// Lines, columns and slices of a block: what fits the caches, and less if so many threads would have nothing to do.
pub(super) fn extents(
    frames: &Frames,
    g: &Geometry,
    size: usize,
    threads: usize,
) -> ([usize; 2], usize) {
    let phase = frames.phase;
    let [depth, h, w] = phase.count;
    let (channels, og) = (step_of(g, phase), g.outputs / g.groups);
    let few = channels * frames.planes() <= 4;
    let each = channels * frames.planes() * size;
    let cache = second_cache();
    let most = if few { SMALL } else { cache / FRAME } / each;
    let total = g.batch * depth * h * w;
    let shares = 4 * threads;
    let share = (total * g.groups)
        .div_ceil(shares)
        .max(if few { 512 } else { 128 });
    let most = most.min(cache / RESULT / (og * size)).min(share).max(64);
    if h * w <= most {
        let all = g.batch * depth;
        let units = (most / (h * w)).clamp(1, all);
        return ([h, w], all.div_ceil(all.div_ceil(units)));
    }
    if w <= most {
        let lines = most / w;
        return ([h.div_ceil(h.div_ceil(lines)), w], 1);
    }
    let width = most / 32 * 32;
    ([1, w.div_ceil(w.div_ceil(width))], 1)
}

/// One phase of a convolution; `x` is laid out as the geometry says, the bias dense.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn windows<T: WindowElement + Element>(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
    phase: &Phase,
) -> Result<()> {
    let w = weights(w, g, phase, false)?;
    let frames = Frames::new(g, phase);
    let (count, units) = extents(&frames, g, size_of::<T>(), pool::num_threads());
    let channels = step_of(g, phase);
    let packed = packed_weights::<T>(&w, g, phase.taps.len(), channels)?;
    let all = Convolution {
        frames,
        out,
        x: slice::<T>(x),
        w: slice::<T>(&packed),
        bias: bias.map(slice::<T>),
        channels,
        count,
        units,
    };
    all.run();
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
struct Rooms<T> {
    /// The block that the table is for.
    block: Option<Block>,
    table: Vec<usize>,
    frame: Vec<T>,
    sums: Vec<T>,
}

impl<T: WindowElement + Element> Convolution<'_, T> {
    fn run(&self) {
        let phase = self.frames.phase;
        let [depth, h, w] = phase.count;
        let [lines, width] = self.count;
        let g = self.frames.g;
        let cuts = [h.div_ceil(lines), w.div_ceil(width)];
        let blocks = (g.batch * depth).div_ceil(self.units) * cuts[0] * cuts[1];
        let parts = self.parts(blocks * g.groups);
        let work = self.units * lines * width * phase.taps.len() * (g.inputs / g.groups);
        let grain = (65536 / (work * (g.outputs / g.groups / parts.len())).max(1)).max(1);
        // A group after the other for the same block, so that neighbouring tasks are alike.
        pool::parallel_for(blocks * g.groups * parts.len(), grain, |range| {
            let mut rooms = Rooms {
                block: None,
                table: Vec::new(),
                frame: Vec::new(),
                sums: Vec::new(),
            };
            for task in range {
                let (task, part) = (task / parts.len(), &parts[task % parts.len()]);
                let (at, group) = (task / g.groups, task % g.groups);
                let (unit, rest) = (at / (cuts[0] * cuts[1]), at % (cuts[0] * cuts[1]));
                let first = [rest / cuts[1] * lines, rest % cuts[1] * width];
                let block = Block {
                    unit: unit * self.units,
                    units: self.units.min(g.batch * depth - unit * self.units),
                    first,
                    count: [lines.min(h - first[0]), width.min(w - first[1])],
                };
                self.block(&block, group, part.clone(), &mut rooms);
            }
        });
    }

    /// The outputs of a group that a task makes: some of them, whole tiles of weights, where there are few tasks.
    fn parts(&self, tasks: usize) -> Vec<Range<usize>> {
        let (g, threads) = (self.frames.g, pool::num_threads());
        let og = g.outputs / g.groups;
        let wanted = match threads {
            1 => 1,
            _ => (2 * threads).div_ceil(tasks.max(1)).min(og / FEWEST).max(1),
        };
        if wanted == 1 {
            return std::iter::once(0..og).collect();
        }
        let tiles: Vec<usize> = row_tiles::<T>(og).map(|(first, _)| first).collect();
        let start = |i: usize| {
            tiles
                .get(i * tiles.len() / wanted)
                .map_or(og, |&first| first)
        };
        (0..wanted).map(|i| start(i)..start(i + 1)).collect()
    }

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
            rooms.table = self.frames.table(b, self.channels);
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
        self.store(b, outputs, &rooms.sums, pitch);
    }

    /// Puts the sums of a block to their places.
    fn store(&self, b: &Block, outputs: Range<usize>, sums: &[T], pitch: usize) {
        let (g, phase, s) = (self.frames.g, self.frames.phase, self.frames.sizes(b));
        let (first, count, all) = (outputs.start, outputs.len(), g.positions());
        let place = |i: usize, t: usize| phase.first[i] + phase.step[i] * t;
        let out = self.out.data_ptr().cast::<T>();
        let (n, step) = (b.count[1], phase.step[2]);
        for (slice, (image, d)) in self.frames.slices(b).enumerate() {
            let line = place(0, d) * g.out[1] + place(1, b.first[0]);
            let (from, apart) = (&sums[slice * s.lines * s.pitch..], phase.step[1] * g.out[2]);
            let at = line * g.out[2] + place(2, b.first[1]);
            // SAFETY: lines and channels lie within the dense result; no other task has these positions.
            unsafe {
                if g.channels_last {
                    let to = out.add((image * all + at) * g.outputs + first);
                    for row in 0..b.count[0] {
                        let (from, to) = (
                            from.as_ptr().add(row * s.pitch),
                            to.add(row * apart * g.outputs),
                        );
                        turn(from, pitch, to, step * g.outputs, count, n);
                    }
                    continue;
                }
                let to = out.add((image * g.outputs + first) * all + at);
                for o in 0..count {
                    let (from, to) = (from[o * pitch..].as_ptr(), to.add(o * all));
                    if step == 1 {
                        copy_lines(from, to, [s.pitch, apart], b.count[0], n);
                        continue;
                    }
                    for row in 0..b.count[0] {
                        for i in 0..n {
                            *to.add(row * apart + i * step) = *from.add(row * s.pitch + i);
                        }
                    }
                }
            }
        }
    }
}
