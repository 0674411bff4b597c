//! The gradient of a convolution's weight as products over positions, whose columns are channels of neighbouring pixels.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::super::lines::Shared;
use super::gather::copy_line;
use super::runs::{turn, zero};
use super::{Geometry, Phase, inside};
use crate::cpu::gemm::{Mat, SLACK, WindowElement, Windows};
use crate::cpu::{pool, slice};
use crate::{DType, Device, Element, Result, Tensor};

/// Positions of a product.
const DEPTH: usize = 512;
/// Bytes of a copy of pixels.
const FRAME: usize = 320 << 10;
/// Channels of a task.
const CHANNELS: usize = 64;
/// Parts of the sum over all positions, for weights of few channels.
const SHARES: usize = 8;

/// Taps whose pixels follow each other.
struct Run {
    depth: usize,
    at: [i64; 2],
    weights: Vec<usize>,
}

/// Some output positions: lines of several slices, or of one, or part of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Block {
    unit: usize,
    units: usize,
    first: [usize; 2],
    count: [usize; 2],
}

/// The gradient of a weight.
pub(super) struct Pixels<'a, T> {
    g: &'a Geometry,
    phase: &'a Phase,
    grad: &'a [T],
    x: &'a [T],
    runs: Vec<Run>,
    /// Places of taps along the depth.
    depths: Vec<i64>,
    low: [i64; 2],
    span: [usize; 2],
    /// Channels of a task, and positions of a block.
    channels: usize,
    units: usize,
    count: [usize; 2],
}

/// What a task works in.
struct Rooms<T> {
    block: Option<Block>,
    table: Vec<usize>,
    frame: Vec<T>,
    packed: Vec<T>,
}

impl<'a, T: WindowElement + Element> Pixels<'a, T> {
    /// `None` where copies of the pixels would be mostly unused. Both tensors are laid out as the geometry says.
    pub(super) fn new(
        grad: &'a Tensor,
        x: &'a Tensor,
        g: &'a Geometry,
        phase: &'a Phase,
    ) -> Option<Self> {
        Self::of(slice(grad), slice(x), g, phase)
    }

    /// Elements of the parts of the sum, where copies would not be mostly unused.
    pub(super) fn sizes(g: &'a Geometry, phase: &'a Phase) -> Option<usize> {
        Self::of(&[], &[], g, phase).map(|p| p.shares() * p.tasks() * p.part())
    }

    fn of(grad: &'a [T], x: &'a [T], g: &'a Geometry, phase: &'a Phase) -> Option<Self> {
        let (mut runs, mut depths) = (Vec::<Run>::new(), Vec::new());
        for tap in &phase.taps {
            let known = depths.iter().position(|&d| d == tap.at[0]);
            let depth = known.unwrap_or(depths.len());
            if known.is_none() {
                depths.push(tap.at[0]);
            }
            let at = [tap.at[1], tap.at[2]];
            match runs.last_mut() {
                Some(run)
                    if run.depth == depth
                        && run.at[0] == at[0]
                        && run.at[1] + run.weights.len() as i64 == at[1] =>
                {
                    run.weights.push(tap.weight);
                }
                _ => runs.push(Run {
                    depth,
                    at,
                    weights: vec![tap.weight],
                }),
            }
        }
        let all = |i: usize| phase.taps.iter().map(move |t| t.at[i]);
        let low = [1, 2].map(|i| all(i).min().unwrap_or(0));
        let span = [1, 2].map(|i| (all(i).max().unwrap_or(0) - low[i - 1]) as usize + 1);
        let mut made = Self {
            g,
            phase,
            grad,
            x,
            runs,
            depths,
            low,
            span,
            channels: CHANNELS.min(g.inputs / g.groups),
            units: 1,
            count: [1, 1],
        };
        made.cut().then_some(made)
    }

    /// Chooses the size of blocks; false where nothing suits.
    fn cut(&mut self) -> bool {
        let [depth, h, w] = self.phase.count;
        let fits = |made: &Self| made.plane() * made.depths.len() * size_of::<T>() <= FRAME;
        self.count = [1, w.div_ceil(w.div_ceil(DEPTH))];
        if !fits(self) {
            self.count[1] = self.count[1].min(64);
        }
        if self.count[1] == w {
            let most = h.min((DEPTH / w).max(1));
            while self.count[0] < most {
                self.count[0] += 1;
                if !fits(self) {
                    self.count[0] -= 1;
                    break;
                }
            }
            self.count[0] = h.div_ceil(h.div_ceil(self.count[0]));
        }
        if self.count == [h, w] {
            let most = (self.g.batch * depth).min((DEPTH / (h * w)).max(1));
            let each = (self.plane() * self.depths.len() * size_of::<T>()).max(1);
            self.units = most.min((FRAME / each).max(1));
        }
        let positions = self.units * self.count[0] * self.count[1];
        let copied = self.plane() * self.depths.len() / self.channels;
        copied <= positions * (self.phase.taps.len() + 8) + 4096
    }

