//! Pieces of images copied with zeros around them, so that every window of a piece is a run of the copy.
//!
//! A window that moves by several elements reads a copy for each residue. The zeros behind a line are those before the next.

#![allow(unsafe_code, reason = "copies from images through checked layouts")]

use super::gather::{copy_line, copy_lines};
use super::runs::{Run, every_second, turn, zero};
use super::{Geometry, Phase, Tap, inside};
use crate::cpu::gemm::SLACK;
use std::ops::Range;

/// Some output positions: whole images (or slices of volumes), or part of one, or part of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// The first slice: its image times the slices of an image, and which of them.
    pub unit: usize,
    pub units: usize,
    pub first: [usize; 2],
    pub count: [usize; 2],
}

impl Geometry {
    /// From image to image of the input, from channel to channel and from pixel to pixel.
    pub(super) fn steps(&self) -> (usize, usize, usize) {
        let plane = self.size.iter().product::<usize>();
        if self.channels_last {
            (plane * self.inputs, 1, self.inputs)
        } else {
            (plane * self.inputs, plane, 1)
        }
    }
}

/// How all pieces of a convolution are cut.
pub(super) struct Frames<'a> {
    pub g: &'a Geometry,
    pub phase: &'a Phase,
    /// Depth and residues that windows read.
    planes: Vec<[i64; 3]>,
    /// For each tap its plane, and where it lies there.
    taps: Vec<(usize, [usize; 2])>,
    /// The least place of a tap, and from there to the greatest.
    low: [i64; 2],
    reach: [usize; 2],
    /// Zeros that neighbours share, where a piece holds all of a line, or all lines.
    shared: [usize; 2],
    /// Whether channels lie an odd number of cache lines apart, so that several of them do not share sets of the first cache.
    spread: bool,
}

/// Elements of 4 bytes in a line of the cache.
const LINE: usize = 16;

