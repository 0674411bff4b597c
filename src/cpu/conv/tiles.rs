//! Images brought to the coefficients of Winograd's tiles.

#![allow(unsafe_code, reason = "rooms are read and written by pointer")]

use super::frame::{Block, Frames};
use super::{Phase, Tap};
use crate::cpu::gemm::SLACK;
use crate::cpu::gemm::coefficients::{LANES, Tiles, of_tiles};

/// Bytes of a copy of some channels, which the second cache holds: lines of many are copied at a time.
const FRAME: usize = 128 << 10;

/// Windows of so many lines and columns that move by two elements.
pub(super) fn squares(low: [i64; 3], side: i64, count: [usize; 3]) -> Phase {
    let taps = (0..side * side).map(|i| Tap {
        weight: 0,
        at: [low[0], low[1] + i / side, low[2] + i % side],
    });
    Phase {
        taps: taps.collect(),
        advance: [1, 2, 2],
        first: [0; 3],
        step: [1; 3],
        count,
    }
}

/// A tensor whose channels become coefficients, some of them at a time.
pub(super) struct Side<'a> {
    pub(super) frames: Frames<'a>,
    from: &'a [f32],
    /// Channels of a group, and how many are copied at a time.
    channels: usize,
    step: usize,
    /// From channel to channel, and from one coefficient to the next.
    pub(super) row: usize,
    pub(super) each: usize,
}

impl<'a> Side<'a> {
    /// For blocks of at most this size.
    pub(super) fn new(frames: Frames<'a>, from: &'a [f32], largest: &Block) -> Self {
        let channels = frames.g.inputs / frames.g.groups;
        let tiles = largest.units * largest.count[0] * largest.count[1];
        // Lanes behind the last tile are not the next channel's, which may be another task's.
        let row = tiles.next_multiple_of(LANES) + LANES;
        Self {
            step: (FRAME / (4 * frames.room(largest, 1))).clamp(1, channels),
            frames,
            from,
            channels,
            row,
            // Whole pages apart they would push each other out of the first cache.
            each: (channels * row).next_multiple_of(1024) + 2 * SLACK,
        }
    }

    /// Copies that bring all channels of a group.
    pub(super) fn copies(&self) -> usize {
        self.channels.div_ceil(self.step)
    }

    /// Elements of a copy.
    pub(super) fn room(&self, largest: &Block) -> usize {
        self.frames.room(largest, self.step).next_multiple_of(16) + SLACK
    }

    /// Brings the channels of one copy to coefficients; `zeros`: whether the copy has none around its lines yet.
    ///
    /// # Safety
    /// The tensor is laid out as the geometry says, `frame` has room for a copy, and `to` for all coefficients.
    pub(super) unsafe fn analyse(
        &self,
        b: &Block,
        (group, copy): (usize, usize),
        frame: *mut f32,
        to: *mut f32,
        zeros: bool,
    ) {
        let (first, rows, s) = (copy * self.step, b.count[0], self.frames.sizes(b));
        let channels = self.step.min(self.channels - first);
        let (steps, at) = (self.frames.g.steps(), self.frames.table(b, 0..1));
        let line = |i: usize| (i / rows * s.lines + i % rows) * s.pitch;
        let lines: Vec<usize> = (0..b.units * rows).map(line).collect();
        // SAFETY: the caller's.
        unsafe {
            let channel = (group * self.channels + first) * steps.1;
            let x = self.from.as_ptr().add(channel);
            self.frames.fill(b, channels, x, steps, frame, zeros);
            for c in 0..channels {
                of_tiles(Tiles {
                    from: frame.add(c * self.frames.planes() * s.plane),
                    at: &at,
                    lines: &lines,
                    n: b.count[1],
                    to: to.add((first + c) * self.row),
                    each: self.each,
                });
            }
        }
    }
}