    fn lines(&self, count: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|i| (count[i] - 1) * self.phase.advance[i + 1] as usize + self.span[i])
    }

    /// Elements of the pixels of a block at one depth.
    fn plane(&self) -> usize {
        let [lines, line] = self.lines(self.count);
        self.units * lines * line * self.channels
    }

    /// From one row of a product to the next.
    fn pitch(&self) -> usize {
        let most = self.runs.iter().map(|r| r.weights.len()).max();
        (most.unwrap_or(0) * self.channels).next_multiple_of(16) + SLACK
    }

    /// Groups of channels that are summed apart.
    fn tasks(&self) -> usize {
        self.g.groups * (self.g.inputs / self.g.groups).div_ceil(self.channels)
    }

    /// Parts of the sum over all positions.
    fn shares(&self) -> usize {
        (SHARES / self.tasks()).clamp(1, self.blocks())
    }

    /// Elements of the part of a task.
    fn part(&self) -> usize {
        self.runs.len() * (self.g.outputs / self.g.groups) * self.pitch()
    }

    /// The gradient `[outputs, inputs of a group, taps]`, dense.
    pub(super) fn run(&self, dtype: DType) -> Result<Tensor> {
        let g = self.g;
        let (og, cg, taps) = (
            g.outputs / g.groups,
            g.inputs / g.groups,
            self.phase.taps.len(),
        );
        let cuts = cg.div_ceil(self.channels);
        let (tasks, blocks) = (self.tasks(), self.blocks());
        let (shares, size) = (self.shares(), self.part());
        let parts = Tensor::empty(
            &[shares as i64, tasks as i64, size as i64],
            dtype,
            Device::CPU,
        )?;
        let to = Shared::at(parts.data_ptr());
        pool::parallel_items(shares * tasks, |i| {
            let (share, task) = (i / tasks, i % tasks);
            let range = share * blocks / shares..(share + 1) * blocks / shares;
            // SAFETY: each task has its own part.
            let part = unsafe { to.get().cast::<T>().add(i * size) };
            self.sum(task / cuts, task % cuts * self.channels, range, part);
        });
        let out = Tensor::empty(&[g.outputs as i64, (cg * taps) as i64], dtype, Device::CPU)?;
        let made = Shared::at(out.data_ptr());
        let pitch = self.pitch();
        pool::parallel_for(tasks * og, (4096 / (cg * taps)).max(1), |r| {
            let mut lines = vec![T::default(); taps * self.channels];
            for i in r {
                let (task, o) = (i / og, i % og);
                let (group, first) = (task / cuts, task % cuts * self.channels);
                let n = self.channels.min(cg - first);
                for (k, run) in self.runs.iter().enumerate() {
                    // SAFETY: the rows of one output channel, of parts that are complete; one task each. There is a line for each tap.
                    unsafe {
                        let at = |share: usize| {
                            let row = (share * tasks + task) * size + (k * og + o) * pitch;
                            to.get().cast::<T>().add(row)
                        };
                        let sum = at(0);
                        for share in 1..shares {
                            let more = at(share);
                            for j in 0..run.weights.len() * n {
                                *sum.add(j) = *sum.add(j) + *more.add(j);
                            }
                        }
                        for (q, &weight) in run.weights.iter().enumerate() {
                            let line = lines.as_mut_ptr().add(weight * n);
                            std::ptr::copy_nonoverlapping(sum.add(q * n), line, n);
                        }
                    }
                }
                // SAFETY: the weights of one output channel, and a line of the channels for each of their taps.
                unsafe {
                    let to = made.get().cast::<T>();
                    let to = to.add(((group * og + o) * cg + first) * taps);
                    turn(lines.as_ptr(), n, to, taps, taps, n);
                }
            }
        });
        Ok(out)
    }

    fn blocks(&self) -> usize {
        let [depth, h, w] = self.phase.count;
        (self.g.batch * depth).div_ceil(self.units)
            * h.div_ceil(self.count[0])
            * w.div_ceil(self.count[1])
    }

    fn block(&self, i: usize) -> Block {
        let [depth, h, w] = self.phase.count;
        let [lines, width] = self.count;
        let (down, across) = (h.div_ceil(lines), w.div_ceil(width));
        let (unit, rest) = (i / (down * across) * self.units, i % (down * across));
        let first = [rest / across * lines, rest % across * width];
        Block {
            unit,
            units: self.units.min(self.g.batch * depth - unit),
            first,
            count: [lines.min(h - first[0]), width.min(w - first[1])],
        }
    }

    /// The sum over some blocks, for the channels of a group from `first` on.
    fn sum(&self, group: usize, first: usize, blocks: std::ops::Range<usize>, part: *mut T) {
        let g = self.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let n = self.channels.min(cg - first);
        let mut rooms = Rooms {
            block: None,
            table: Vec::new(),
            frame: vec![T::default(); self.plane() * self.depths.len() + 2 * SLACK],
            packed: vec![T::default(); og * self.units * self.count[0] * self.count[1]],
        };
        let start = blocks.start;
        for i in blocks {
            let b = self.block(i);
            let [lines, line] = self.lines(b.count);
            if rooms
                .block
                .is_none_or(|k| (k.units, k.count) != (b.units, b.count))
            {
                rooms.table = self.table(&b, n);
            }
            rooms.block = Some(b);
            // SAFETY: the layouts were checked, and the rooms were made for the largest block.
            unsafe {
                self.fill(&b, group * cg + first, n, rooms.frame.as_mut_ptr());
                self.pack(&b, group * og, rooms.packed.as_mut_ptr());
                for (k, run) in self.runs.iter().enumerate() {
                    let at = [0, 1].map(|i| (run.at[i] - self.low[i]) as usize);
                    let at = (run.depth * b.units * lines + at[0]) * line + at[1];
                    T::windows(Windows {
                        m: og,
                        n: run.weights.len() * n,
                        a: rooms.packed.as_ptr(),
                        b: rooms.frame.as_ptr().add(at * n),
                        rows: &rooms.table,
                        c: part.add(k * og * self.pitch()),
                        pitch: self.pitch(),
                        add: i > start,
                    });
                }
            }
        }
    }

    /// Where the pixels of each position begin, of `n` channels each.
    fn table(&self, b: &Block, n: usize) -> Vec<usize> {
        let [lines, line] = self.lines(b.count);
        let [down, across] = [1, 2].map(|i| self.phase.advance[i] as usize);
        let mut table = Vec::with_capacity(b.units * b.count[0] * b.count[1]);
        for slice in 0..b.units {
            for row in 0..b.count[0] {
                let start = (slice * lines + row * down) * line;
                table.extend((0..b.count[1]).map(|i| (start + i * across) * n));
            }
        }
        table
    }

    fn slices(&self, b: &Block) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let depth = self.phase.count[0];
        (b.unit..b.unit + b.units).map(move |u| (u / depth, u % depth))
    }

    /// Copies the pixels of a block, `n` channels from `first` on.
    unsafe fn fill(&self, b: &Block, first: usize, n: usize, to: *mut T) {
        let (g, size, advance) = (self.g, self.g.size, self.phase.advance);
        let [lines, line] = self.lines(b.count);
        let start = [0, 1].map(|i| b.first[i] as i64 * advance[i + 1] + self.low[i]);
        let (lo, hi) = inside(line, 1, start[1], size[2]);
        let plane = size.iter().product::<usize>();
        let mut to = to;
        for depth in &self.depths {
            for (image, d) in self.slices(b) {
                let z = d as i64 * advance[0] + depth;
                for row in 0..lines {
                    let y = start[0] + row as i64;
                    let good = z >= 0 && z < size[0] as i64 && y >= 0 && y < size[1] as i64;
                    let (lo, hi) = if good && lo < hi {
                        (lo, hi)
                    } else {
                        (line, line)
                    };
                    // SAFETY: the line lies in the image, and the copy has room for it.
                    unsafe {
                        zero(to, lo * n);
                        zero(to.add(hi * n), (line - hi) * n);
                        if lo < hi {
                            let at = (z as usize * size[1] + y as usize) * size[2];
                            let at = at + (start[1] + lo as i64) as usize;
                            let x = self.x.as_ptr();
                            let to = to.add(lo * n);
                            if g.channels_last {
                                let from = x.add((image * plane + at) * g.inputs + first);
                                for i in 0..hi - lo {
                                    copy_line(from.add(i * g.inputs), to.add(i * n), n);
                                }
                            } else {
                                let from = x.add((image * g.inputs + first) * plane + at);
                                turn(from, plane, to, n, n, hi - lo);
                            }
                        }
                        to = to.add(line * n);
                    }
                }
            }
        }
    }

    /// Packs the gradients of a block, of the channels from `first` on.
    unsafe fn pack(&self, b: &Block, first: usize, to: *mut T) {
        let (g, all) = (self.g, self.g.positions());
        let og = g.outputs / g.groups;
        let each = b.count[0] * b.count[1];
        for (i, (image, d)) in self.slices(b).enumerate() {
            let at = (d * g.out[1] + b.first[0]) * g.out[2] + b.first[1];
            // SAFETY: the positions of a block follow each other in every channel.
            unsafe {
                let grad = self.grad.as_ptr();
                let from = if g.channels_last {
                    let from = grad.add((image * all + at) * g.outputs + first);
                    Mat::new(from, 1, g.outputs as isize)
                } else {
                    let from = grad.add((image * g.outputs + first) * all + at);
                    Mat::new(from, all as isize, 1)
                };
                T::pack_tiles(from, og, i * each, each, b.units * each, to);
            }
        }
    }
}
