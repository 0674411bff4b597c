//! Pieces of images copied with zeros around them, so that every window of a piece is a run of the copy.
//!
//! A window that moves by several elements reads a copy for each residue. The zeros behind a line are those before the next.

#![allow(unsafe_code, reason = "copies from images through checked layouts")]

use super::gather::{copy_line, copy_lines};
use super::{Geometry, Phase, inside};
use crate::cpu::gemm::SLACK;
use crate::cpu::transpose::four_words;

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
}

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
        let step = phase.advance;
        let parts = |i: usize| phase.taps.iter().map(move |t| t.at[i].div_euclid(step[i]));
        let low = [1, 2].map(|i| parts(i).min().unwrap_or(0));
        let high = [1, 2].map(|i| parts(i).max().unwrap_or(0));
        let (mut planes, mut taps) = (Vec::new(), Vec::new());
        for tap in &phase.taps {
            let key = [
                tap.at[0],
                tap.at[1].rem_euclid(step[1]),
                tap.at[2].rem_euclid(step[2]),
            ];
            let known = planes.iter().position(|p| *p == key);
            let plane = known.unwrap_or(planes.len());
            if known.is_none() {
                planes.push(key);
            }
            let at = [0, 1].map(|i| (tap.at[i + 1].div_euclid(step[i + 1]) - low[i]) as usize);
            taps.push((plane, at));
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

    /// Elements of the copy of so many channels.
    pub(super) fn room(&self, b: &Block, channels: usize) -> usize {
        channels * self.planes() * self.sizes(b).plane + 2 * SLACK
    }

    /// Where the windows' elements lie, `[channel][tap]`.
    pub(super) fn table(&self, b: &Block, channels: usize) -> Vec<usize> {
        let s = self.sizes(b);
        let mut rows = Vec::with_capacity(channels * self.taps.len());
        for c in 0..channels {
            for &(plane, at) in &self.taps {
                rows.push((c * self.planes() + plane) * s.plane + at[0] * s.pitch + at[1]);
            }
        }
        rows
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
        let each = self.planes() * s.plane;
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

/// Elements of a line in every channel.
struct Run<T> {
    from: *const T,
    step: usize,
    pixel: usize,
    n: usize,
}

impl<T: Copy> Run<T> {
    /// # Safety
    /// All elements exist on both sides.
    unsafe fn copy(&self, channels: usize, to: *mut T, each: usize) {
        // SAFETY: the caller's.
        unsafe {
            if self.step == 1 && self.pixel != 1 {
                return turn(self.from, self.pixel, to, each, self.n, channels);
            }
            for c in 0..channels {
                let (from, to) = (self.from.add(c * self.step), to.add(c * each));
                match self.pixel {
                    1 => copy_line(from, to, self.n),
                    2 if size_of::<T>() == 4 => {
                        every_second(from.cast(), to.cast(), [0; 2], 1, self.n);
                    }
                    pixel => {
                        for i in 0..self.n {
                            *to.add(i) = *from.add(pixel * i);
                        }
                    }
                }
            }
        }
    }
}

/// Words of a vector, of which every machine has some.
const FOUR: usize = 4;

/// Every second word: four of seven.
///
/// # Safety
/// The words exist on both sides.
#[inline(always)]
unsafe fn four_of_seven(from: *const u32, to: *mut u32) {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_loadu_ps, _mm_shuffle_ps, _mm_storeu_ps};
            let (low, high) = (_mm_loadu_ps(from.cast()), _mm_loadu_ps(from.add(3).cast()));
            _mm_storeu_ps(to.cast(), _mm_shuffle_ps::<0b11_01_10_00>(low, high));
        }
        #[cfg(not(target_arch = "x86_64"))]
        for k in 0..FOUR {
            *to.add(k) = *from.add(2 * k);
        }
    }
}

/// Every second one of the words of some lines, `n` of each line.
///
/// # Safety
/// All words up to the last that is taken exist, and room for those taken.
unsafe fn every_second(from: *const u32, to: *mut u32, steps: [usize; 2], rows: usize, n: usize) {
    for row in 0..rows {
        // SAFETY: the caller's. The last vector takes some again.
        unsafe {
            let (from, to) = (from.add(row * steps[0]), to.add(row * steps[1]));
            if n < FOUR {
                for i in 0..n {
                    *to.add(i) = *from.add(2 * i);
                }
            } else {
                for i in (0..n).step_by(FOUR) {
                    let i = i.min(n - FOUR);
                    four_of_seven(from.add(2 * i), to.add(i));
                }
            }
        }
    }
}

/// # Safety
/// `n` elements exist.
#[inline(always)]
pub(super) unsafe fn zero<T: Default>(to: *mut T, n: usize) {
    // SAFETY: the caller's. Most runs are shorter than a call.
    unsafe {
        match n {
            0 => {}
            1 => to.write(T::default()),
            2 => {
                to.write(T::default());
                to.add(1).write(T::default());
            }
            _ => (0..n).for_each(|i| to.add(i).write(T::default())),
        }
    }
}

/// `to[j * to_step + i] = from[i * from_step + j]` for `i < n` and `j < m`.
///
/// # Safety
/// All these elements exist, and the two sides do not overlap.
pub(super) unsafe fn turn<T: Copy>(
    from: *const T,
    from_step: usize,
    to: *mut T,
    to_step: usize,
    n: usize,
    m: usize,
) {
    let words = size_of::<T>() == 4;
    let (n4, m4) = if words {
        (n / 4 * 4, m / 4 * 4)
    } else {
        (0, 0)
    };
    // SAFETY: the caller's.
    unsafe {
        // A cache line of each run at a time.
        for j0 in (0..m4).step_by(16) {
            for i in (0..n4).step_by(4) {
                for j in (j0..m4.min(j0 + 16)).step_by(4) {
                    let from = from.add(i * from_step + j).cast::<u8>();
                    let to = to.add(j * to_step + i).cast::<u32>();
                    four_words(from, from_step as isize * 4, to, to_step as isize);
                }
            }
        }
        for i in 0..n {
            for j in if i < n4 { m4 } else { 0 }..m {
                *to.add(j * to_step + i) = *from.add(i * from_step + j);
            }
        }
    }
}
