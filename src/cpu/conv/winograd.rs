//! Convolutions with windows of 3 x 3 and single steps, by Winograd's F(2 x 2, 3 x 3): 16 products in place of 36 for each four
//! results (Lavin and Gray 2015, "Fast algorithms for convolutional neural networks").
//!
//! Input and weights are brought to 16 coefficients each, which meet in one matrix product a coefficient; the factors are
//! halves, so that integers stay exact. A number that is not finite reaches all four results of a tile: then the convolution is
//! to be made directly.

#![allow(unsafe_code, reason = "rooms are read and written by pointer")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::weights;
use super::runs::turn;
use super::tiles::{Side, squares};
use super::{Geometry, Operands, Phase};
use crate::cpu::gemm::coefficients::{
    COEFFICIENTS as ALL, LANES, Results, Weights, of_weights, to_results,
};
use crate::cpu::gemm::{SLACK, WindowElement, Windows, row_tiles};
use crate::cpu::room::Rooms;
use crate::cpu::simd::simd_fn;
use crate::cpu::{pool, slice};
use crate::{DType, Device, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of the coefficients of a block.
const BLOCK: usize = 3 << 19;
/// How a convolution is cut into tiles of 2 x 2 results, and those into blocks.
pub(super) struct Plan {
    /// Tiles as windows of 4 x 4 that move by two elements.
    pub(super) tiles: Phase,
    /// Which tap of the phase lies at each place of the window.
    pub(super) places: [usize; 9],
    /// Lines and columns of a block's tiles, and its slices.
    pub(super) count: [usize; 2],
    pub(super) units: usize,
}

/// Where in a thread's room everything lies, in elements: the input's coefficients first.
struct Layout<'a> {
    input: Side<'a>,
    /// From one row of the result's coefficients to the next, and from one coefficient to the next.
    result: [usize; 2],
    /// From one line of results to the next.
    line: usize,
    /// Where the result's coefficients, the copy and the lines begin, and where they end.
    at: [usize; 4],
}

impl Plan {
    /// The plan, if this way is the faster one: all weights have to be brought to coefficients first.
    pub(super) fn of(g: &Geometry, phase: &Phase, dtype: DType, threads: usize) -> Option<Self> {
        let (cg, og) = (g.inputs / g.groups, g.outputs / g.groups);
        let [depth, h, w] = phase.count;
        let (slices, lines) = (g.batch * depth, h.div_ceil(2));
        let all = slices * lines * w.div_ceil(2);
        // In products, as measured: what windows in place compute between the lines; coefficients' products, weights, results,
        // and what each line of tiles takes in every channel, which is most of small images.
        let direct = 9 * slices * (h + 1) * (w + 1);
        let line = 2300 / cg.max(1) + 3100 / og.max(1);
        let these = 5 * ALL * all / 4 + 730 + 220 * all / cg.max(1) + line * slices * lines;
        if 20 * these > 19 * direct {
            return None;
        }
        let most = (BLOCK / (4 * ALL * (cg + og).max(1))).clamp(64, 256);
        Self::cut(g, phase, dtype, most.min(all.div_ceil(4 * threads).max(32)))
    }

