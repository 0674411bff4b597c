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
            let by_pairs = self.kstep != 1 && self.step == 1;
            let count = if by_pairs { depth.div_ceil(2) } else { lines };
            for (i, v) in square.iter_mut().enumerate().take(count) {
                *v = match self.kstep {
                    1 => self.neighbours(src, i, depth),
                    _ if by_pairs => self.pair(src, i, lines, depth),
                    _ => self.apart(src, i, depth),
                };
            }
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

    /// Line `i`, whose elements are neighbours.
    #[inline(always)]
    unsafe fn neighbours(&self, src: *const bf16, i: usize, depth: usize) -> __m512 {
        let there = u32::MAX >> (DEPTH - depth);
        // SAFETY: `depth` elements are there.
        unsafe {
            let from = src.offset(i as isize * self.step);
            _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, from.cast()))
        }
    }

    /// The pair `i` of each line, whose elements are neighbours of other lines'.
    #[inline(always)]
    unsafe fn pair(&self, src: *const bf16, i: usize, lines: usize, depth: usize) -> __m512 {
        let there = ((1u32 << lines) - 1) as u16;
        let row = src.wrapping_offset(2 * i as isize * self.kstep);
        let partner = if 2 * i + 1 < depth { there } else { 0 };
        // SAFETY: of rows before `depth` the first `lines` elements are there.
        unsafe {
            let first = elements_of_row(row, there);
            let second = elements_of_row(row.wrapping_offset(self.kstep), partner);
            _mm512_castsi512_ps(_mm512_or_si512(first, _mm512_slli_epi32::<16>(second)))
        }
    }

    /// Line `i`, whose elements lie apart.
    #[inline(always)]
    unsafe fn apart(&self, src: *const bf16, i: usize, depth: usize) -> __m512 {
        let mut line = [bf16::ZERO; DEPTH];
        for (p, e) in line.iter_mut().enumerate().take(depth) {
            // SAFETY: the element is there.
            *e = unsafe { *src.offset(i as isize * self.step + p as isize * self.kstep) };
        }
        unsafe { _mm512_loadu_ps(line.as_ptr().cast()) }
    }
}

/// Sixteen neighbours as 32 bits each; zeros where a bit of `there` is not set, which are not read.
#[inline(always)]
unsafe fn elements_of_row(at: *const bf16, there: u16) -> __m512i {
    unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, at.cast())) }
}
