//! The gradient of a weight of bf16 on tile registers: the result's gradient, a line of positions for each output, times copies of
//! windows whose pairs are neighbouring positions.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::copy_lines;
use super::pairs::channels_of;
use super::runs::turn;
use super::tasks::{Bytes, Tasks, worth_copies};
use super::{Geometry, Phase};
use crate::cpu::gemm::SLACK;
use crate::cpu::gemm::tiled::{Kind, Rows, SIDE, STEP, Tiled, on_tiles};
use crate::cpu::{fill, pool, slice, slice_mut, transpose};
use crate::{DType, Device, Result, Scalar, Tensor};
use half::bf16;

/// Windows are copied twice, once as pairs; a position of the gradient has its own two bytes.
const BYTES: Bytes = Bytes { copy: 6, sum: 2 };
/// Steps along positions whose tiles of the gradient the first cache holds.
const PART: usize = 8;
/// Channels that a task copies, and outputs that it multiplies.
const SHARE: usize = 64;

/// How the gradient is made.
pub(super) struct Plan<'a> {
    tasks: Tasks<'a>,
    /// Outputs and inputs of a group.
    outputs: usize,
    inputs: usize,
    /// Input channels whose windows are copied at a time.
    channels: usize,
    /// Positions of the largest block in whole steps, and from one output's line to the next: an odd number of cache lines, so
    /// that sixteen of them do not share sets of the first cache.
    line: usize,
    /// From one row of pairs of positions to the next, and of sums.
    pairs: usize,
    sums: usize,
    /// Elements of a channel's copy.
    each: usize,
}

impl<'a> Plan<'a> {
    /// If tiles would not be mostly empty.
    pub(super) fn of(g: &'a Geometry, phase: &'a Phase, dtype: DType) -> Option<Self> {
        let (outputs, inputs) = (g.outputs / g.groups, g.inputs / g.groups);
        let full = |n: usize| n.next_multiple_of(SIDE) <= 2 * n;
        let fits = dtype == DType::BF16 && on_tiles() && full(outputs) && full(inputs);
        if !fits || worth_copies(g, phase, BYTES).is_none() {
            return None;
        }
        // However many threads there are, sums are made in one order.
        let tasks = Tasks::of(Frames::new(g, phase).spread(), BYTES, 1);
        let largest = tasks.block(0);
        let channels = channels_of(g, phase).min(inputs);
        Some(Self {
            outputs,
            inputs,
            channels,
            line: tasks.frames.sizes(&largest).flat.next_multiple_of(STEP) | STEP,
            pairs: channels.next_multiple_of(2 * SIDE) | SIDE,
            sums: inputs.next_multiple_of(2 * SIDE) | SIDE,
            each: tasks.frames.each(&largest),
            tasks,
        })
    }

    /// Words of a row of pairs for every two positions of a copy, and of the steps that reach behind it.
    fn rows(&self) -> usize {
        (self.each + 2 * SLACK) / 2
    }

    /// Elements of what it takes: results and sums in single precision, and of bf16 lines, copies, and pairs twice.
    pub(super) fn rooms(&self) -> [usize; 6] {
        let (taps, g) = (self.tasks.frames.phase.taps.len(), self.tasks.frames.g);
        let copy = self.channels * self.each + 2 * SLACK;
        let pairs = 2 * self.rows() * self.pairs;
        [
            g.outputs * self.inputs * taps,
            taps * self.outputs.next_multiple_of(2 * SIDE) * self.sums,
            self.outputs.next_multiple_of(2 * SIDE) * self.line,
            copy,
            pairs,
            pairs,
        ]
    }