    /// The plan of blocks of so many tiles, if windows are of 3 x 3, and numbers of single precision.
    pub(super) fn cut(g: &Geometry, phase: &Phase, dtype: DType, most: usize) -> Option<Self> {
        let [depth, h, w] = phase.count;
        let plain = phase.advance == [1; 3] && phase.step == [1; 3] && phase.taps.len() == 9;
        if dtype != DType::F32 || g.exact || !plain || g.batch * depth * h * w * g.outputs == 0 {
            return None;
        }
        let low: [i64; 3] =
            std::array::from_fn(|i| phase.taps.iter().map(|t| t.at[i]).min().unwrap_or(0));
        let mut places = [9; 9];
        for (i, tap) in phase.taps.iter().enumerate() {
            let [z, y, x] = std::array::from_fn(|k| (tap.at[k] - low[k]) as usize);
            if z > 0 || y > 2 || x > 2 {
                return None;
            }
            places[3 * y + x] = i;
        }
        if places.contains(&9) {
            return None;
        }
        let (slices, lines, columns) = (g.batch * depth, h.div_ceil(2), w.div_ceil(2));
        let (count, units) = if lines * columns <= most {
            let units = (most / (lines * columns)).clamp(1, slices);
            ([lines, columns], slices.div_ceil(slices.div_ceil(units)))
        } else if columns <= most {
            let cuts = lines.div_ceil(most / columns);
            ([lines.div_ceil(cuts), columns], 1)
        } else {
            let width = most / LANES * LANES;
            ([1, columns.div_ceil(columns.div_ceil(width))], 1)
        };
        Some(Self {
            tiles: squares(low, 4, [depth, lines, columns]),
            places,
            count,
            units,
        })
    }

    fn layout<'a>(&'a self, g: &'a Geometry, x: &'a [f32]) -> Layout<'a> {
        let (og, block) = (g.outputs / g.groups, self.largest());
        let input = Side::new(Frames::new(g, &self.tiles), x, &block);
        let line = (self.units * self.count[0] * self.count[1]).next_multiple_of(LANES);
        let row = line + SLACK;
        let result = [row, (og * row).next_multiple_of(1024) + 2 * SLACK];
        let results = ALL * input.each;
        let frame = results + ALL * result[1];
        let lines = frame + input.room(&block);
        // Channels that are innermost are turned all at a time.
        let end = lines + 4 * line * if g.channels_last { og } else { 1 };
        Layout {
            input,
            result,
            line,
            at: [results, frame, lines, end],
        }
    }

    /// The largest block.
    pub(super) fn largest(&self) -> Block {
        Block {
            unit: 0,
            units: self.units,
            first: [0; 2],
            count: self.count,
        }
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self, g: &Geometry) -> usize {
        let [depth, lines, columns] = self.tiles.count;
        let cuts = lines.div_ceil(self.count[0]) * columns.div_ceil(self.count[1]);
        (g.batch * depth).div_ceil(self.units) * cuts
    }

    /// One of them.
    pub(super) fn block(&self, g: &Geometry, i: usize) -> Block {
        let [depth, lines, columns] = self.tiles.count;
        let [most, wide] = self.count;
        let cuts = [lines.div_ceil(most), columns.div_ceil(wide)];
        let (unit, rest) = (
            i / (cuts[0] * cuts[1]) * self.units,
            i % (cuts[0] * cuts[1]),
        );
        let first = [rest / cuts[1] * most, rest % cuts[1] * wide];
        Block {
            unit,
            units: self.units.min(g.batch * depth - unit),
            first,
            count: [most.min(lines - first[0]), wide.min(columns - first[1])],
        }
    }

    /// Elements of the weights' coefficients, the number of tasks, and the elements of each one's room.
    pub(super) fn rooms(&self, g: &Geometry) -> [usize; 3] {
        let layout = self.layout(g, &[]);
        let tasks = self.blocks(g) * g.groups;
        [ALL * g.groups * matrix(g), tasks, layout.at[3]]
    }
}

/// From one matrix of weights' coefficients to the next: not whole pages, which would push each other out of the first cache.
fn matrix(g: &Geometry) -> usize {
    (g.outputs / g.groups * (g.inputs / g.groups)).next_multiple_of(16) + 16
}

