//! Packing: blocks of A as tiles, blocks of B as panels, in the order in which the micro-kernels read them.

#![allow(
    unsafe_code,
    reason = "matrices are read and panels written by pointer"
)]

use super::Mat;
use super::kernel::tiles;
use super::policy::{Policy, Real, Task};
use crate::cpu::transpose::four_words;

/// Packs a block of A as tiles of `[k][rows]`.
pub(super) struct PackA<P: Policy> {
    pub src: Mat<P::T>,
    pub mb: usize,
    pub kb: usize,
    pub dst: *mut P::P,
}

impl<P: Policy> Task for PackA<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let mut dst = self.dst;
        for (r0, h) in tiles(self.mb, P::MR) {
            // SAFETY: the block lies within A, `dst` has room for it.
            unsafe {
                pack::<P>(
                    self.src.at(r0, 0).ptr,
                    self.src.rs,
                    self.src.cs,
                    h,
                    h,
                    self.kb,
                    dst,
                );
                dst = dst.add(h * self.kb.div_ceil(P::STEP));
            }
        }
    }
}

/// Packs a block of B as panels of `[k][NR]`, the last one filled with zeros.
pub(super) struct PackB<P: Policy> {
    pub src: Mat<P::T>,
    pub kb: usize,
    pub nb: usize,
    pub dst: *mut P::P,
    pub only_tail: bool,
}

impl<P: Policy> Task for PackB<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let nr = 2 * P::W;
        let ks = self.kb.div_ceil(P::STEP);
        for j0 in (0..self.nb).step_by(nr) {
            let w = nr.min(self.nb - j0);
            if self.only_tail && w == nr {
                continue;
            }
            // SAFETY: the panel lies within B, `dst` has room for all panels.
            unsafe {
                pack::<P>(
                    self.src.at(0, j0).ptr,
                    self.src.cs,
                    self.src.rs,
                    w,
                    nr,
                    self.kb,
                    self.dst.add(j0 * ks),
                )
            };
        }
    }
}

/// `dst[p][i] = src[i * step + p * kstep]` for `i < w`, zero up to `width`; STEP elements along k in each value.
#[inline(always)]
pub(super) unsafe fn pack<P: Policy>(
    src: *const P::T,
    step: isize,
    kstep: isize,
    w: usize,
    width: usize,
    kb: usize,
    dst: *mut P::P,
) {
    let panel = Panel::<P> {
        src,
        step,
        kstep,
        w,
        width,
        kb,
        dst,
    };
    // SAFETY: the caller's; reads stop at `w` and `kb`.
    unsafe {
        if w < width {
            for i in 0..width * kb.div_ceil(P::STEP) {
                *dst.add(i) = P::zero_p();
            }
        }
        match (step, P::STEP) {
            (1, 1) => panel.rows(),
            (1, 2) => panel.pairs_of_rows(),
            _ => panel.turned(),
        }
    }
}

/// What one call of [`pack`] was given.
struct Panel<P: Policy> {
    src: *const P::T,
    step: isize,
    kstep: isize,
    w: usize,
    width: usize,
    kb: usize,
    dst: *mut P::P,
}

impl<P: Policy> Panel<P> {
    /// The packed value of column `i` from row `p` on.
    #[inline(always)]
    unsafe fn one(&self, i: usize, p: usize) -> P::P {
        // SAFETY: `i < w` and `p < kb`.
        unsafe {
            let s = self
                .src
                .offset(i as isize * self.step + p as isize * self.kstep);
            let x0 = *s;
            // A missing partner must not be read; P::pack of (x, 0) has to add nothing.
            if P::STEP == 1 {
                P::pack(x0, x0)
            } else if p + 1 < self.kb {
                P::pack(x0, *s.offset(self.kstep))
            } else {
                P::pack(x0, P::narrow(P::Acc::ZERO))
            }
        }
    }

    /// Rows that lie together, an element a value.
    #[inline(always)]
    unsafe fn rows(&self) {
        // SAFETY: rows of `w` elements; `dst` has room for `width` a row.
        unsafe {
            for p in 0..self.kb {
                let s = self.src.offset(p as isize * self.kstep);
                let d = self.dst.add(p * self.width);
                if self.w == self.width && self.width == 2 * P::W {
                    for i in 0..2 * P::W {
                        *d.add(i) = P::pack(*s.add(i), *s.add(i));
                    }
                } else {
                    for i in 0..self.w {
                        *d.add(i) = P::pack(*s.add(i), *s.add(i));
                    }
                }
            }
        }
    }

    /// Rows that lie together, two rows a value.
    #[inline(always)]
    unsafe fn pairs_of_rows(&self) {
        // SAFETY: rows of `w` elements; the last row has no partner, which `one` sees to.
        unsafe {
            for p in (0..self.kb).step_by(2) {
                let s = self.src.offset(p as isize * self.kstep);
                let d = self.dst.add(p / 2 * self.width);
                if p + 1 == self.kb {
                    for i in 0..self.w {
                        *d.add(i) = self.one(i, p);
                    }
                } else {
                    let t = s.offset(self.kstep);
                    for i in 0..self.w {
                        *d.add(i) = P::pack(*s.add(i), *t.add(i));
                    }
                }
            }
        }
    }

    /// Rows whose elements lie apart.
    #[inline(always)]
    unsafe fn turned(&self) {
        // SAFETY: as for `one`; small blocks keep both sides in L1.
        unsafe {
            let i0 = self.transposed();
            for p0 in (0..self.kb).step_by(16 * P::STEP) {
                let p1 = self.kb.min(p0 + 16 * P::STEP);
                for i in i0..self.w {
                    for p in (p0..p1).step_by(P::STEP) {
                        *self.dst.add(p / P::STEP * self.width + i) = self.one(i, p);
                    }
                }
            }
        }
    }

    /// Transposes four by four, where the data are contiguous along k and a packed value is the bits of its elements;
    /// gives how many columns were done.
    #[inline(always)]
    unsafe fn transposed(&self) -> usize {
        if self.kstep != 1 || size_of::<P::P>() != 4 || P::STEP * size_of::<P::T>() != 4 {
            return 0;
        }
        let (i0, whole) = (self.w / 4 * 4, self.kb / (4 * P::STEP) * 4 * P::STEP);
        let step_bytes = self.step * size_of::<P::T>() as isize;
        // SAFETY: as for `one`: four columns and four packed values lie within the block.
        unsafe {
            // A cache line of each run at a time: runs a power of two apart push each other out of the cache.
            for p0 in (0..whole).step_by(16 * P::STEP) {
                for i in (0..i0).step_by(4) {
                    for p in (p0..whole.min(p0 + 16 * P::STEP)).step_by(4 * P::STEP) {
                        let from = self.src.offset(i as isize * self.step).add(p).cast::<u8>();
                        let to = self.dst.add(p / P::STEP * self.width + i).cast::<u32>();
                        four_words(from, step_bytes, to, self.width as isize);
                    }
                }
            }
            for i in 0..i0 {
                for p in (whole..self.kb).step_by(P::STEP) {
                    *self.dst.add(p / P::STEP * self.width + i) = self.one(i, p);
                }
            }
        }
        i0
    }
}