    /// The gradient `[outputs, inputs of a group, taps]` in single precision; nothing if not all of it is finite: gaps between lines
    /// are multiplied too, and zeros there would not hide what is infinite.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub(super) fn run(&self, grad: &Tensor, x: &Tensor) -> Result<Option<Tensor>> {
        let empty = |n: usize, dtype| Tensor::empty(&[n as i64], dtype, Device::CPU);
        let [made, sums, lines, copy, even, odd] = self.rooms();
        let made = empty(made, DType::F32)?;
        let sums = empty(sums, DType::F32)?;
        let rooms = Rooms {
            grad: slice(grad),
            x: slice(x),
            lines: empty(lines, DType::BF16)?,
            copy: empty(copy, DType::BF16)?,
            pairs: [empty(even, DType::BF16)?, empty(odd, DType::BF16)?],
        };
        let g = self.tasks.frames.g;
        for group in 0..g.groups {
            fill(&sums, Scalar::Int(0))?;
            for i in 0..self.tasks.blocks() {
                let block = self.tasks.block(i);
                self.lines(&block, group, &rooms);
                for first in (0..self.inputs).step_by(self.channels) {
                    let count = self.channels.min(self.inputs - first);
                    self.copies(&block, group * self.inputs + first, count, &rooms);
                    self.products(&block, first, count, &rooms, &sums);
                }
            }
            self.bring_home(group, &sums, &made);
        }
        let finite = slice::<f32>(&made).iter().all(|v| v.is_finite());
        Ok(finite.then_some(made))
    }

    /// The gradient of a block's positions, lines as far apart as those of the copies, with zeros between them.
    fn lines(&self, b: &Block, group: usize, rooms: &Rooms) {
        let frames = &self.tasks.frames;
        let (g, s, all) = (frames.g, frames.sizes(b), frames.g.positions());
        let to = Shared::at(rooms.lines.data_ptr());
        let cuts = self.outputs.div_ceil(SHARE);
        let grain = (16384 / (SHARE * s.flat)).max(1);
        pool::parallel_for(cuts, grain, |range| {
            for cut in range {
                let first = cut * SHARE;
                let count = SHARE.min(self.outputs - first);
                let channel = group * self.outputs + first;
                // SAFETY: every task writes lines of its own outputs; the gradient is dense in the geometry's format.
                unsafe {
                    let to = to.get().cast::<bf16>().add(first * self.line);
                    std::slice::from_raw_parts_mut(to, count * self.line).fill(bf16::ZERO);
                    for (slice, (image, d)) in frames.slices(b).enumerate() {
                        let line = d * g.out[1] + b.first[0];
                        let at = line * g.out[2] + b.first[1];
                        let to = to.add(slice * s.lines * s.pitch);
                        if g.channels_last {
                            let from = rooms.grad.as_ptr();
                            let from = from.add((image * all + at) * g.outputs + channel);
                            for row in 0..b.count[0] {
                                let from = from.add(row * g.out[2] * g.outputs);
                                let to = to.add(row * s.pitch);
                                turn(from, g.outputs, to, self.line, b.count[1], count);
                            }
                            continue;
                        }
                        for o in 0..count {
                            let from = (image * g.outputs + channel + o) * all + at;
                            let from = rooms.grad.as_ptr().add(from);
                            let to = to.add(o * self.line);
                            copy_lines(from, to, [g.out[2], s.pitch], b.count[0], b.count[1]);
                        }
                    }
                }
            }
        });
    }

    /// Windows of some channels, as rows of pairs of positions: from the first on, and from the second on.
    fn copies(&self, b: &Block, channel: usize, count: usize, rooms: &Rooms) {
        let frames = &self.tasks.frames;
        let (each, steps) = (frames.each(b), frames.g.steps());
        let used = frames.planes() * frames.sizes(b).plane;
        let taps = frames.table(b, 0..1);
        let wanted = [0, 1].map(|odd| taps.iter().any(|t| t % 2 == odd));
        let copy = Shared::at(rooms.copy.data_ptr());
        let to = [0, 1].map(|i| Shared::at(rooms.pairs[i].data_ptr()));
        let cuts = count.div_ceil(SHARE);
        pool::parallel_for(cuts, (16384 / (SHARE * each)).max(1), |range| {
            for cut in range {
                let first = cut * SHARE;
                let some = SHARE.min(count - first);
                // SAFETY: channels lie in `x`, and every task has columns and copies of its own.
                unsafe {
                    let x = rooms.x.as_ptr().add((channel + first) * steps.1);
                    let copy = copy.get().cast::<bf16>().add(first * each);
                    frames.fill(b, some, x, steps, copy, true);
                    // What lies between channels meets zeros, which do not hide what is no number.
                    for c in 0..some {
                        std::slice::from_raw_parts_mut(copy.add(c * each + used), each - used)
                            .fill(bf16::ZERO);
                    }
                    for odd in (0..2).filter(|&odd| wanted[odd]) {
                        if odd == 1 {
                            // Behind the last is what belongs to nothing: a zero.
                            std::ptr::copy(copy.add(1), copy, some * each - 1);
                            *copy.add(some * each - 1) = bf16::ZERO;
                        }
                        let to = to[odd].get().cast::<u32>().add(first);
                        let from = (copy.cast_const().cast(), each / 2);
                        transpose::plane(
                            size_of::<u32>(),
                            (to.cast(), self.pairs),
                            from,
                            [some, each / 2],
                        );
                        for row in each / 2..each / 2 + SLACK {
                            std::slice::from_raw_parts_mut(to.add(row * self.pairs), some).fill(0);
                        }
                    }
                }
            }
        });
    }

    /// Adds the products of a block, for all taps.
    fn products(&self, b: &Block, first: usize, count: usize, rooms: &Rooms, sums: &Tensor) {
        let frames = &self.tasks.frames;
        let taps = frames.table(b, 0..1);
        let steps = frames.sizes(b).flat.div_ceil(STEP);
        let places: Vec<usize> = (0..steps).map(|i| i * SIDE * self.pairs).collect();
        let cuts = self.outputs.div_ceil(SHARE);
        let rows = self.outputs.next_multiple_of(2 * SIDE);
        let to = Shared::at(sums.data_ptr());
        let (lines, pairs) = (
            Shared::at(rooms.lines.data_ptr()),
            [0, 1].map(|i| Shared::at(rooms.pairs[i].data_ptr())),
        );
        let work = SHARE.min(self.outputs) * count * steps * STEP;
        pool::parallel_for(taps.len() * cuts, ((1 << 20) / work).max(1), |range| {
            for task in range {
                let (tap, o) = (task / cuts, task % cuts * SHARE);
                let at = taps[tap];
                // SAFETY: `of` asked for tiles; every task has sums of its own, and all operands have whole tiles.
                unsafe {
                    let lines = lines.get().cast::<bf16>().add(o * self.line);
                    let pairs = pairs[at % 2].get().cast::<u32>();
                    let product = Tiled {
                        kind: Kind::Halves,
                        m: SHARE.min(self.outputs - o),
                        n: count,
                        a: Rows::apart(lines.cast_const().cast(), self.line / 2),
                        b: pairs.add(at / 2 * self.pairs),
                        places: &places,
                        lane: self.pairs,
                        part: PART,
                        c: to
                            .get()
                            .cast::<u32>()
                            .add((tap * rows + o) * self.sums + first),
                        pitch: self.sums,
                        add: true,
                    };
                    product.run();
                }
            }
        });
    }

    /// Sums `[tap][output][input]` to `[output][input][tap]` of a group.
    fn bring_home(&self, group: usize, sums: &Tensor, made: &Tensor) {
        let taps = self.tasks.frames.phase.taps.len();
        let rows = self.outputs.next_multiple_of(2 * SIDE);
        let each = self.inputs * taps;
        let from = slice::<f32>(sums);
        let to = &mut slice_mut::<f32>(made)[group * self.outputs * each..];
        for (o, to) in to.chunks_exact_mut(each).take(self.outputs).enumerate() {
            let from = from[o * self.sums..].as_ptr();
            // SAFETY: a row of each tap, and as many elements.
            unsafe {
                turn(
                    from,
                    rows * self.sums,
                    to.as_mut_ptr(),
                    taps,
                    taps,
                    self.inputs,
                );
            }
        }
    }
}

/// What it works on and in.
struct Rooms<'a> {
    grad: &'a [bf16],
    x: &'a [bf16],
    lines: Tensor,
    copy: Tensor,
    pairs: [Tensor; 2],
}
