//! Operands of products on tile registers, packed: sixteen lines of 32 elements a tile.

#![allow(
    unsafe_code,
    reason = "operands are read, and tiles written, by pointer"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one vector instruction, under the features that `Bf16Dot::with` enables"
)]

use super::super::policy::Task;
use super::super::turn::{LANES, turn_ps512};
use super::{DEPTH, SIDE, TILE};
use half::bf16;
use std::arch::x86_64::*;

/// Lines to pack, rows of A or columns of B: 16 at a time, an even number of times. What is not there is zero.
pub(super) struct Pack {
    pub src: *const bf16,
    /// From one line to the next.
    pub step: isize,
    /// From one element of a line to the next.
    pub kstep: isize,
    pub lines: usize,
    pub k: usize,
    pub dst: *mut u32,
    /// The pairs of elements along k come first, as B is read; else the lines.
    pub pairs: bool,
}

impl Task for Pack {
    #[inline(always)]
    unsafe fn run(self) {
        let all = self.lines.next_multiple_of(2 * SIDE);
        // SAFETY: the caller's.
        unsafe {
            if self.step == 1 && self.kstep != 1 {
                // Along rows of memory: lines of a cache are read once, and few pages at a time.
                for p0 in (0..self.k).step_by(DEPTH) {
                    for i in (0..all).step_by(SIDE) {
                        self.tile(i, p0);
                    }
                }
            } else {
                for i in (0..all).step_by(SIDE) {
                    for p0 in (0..self.k).step_by(DEPTH) {
                        self.tile(i, p0);
                    }
                }
            }
        }
    }
}

impl Pack {
    /// Lines `i..i + 16` along `p0..p0 + 32`.
    #[inline(always)]
    unsafe fn tile(&self, i: usize, p0: usize) {
        let lines = self.lines.saturating_sub(i).min(SIDE);
        let depth = DEPTH.min(self.k - p0);
        let from = (i as isize * self.step).wrapping_add(p0 as isize * self.kstep);
        let src = self.src.wrapping_offset(from);
        // SAFETY: `lines` lines of `depth` elements from there; `dst` has room for all tiles.
        unsafe {
            let mut square = [_mm512_setzero_ps(); LANES];
            let by_pairs = match (self.kstep, self.step) {
                (1, _) => self.lines_as_they_are(src, lines, depth, &mut square),
                (_, 1) => self.rows_side_by_side(src, lines, depth, &mut square),
                _ => self.elements(src, lines, depth, &mut square),
            };
            if by_pairs != self.pairs {
                turn_ps512(&mut square);
            }
            let tile = i / SIDE * self.k.div_ceil(DEPTH) + p0 / DEPTH;
            let to = self.dst.add(tile * TILE).cast::<f32>();
            for (i, v) in square.iter().enumerate() {
                _mm512_store_ps(to.add(i * LANES), *v);
            }
        }
    }

    /// Lines whose elements are neighbours; false: a line a vector.
    #[inline(always)]
    unsafe fn lines_as_they_are(
        &self,
        src: *const bf16,
        lines: usize,
        depth: usize,
        to: &mut [__m512; LANES],
    ) -> bool {
        let there = u32::MAX >> (DEPTH - depth);
        for i in 0..lines {
            // SAFETY: `depth` elements are there.
            unsafe {
                let from = src.offset(i as isize * self.step);
                to[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, from.cast()));
            }
        }
        false
    }

    /// Elements that are neighbours of other lines'; true: a pair of each line a vector.
    #[inline(always)]
    unsafe fn rows_side_by_side(
        &self,
        src: *const bf16,
        lines: usize,
        depth: usize,
        to: &mut [__m512; LANES],
    ) -> bool {
        let there = ((1u32 << lines) - 1) as u16;
        for i in 0..depth.div_ceil(2) {
            let row = src.wrapping_offset(2 * i as isize * self.kstep);
            let partner = if 2 * i + 1 < depth { there } else { 0 };
            // SAFETY: of rows before `depth` the first `lines` elements are there.
            unsafe {
                let first = elements_of_row(row, there);
                let second = elements_of_row(row.wrapping_offset(self.kstep), partner);
                let both = _mm512_or_si512(first, _mm512_slli_epi32::<16>(second));
                to[i] = _mm512_castsi512_ps(both);
            }
        }
        true
    }

    /// Elements that lie apart; false: a line a vector.
    #[inline(always)]
    unsafe fn elements(
        &self,
        src: *const bf16,
        lines: usize,
        depth: usize,
        to: &mut [__m512; LANES],
    ) -> bool {
        for i in 0..lines {
            let mut line = [bf16::ZERO; DEPTH];
            for (p, e) in line.iter_mut().enumerate().take(depth) {
                // SAFETY: the element is there.
                *e = unsafe { *src.offset(i as isize * self.step + p as isize * self.kstep) };
            }
            to[i] = unsafe { _mm512_loadu_ps(line.as_ptr().cast()) };
        }
        false
    }
}

/// Sixteen neighbours as 32 bits each; zeros where a bit of `there` is not set, which are not read.
#[inline(always)]
unsafe fn elements_of_row(at: *const bf16, there: u16) -> __m512i {
    unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, at.cast())) }
}
