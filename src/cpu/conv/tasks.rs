//! Convolutions by windows in place, cut into tasks: some positions, and some outputs of a group.

use super::frame::{Block, Frames};
use super::{Geometry, Phase};
use crate::cpu::gemm::SLACK;
use crate::cpu::pool;
use crate::cpu::simd::second_cache;
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

/// Bytes of what a convolution works on.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// An element of a copy.
    pub copy: usize,
    /// A sum.
    pub sum: usize,
}

impl Bytes {
    /// Elements and sums of one size.
    pub(super) fn of(size: usize) -> Self {
        Self {
            copy: size,
            sum: size,
        }
    }
}

/// How copies of a phase's windows lie, if they are neither mostly zeros, nor overlap too much.
pub(super) fn worth_copies<'a>(
    g: &'a Geometry,
    phase: &'a Phase,
    bytes: Bytes,
) -> Option<Frames<'a>> {
    if phase.taps.is_empty() || phase.count.contains(&0) || g.batch == 0 {
        return None;
    }
    let frames = Frames::new(g, phase);
    let (count, units) = extents(&frames, g, bytes, 1);
    let block = Block {
        unit: 0,
        units,
        first: [0; 2],
        count,
    };
    let s = frames.sizes(&block);
    let useful = units * count[0] * count[1];
    let copied = frames.planes() * s.plane;
    let worth = s.flat <= 2 * useful + SLACK && copied <= 3 * useful * phase.taps.len() + 4096;
    worth.then_some(frames)
}

/// Channels of a step, which all blocks share.
pub(super) fn step_of(g: &Geometry, phase: &Phase) -> usize {
    (DEPTH / phase.taps.len()).clamp(1, g.inputs / g.groups)
}

/// Lines, columns and slices of a block: what fits the caches, and less if so many threads would have nothing to do.
pub(super) fn extents(
    frames: &Frames,
    g: &Geometry,
    bytes: Bytes,
    threads: usize,
) -> ([usize; 2], usize) {
    let phase = frames.phase;
    let [depth, h, w] = phase.count;
    let (channels, og) = (step_of(g, phase), g.outputs / g.groups);
    let few = channels * frames.planes() <= 4;
    let each = channels * frames.planes() * bytes.copy;
    let cache = second_cache();
    let most = if few { SMALL } else { cache / FRAME } / each;
    let total = g.batch * depth * h * w;
    let shares = 4 * threads;
    let share = (total * g.groups)
        .div_ceil(shares)
        .max(if few { 512 } else { 128 });
    let most = most
        .min(cache / RESULT / (og * bytes.sum))
        .min(share)
        .max(64);
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

/// A phase cut into tasks.
pub(super) struct Tasks<'a> {
    pub frames: Frames<'a>,
    /// Positions of a block.
    count: [usize; 2],
    units: usize,
}

impl<'a> Tasks<'a> {
    pub(super) fn new(frames: Frames<'a>, bytes: Bytes) -> Self {
        Self::of(frames, bytes, pool::num_threads())
    }

    /// The same for so many threads.
    pub(super) fn of(frames: Frames<'a>, bytes: Bytes, threads: usize) -> Self {
        let (count, units) = extents(&frames, frames.g, bytes, threads);
        Self {
            frames,
            count,
            units,
        }
    }

    /// Calls `each` with every block of positions, every group, and some of its outputs: from one tile of weights to another,
    /// whose first outputs are `tiles`. What it works in is kept from task to task.
    pub(super) fn run<R>(
        &self,
        tiles: &[usize],
        room: impl Fn() -> R + Sync,
        each: impl Fn(&Block, usize, Range<usize>, &mut R) + Sync,
    ) {
        let (g, phase) = (self.frames.g, self.frames.phase);
        let [lines, width] = self.count;
        let blocks = self.blocks();
        let parts = self.parts(blocks * g.groups, tiles);
        let work = self.units * lines * width * phase.taps.len() * (g.inputs / g.groups);
        let grain = (65536 / (work * (g.outputs / g.groups / parts.len())).max(1)).max(1);
        // A group after the other for the same block, so that neighbouring tasks are alike.
        pool::parallel_for(blocks * g.groups * parts.len(), grain, |range| {
            let mut room = room();
            for task in range {
                let (task, part) = (task / parts.len(), &parts[task % parts.len()]);
                let block = self.block(task / g.groups);
                each(&block, task % g.groups, part.clone(), &mut room);
            }
        });
    }

    /// How often lines and columns are cut.
    fn cuts(&self) -> [usize; 2] {
        [0, 1].map(|i| self.frames.phase.count[i + 1].div_ceil(self.count[i]))
    }

    /// All slices.
    fn slices(&self) -> usize {
        self.frames.g.batch * self.frames.phase.count[0]
    }

    /// How many blocks of positions there are.
    pub(super) fn blocks(&self) -> usize {
        let [down, across] = self.cuts();
        self.slices().div_ceil(self.units) * down * across
    }

    /// One of them; the first is the largest.
    pub(super) fn block(&self, i: usize) -> Block {
        let [down, across] = self.cuts();
        let (unit, rest) = (i / (down * across) * self.units, i % (down * across));
        let first = [rest / across * self.count[0], rest % across * self.count[1]];
        let left = |d: usize| self.frames.phase.count[d + 1] - first[d];
        Block {
            unit,
            units: self.units.min(self.slices() - unit),
            first,
            count: [0, 1].map(|d| self.count[d].min(left(d))),
        }
    }

    /// The outputs of a group that a task makes: some of them, whole tiles of weights, where there are few tasks.
    fn parts(&self, tasks: usize, tiles: &[usize]) -> Vec<Range<usize>> {
        let (g, threads) = (self.frames.g, pool::num_threads());
        let og = g.outputs / g.groups;
        let wanted = match threads {
            1 => 1,
            _ => (2 * threads).div_ceil(tasks.max(1)).min(og / FEWEST).max(1),
        };
        if wanted == 1 {
            return std::iter::once(0..og).collect();
        }
        let start = |i: usize| {
            tiles
                .get(i * tiles.len() / wanted)
                .map_or(og, |&first| first)
        };
        (0..wanted).map(|i| start(i)..start(i + 1)).collect()
    }
}