/// One phase of a convolution; the input is laid out as the geometry says, the bias dense. False if something is not finite, so that
/// the results are not to be used.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn winograd(plan: &Plan, o: &Operands, g: &Geometry, phase: &Phase) -> Result<bool> {
    let w = weights(o.w, g, phase, false)?;
    let [packed, tasks, room] = plan.rooms(g);
    let packed = Tensor::empty(&[packed as i64], DType::F32, Device::CPU)?;
    coefficients(&packed, &w, g, &plan.places);
    let rooms = Rooms::new(tasks, || {
        Tensor::empty(&[room as i64], DType::F32, Device::CPU)
    })?;
    let all = Convolution {
        layout: plan.layout(g, slice::<f32>(o.x)),
        g,
        plan,
        out: o.out,
        size: [phase.count[1], phase.count[2]],
        w: slice::<f32>(&packed),
        bias: o.bias.map(slice::<f32>),
        wild: AtomicBool::new(false),
    };
    pool::parallel_for(tasks, 1, |range| {
        let done = rooms.with(|room| {
            let room = room.data_ptr().cast::<f32>();
            // SAFETY: the room is this thread's, as large as the layout says.
            range.for_each(|task| unsafe { all.task(task, room) });
            Ok(())
        });
        if done.is_err() {
            all.wild.store(true, Relaxed);
        }
    });
    Ok(!all.wild.load(Relaxed))
}

/// The coefficients of weights `[group][output][input][tap]`, as tiles of a matrix of each group and coefficient.
fn coefficients(packed: &Tensor, w: &Tensor, g: &Geometry, places: &[usize; 9]) {
    let size = [g.outputs / g.groups, g.inputs / g.groups];
    let (to, from) = (Shared::at(packed.data_ptr()), slice::<f32>(w));
    let (each, tiles) = (
        size[0] * size[1],
        row_tiles::<f32>(size[0]).collect::<Vec<_>>(),
    );
    let count = tiles.len();
    let grain = (8192 * count / each).max(1);
    pool::parallel_for(g.groups * count, grain, |range| {
        for task in range {
            let (group, tile) = (task / count, tiles[task % count]);
            // SAFETY: a group's weights and matrices; every task writes a tile of its own.
            unsafe {
                of_weights(Weights {
                    from: from[group * each * 9..].as_ptr(),
                    size,
                    places,
                    tile,
                    to: to.get().cast::<f32>().add(group * ALL * matrix(g)),
                    each: matrix(g),
                });
            }
        }
    });
}

simd_fn! { stream
    /// Lays the elements of two lines between each other, the first one's first.
    fn between(a: &[f32], b: &[f32], to: &mut [f32]) {
        let n = to.len() / 2;
        let (pairs, rest) = to.split_at_mut(2 * n);
        for i in 0..n {
            pairs[2 * i] = a[i];
            pairs[2 * i + 1] = b[i];
        }
        if let Some(last) = rest.first_mut() {
            *last = a[n];
        }
    }
}

simd_fn! { stream
    /// Whether an element is no number, or infinite.
    pub(super) fn has_wild(line: &[f32]) -> bool {
        const MOST: u32 = 0x7F80_0000;
        let found = line.iter().fold(0, |all, v| all | u32::from(v.to_bits() & MOST == MOST));
        found != 0
    }
}

/// What all tasks read.
struct Convolution<'a> {
    g: &'a Geometry,
    plan: &'a Plan,
    layout: Layout<'a>,
    out: &'a Tensor,
    /// Lines and columns of the result.
    size: [usize; 2],
    /// The weights' coefficients.
    w: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Whether something was not finite.
    wild: AtomicBool,
}