/// The layout of one piece.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// From line to line, from slice to slice in lines, and from plane to plane.
    pub pitch: usize,
    pub lines: usize,
    pub plane: usize,
    /// Positions from the first to the last, with what is between them.
    pub flat: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(g: &'a Geometry, phase: &'a Phase) -> Self {
        let cut = |tap: &Tap, i: usize| match phase.advance[i] {
            1 => (tap.at[i], 0), // without the division, which takes longer than the rest
            step => (tap.at[i].div_euclid(step), tap.at[i].rem_euclid(step)),
        };
        let places = |i: usize| phase.taps.iter().map(move |t| cut(t, i).0);
        let low = [1, 2].map(|i| places(i).min().unwrap_or(0));
        let high = [1, 2].map(|i| places(i).max().unwrap_or(0));
        let (mut planes, mut taps) = (Vec::new(), Vec::with_capacity(phase.taps.len()));
        for tap in &phase.taps {
            let [(line, below), (column, beside)] = [1, 2].map(|i| cut(tap, i));
            let key = [tap.at[0], below, beside];
            let plane = planes.iter().position(|p| *p == key).unwrap_or_else(|| {
                planes.push(key);
                planes.len() - 1
            });
            taps.push((
                plane,
                [(line - low[0]) as usize, (column - low[1]) as usize],
            ));
        }
        let reach = [0, 1].map(|i| (high[i] - low[i]) as usize);
        let mut frames = Self {
            g,
            phase,
            planes,
            taps,
            low,
            reach,
            shared: [0; 2],
            spread: false,
        };
        frames.shared = [0, 1].map(|i| {
            let zeros = frames.planes.iter().map(|p| {
                let all = phase.count[i + 1] + reach[i];
                let (lo, hi) = frames.valid(i, p[i + 1], 0, all);
                if lo < hi { lo.min(all - hi) } else { 0 }
            });
            zeros.min().unwrap_or(0).min(reach[i])
        });
        frames
    }

    /// The same with channels apart from each other.
    pub(super) fn spread(self) -> Self {
        Self {
            spread: true,
            ..self
        }
    }

    /// Which of `n` lines (or elements of a line) from output `first` on are within the image.
    fn valid(&self, i: usize, residue: i64, first: usize, n: usize) -> (usize, usize) {
        let step = self.phase.advance[i + 1];
        let at = (first as i64 + self.low[i]) * step + residue;
        inside(n, step, at, self.g.size[i + 1])
    }

    pub(super) fn planes(&self) -> usize {
        self.planes.len()
    }

    pub(super) fn sizes(&self, b: &Block) -> Sizes {
        let shared = |i: usize| {
            if b.count[i] == self.phase.count[i + 1] {
                self.shared[i]
            } else {
                0
            }
        };
        let line = b.count[1] + self.reach[1];
        let pitch = line - shared(1);
        let lines = b.count[0] + self.reach[0] - shared(0);
        let all = (b.units - 1) * lines + b.count[0] + self.reach[0];
        Sizes {
            pitch,
            lines,
            plane: all * pitch + shared(1),
            flat: ((b.units - 1) * lines + b.count[0] - 1) * pitch + b.count[1],
        }
    }

    /// From one channel of the copy to the next.
    pub(super) fn each(&self, b: &Block) -> usize {
        let all = self.planes() * self.sizes(b).plane;
        if self.spread {
            all.next_multiple_of(LINE) | LINE
        } else {
            all
        }
    }

    /// Elements of the copy of so many channels.
    pub(super) fn room(&self, b: &Block, channels: usize) -> usize {
        channels * self.each(b) + 2 * SLACK
    }

    /// Where the windows' elements lie, `[channel][tap]`.
    pub(super) fn table(
        &self,
        b: &Block,
        channels: impl ExactSizeIterator<Item = usize>,
    ) -> Vec<usize> {
        let (s, each) = (self.sizes(b), self.each(b));
        let mut table = Vec::with_capacity(channels.len() * self.taps.len());
        for c in channels {
            let place = |&(plane, at): &(usize, [usize; 2])| {
                c * each + plane * s.plane + at[0] * s.pitch + at[1]
            };
            table.extend(self.taps.iter().map(place));
        }
        table
    }

    /// Taps that read neighbours on a line, in the order in which they do; [`Frames::table`] has places by these numbers.
    pub(super) fn runs(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.taps.len()).collect();
        order.sort_by_key(|&tap| self.taps[tap]);
        let follows = |a: usize, b: usize| {
            let (plane, [line, column]) = self.taps[a];
            self.taps[b] == (plane, [line, column + 1])
        };
        order
            .chunk_by(|&a, &b| follows(a, b))
            .map(<[usize]>::to_vec)
            .collect()
    }

    /// Whether zeros lie at the same places in another block of the same size.
    pub(super) fn alike(&self, a: &Block, b: &Block) -> bool {
        let flat = self.g.size[0] == 1 && self.phase.count[0] == 1;
        flat && (a.units, a.first, a.count) == (b.units, b.first, b.count)
    }

    /// The slices of a block: image and depth of each.
    pub(super) fn slices(&self, b: &Block) -> impl Iterator<Item = (usize, usize)> + use<> {
        let depth = self.phase.count[0];
        (b.unit..b.unit + b.units).map(move |u| (u / depth, u % depth))
    }

    /// Copies `channels` channels from the one at `x` on, each `step` elements after the one before; `pixel` is how far
    /// neighbours of a line are apart, `image` images. `zeros`: whether those around them are to be written.
    ///
    /// # Safety
    /// The channels lie in dense images of the geometry's size, `to` has [`Frames::room`].
    pub(super) unsafe fn fill<T: Copy + Default>(
        &self,
        b: &Block,
        channels: usize,
        x: *const T,
        (image, step, pixel): (usize, usize, usize),
        to: *mut T,
        zeros: bool,
    ) {
        let (s, size) = (self.sizes(b), self.g.size);
        let line = b.count[1] + self.reach[1];
        let advance = self.phase.advance;
        let each = self.each(b);
        for c in 0..if zeros { channels } else { 0 } {
            // SAFETY: the room of a channel.
            unsafe { self.zeros(b, to.add(c * each)) };
        }
        let second = advance[2] == 2 && size_of::<T>() == 4;
        if channels == 1 && pixel == 1 && (advance[2] == 1 || second) {
            // SAFETY: the caller's.
            return unsafe { self.fill_lines(b, x, image, to) };
        }
        for (i, plane) in self.planes.iter().enumerate() {
            let (lo, hi) = self.valid(1, plane[2], b.first[1], line);
            let from = (b.first[1] as i64 + self.low[1]) * advance[2] + plane[2];
            for (slice, (n, d)) in self.slices(b).enumerate() {
                let z = d as i64 * advance[0] + plane[0];
                for row in 0..b.count[0] + self.reach[0] {
                    let y = ((b.first[0] + row) as i64 + self.low[0]) * advance[1] + plane[1];
                    let good = z >= 0 && z < size[0] as i64 && y >= 0 && y < size[1] as i64;
                    if !good || lo >= hi {
                        continue;
                    }
                    // SAFETY: line and elements lie in the image, and the copy has room for them.
                    unsafe {
                        let to = to.add(i * s.plane + (slice * s.lines + row) * s.pitch);
                        let at = ((z as usize * size[1] + y as usize) * size[2]) as i64
                            + from
                            + lo as i64 * advance[2];
                        let run = Run {
                            from: x.add(n * image + at as usize * pixel),
                            step,
                            pixel: pixel * advance[2] as usize,
                            n: hi - lo,
                        };
                        run.copy(channels, to.add(lo), each);
                    }
                }
            }
        }
    }

    /// Copies `channels` neighbours of each pixel, the pixels `pixel` apart and those of the copy `each`, with a byte for all
    /// around them.
    ///
    /// # Safety
    /// The channels lie at `x` in dense images of the geometry's size, `to` has room for `each` bytes of every place of the copy.
    pub(super) unsafe fn fill_pixels(
        &self,
        b: &Block,
        channels: usize,
        (x, pixel): (*const u8, usize),
        (to, each): (*mut u8, usize),
        around: u8,
    ) {
        let (s, size) = (self.sizes(b), self.g.size);
        let (image, advance) = (self.g.steps().0, self.phase.advance);
        // SAFETY: the caller's.
        unsafe { to.write_bytes(around, self.planes() * s.plane * each) };
        let whole = channels == each && pixel == each && advance[2] == 1;
        for (i, plane) in self.planes.iter().enumerate() {
            let (lo, hi) = self.valid(1, plane[2], b.first[1], b.count[1] + self.reach[1]);
            let (top, end) = self.valid(0, plane[1], b.first[0], b.count[0] + self.reach[0]);
            let from = (b.first[1] as i64 + self.low[1] + lo as i64) * advance[2] + plane[2];
            for (slice, (n, d)) in self.slices(b).enumerate() {
                let z = d as i64 * advance[0] + plane[0];
                if z < 0 || z >= size[0] as i64 || lo >= hi {
                    continue;
                }
                for row in top..end {
                    let y = ((b.first[0] + row) as i64 + self.low[0]) * advance[1] + plane[1];
                    let at = ((z * size[1] as i64 + y) * size[2] as i64 + from) as usize;
                    let place = i * s.plane + (slice * s.lines + row) * s.pitch + lo;
                    // SAFETY: line and elements lie in the image, and the copy has room for them.
                    unsafe {
                        let from = x.add(n * image + at * pixel);
                        let to = to.add(place * each);
                        if whole {
                            std::ptr::copy_nonoverlapping(from, to, (hi - lo) * each);
                            continue;
                        }
                        for p in 0..hi - lo {
                            let from = from.add(p * advance[2] as usize * pixel);
                            copy_line(from, to.add(p * each), channels);
                        }
                    }
                }
            }
        }
    }

    /// Writes the zeros around the lines of one channel.
    ///
    /// # Safety
    /// `to` has [`Frames::room`].
    unsafe fn zeros<T: Default>(&self, b: &Block, to: *mut T) {
        let s = self.sizes(b);
        let (rows, line) = (b.count[0] + self.reach[0], b.count[1] + self.reach[1]);
        for (i, plane) in self.planes.iter().enumerate() {
            let (lo, hi) = self.valid(1, plane[2], b.first[1], line);
            let (top, end) = self.valid(0, plane[1], b.first[0], rows);
            for (slice, (_, d)) in self.slices(b).enumerate() {
                let z = d as i64 * self.phase.advance[0] + plane[0];
                let there = z >= 0 && z < self.g.size[0] as i64;
                for row in 0..rows {
                    let (lo, hi) = if there && (top..end).contains(&row) {
                        (lo, hi.max(lo))
                    } else {
                        (line, line)
                    };
                    // SAFETY: within the copy.
                    unsafe {
                        let to = to.add(i * s.plane + (slice * s.lines + row) * s.pitch);
                        zero(to, lo);
                        zero(to.add(hi), line - hi);
                    }
                }
            }
        }
    }

    /// [`Frames::fill`] of one channel of whose lines every element or every second one is copied, the zeros being there:
    /// images of few lines are mostly lines.
    ///
    /// # Safety
    /// As there.
    unsafe fn fill_lines<T: Copy>(&self, b: &Block, x: *const T, image: usize, to: *mut T) {
        let (s, size, advance) = (self.sizes(b), self.g.size, self.phase.advance);
        let rows = b.count[0] + self.reach[0];
        for (i, plane) in self.planes.iter().enumerate() {
            let (lo, hi) = self.valid(1, plane[2], b.first[1], b.count[1] + self.reach[1]);
            let (top, end) = self.valid(0, plane[1], b.first[0], rows);
            if lo >= hi || top >= end {
                continue;
            }
            let column = (b.first[1] as i64 + self.low[1] + lo as i64) * advance[2] + plane[2];
            let line = ((b.first[0] + top) as i64 + self.low[0]) * advance[1] + plane[1];
            for (slice, (n, d)) in self.slices(b).enumerate() {
                let z = d as i64 * advance[0] + plane[0];
                if z < 0 || z >= size[0] as i64 {
                    continue;
                }
                let first = (z * size[1] as i64 + line) * size[2] as i64 + column;
                // SAFETY: lines and elements lie in the image, and the copy has room for them.
                unsafe {
                    let from = x.add(n * image + first as usize);
                    let to = to.add(i * s.plane + (slice * s.lines + top) * s.pitch + lo);
                    let steps = [advance[1] as usize * size[2], s.pitch];
                    if advance[2] == 1 {
                        copy_lines(from, to, steps, end - top, hi - lo);
                    } else {
                        every_second(from.cast(), to.cast(), steps, end - top, hi - lo);
                    }
                }
            }
        }
    }
}

impl Frames<'_> {
    /// Puts the sums of a block to their places, those of each output `pitch` apart.
    ///
    /// # Safety
    /// `out` is dense in the geometry's format, and no other thread has these positions.
    pub(super) unsafe fn store<T: Copy>(
        &self,
        out: *mut T,
        b: &Block,
        outputs: Range<usize>,
        sums: &[T],
        pitch: usize,
    ) {
        let (g, phase, s) = (self.g, self.phase, self.sizes(b));
        let (first, count, all) = (outputs.start, outputs.len(), g.positions());
        let place = |i: usize, t: usize| phase.first[i] + phase.step[i] * t;
        let (n, step) = (b.count[1], phase.step[2]);
        for (slice, (image, d)) in self.slices(b).enumerate() {
            let line = place(0, d) * g.out[1] + place(1, b.first[0]);
            let (from, apart) = (&sums[slice * s.lines * s.pitch..], phase.step[1] * g.out[2]);
            let at = line * g.out[2] + place(2, b.first[1]);
            // SAFETY: lines and channels lie within the result.
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