impl Convolution<'_> {
    /// A group of a block, in a room of the layout's size.
    unsafe fn task(&self, task: usize, room: *mut f32) {
        let g = self.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let (block, group) = (self.plan.block(g, task / g.groups), task % g.groups);
        let n = block.units * block.count[0] * block.count[1];
        let (input, [results, frame, ..]) = (&self.layout.input, self.layout.at);
        let table: Vec<usize> = (0..cg).map(|c| c * input.row).collect();
        // SAFETY: the caller's; the parts of the room do not meet.
        unsafe {
            for copy in 0..input.copies() {
                input.analyse(&block, (group, copy), room.add(frame), room, copy == 0);
            }
            for e in 0..ALL {
                f32::windows(Windows {
                    m: og,
                    n,
                    a: self.w[(group * ALL + e) * matrix(g)..].as_ptr(),
                    b: room.add(e * input.each),
                    rows: &table,
                    c: room.add(results + e * self.layout.result[1]),
                    pitch: self.layout.result[0],
                    add: false,
                });
            }
            self.store(&block, group * og, room);
        }
    }

    /// Makes the results of a block of their coefficients, and puts them to their places.
    unsafe fn store(&self, b: &Block, first: usize, room: *mut f32) {
        let g = self.g;
        let (og, line) = (g.outputs / g.groups, self.layout.line);
        let [pitch, each] = self.layout.result;
        let n = b.units * b.count[0] * b.count[1];
        let mut wild = false;
        // SAFETY: as in the caller.
        unsafe {
            let (from, lines) = (room.add(self.layout.at[0]), room.add(self.layout.at[2]));
            for o in 0..og {
                let to = lines.add(if g.channels_last { 4 * o * line } else { 0 });
                to_results(Results {
                    from: from.add(o * pitch),
                    each,
                    n,
                    bias: self.bias.map_or(0.0, |v| v[first + o]),
                    to,
                    line,
                });
                for i in 0..4 {
                    wild |= has_wild(std::slice::from_raw_parts(to.add(i * line), n));
                }
                if !g.channels_last {
                    self.put(b, first + o, to);
                }
            }
            if g.channels_last {
                self.put_turned(b, first, lines);
            }
        }
        if wild {
            self.wild.store(true, Relaxed);
        }
    }

    /// The lines of a block's tiles: how many tiles are before, the image, where in it the results begin, and how many lines and
    /// columns these have.
    fn spots(&self, b: &Block) -> impl Iterator<Item = (usize, usize, usize, [usize; 2])> {
        let (out, b) = (self.g.out, *b);
        let size = self.size;
        let slices = self.layout.input.frames.slices(&b).enumerate();
        slices.flat_map(move |(slice, (image, depth))| {
            (0..b.count[0]).map(move |row| {
                let [y, x] = [2 * (b.first[0] + row), 2 * b.first[1]];
                let at = (depth * out[1] + y) * out[2] + x;
                let count = [(size[0] - y).min(2), (size[1] - x).min(2 * b.count[1])];
                ((slice * b.count[0] + row) * b.count[1], image, at, count)
            })
        })
    }

    /// Puts the results of a block to one channel.
    unsafe fn put(&self, b: &Block, channel: usize, lines: *const f32) {
        let (g, line) = (self.g, self.layout.line);
        let out = self.out.data_ptr().cast::<f32>();
        for (before, image, at, [count, n]) in self.spots(b) {
            for i in 0..count {
                // SAFETY: lines and channel lie within the dense result, and no other task has them.
                unsafe {
                    let half = |j: usize| {
                        let from = lines.add((2 * i + j) * line + before);
                        std::slice::from_raw_parts(from, n.div_ceil(2))
                    };
                    let to = (image * g.outputs + channel) * g.positions() + at + i * g.out[2];
                    let to = std::slice::from_raw_parts_mut(out.add(to), n);
                    between(half(0), half(1), to);
                }
            }
        }
    }

    /// Puts the results of a block to the channels of a group, which are innermost.
    unsafe fn put_turned(&self, b: &Block, first: usize, lines: *const f32) {
        let (g, line) = (self.g, self.layout.line);
        let out = self.out.data_ptr().cast::<f32>();
        let (og, step) = (g.outputs / g.groups, g.outputs);
        for (before, image, at, [count, n]) in self.spots(b) {
            for (i, j) in (0..count).flat_map(|i| [(i, 0), (i, 1)]) {
                let position = image * g.positions() + at + i * g.out[2] + j;
                // SAFETY: as above.
                unsafe {
                    let from = lines.add((2 * i + j) * line + before);
                    let to = out.add(position * step + first);
                    turn(from, 4 * line, to, 2 * step, og, (n + 1 - j) / 2);
                }
            }
        }
    }
}
