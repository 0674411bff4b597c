//! Packing: blocks of A as tiles, blocks of B as panels, in the order in which the micro-kernels read them.

#![allow(
    unsafe_code,
    reason = "matrices are read and panels written by pointer"
)]

use super::Mat;
use super::kernel::{panels, tiles};
use super::policy::{Policy, Real, Task};
use super::turn::{LANES, fetch};
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
        let ks = self.kb.div_ceil(P::STEP);
        let mut group = [(0, 0); SIDE];
        let mut filled = 0;
        for (r0, h) in tiles(self.mb, P::MR) {
            // SAFETY: the block lies within A, `dst` has room for it.
            unsafe {
                if self.src.rs == 1 && P::STEP == 1 {
                    group[filled] = (r0, h);
                    filled += 1;
                    if filled == SIDE || r0 + h == self.mb {
                        self.side_by_side(&group[..filled]);
                        filled = 0;
                    }
                    continue;
                }
                let (src, dst) = (self.src.at(r0, 0), self.dst.add(r0 * ks));
                pack::<P>(src.ptr, src.rs, src.cs, h, h, self.kb, dst);
            }
        }
    }
}

impl<P: Policy> PackA<P> {
    /// Tiles whose rows lie together, column after column.
    #[inline(always)]
    unsafe fn side_by_side(&self, group: &[(usize, usize)]) {
        for p in 0..self.kb {
            for &(r0, h) in group {
                // SAFETY: the tiles lie within A, `dst` has room for them.
                unsafe {
                    let src = self.src.at(r0, p).ptr;
                    fetch(src.wrapping_offset(8 * self.src.cs));
                    let (kb, dst) = (self.kb, self.dst.add(r0 * self.kb));
                    let panel = Panel::<P> {
                        src,
                        step: 1,
                        kstep: 0,
                        w: h,
                        width: h,
                        kb,
                        dst,
                    };
                    panel.row(src, p);
                }
            }
        }
    }
}

/// Tiles and panels that are packed side by side, so that rows are read in longer pieces.
const SIDE: usize = 8;

/// Packs a block of B as panels of `[k][columns]`; what fills the last one up is never used.
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
        let ks = self.kb.div_ceil(P::STEP);
        let mut group = [(0, 0); SIDE];
        let mut filled = 0;
        for (j0, width) in panels::<P>(self.nb) {
            if self.only_tail && j0 + width <= self.nb {
                continue;
            }
            // SAFETY: the panel lies within B, `dst` has room for all panels.
            unsafe {
                if self.src.cs == 1 && P::STEP == 1 {
                    group[filled] = (j0, width);
                    filled += 1;
                    if filled == SIDE / 2 || j0 + width >= self.nb {
                        self.side_by_side(&group[..filled]);
                        filled = 0;
                    }
                    continue;
                }
                let (src, dst) = (self.src.at(0, j0), self.dst.add(j0 * ks));
                let w = width.min(self.nb - j0);
                pack::<P>(src.ptr, src.cs, src.rs, w, width, self.kb, dst);
            }
        }
    }
}

impl<P: Policy> PackB<P> {
    /// Some panels, row after row.
    #[inline(always)]
    unsafe fn side_by_side(&self, group: &[(usize, usize)]) {
        for p in 0..self.kb {
            for &(j0, width) in group {
                // SAFETY: the panels lie within B, `dst` has room for whole panels.
                unsafe {
                    let row = self.src.at(p, j0).ptr;
                    let later = row.wrapping_offset(8 * self.src.rs);
                    let to = self.dst.add(j0 * self.kb + p * width).cast::<P::Acc>();
                    for j in (0..width).step_by(P::W) {
                        fetch(later.wrapping_add(j));
                        let v = match (self.nb - j0).saturating_sub(j) {
                            0 => P::zero(),
                            left if left >= P::W => P::load_wide(row.add(j)),
                            left => P::load_part(row.add(j), left),
                        };
                        P::store(to.add(j), v);
                    }
                }
            }
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
        match (step, kstep, P::STEP) {
            (1, _, 1) => return panel.rows(),
            (_, 1, 1) => return panel.squares(),
            _ => {}
        }
        if w < width {
            for i in 0..width * kb.div_ceil(P::STEP) {
                *dst.add(i) = P::zero_p();
            }
        }
        if step == 1 {
            panel.pairs_of_rows();
        } else {
            panel.turned();
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

    /// Writes a vector of sums' type from value `at` on, what fits into the panel of it. Single values are packed widened.
    #[inline(always)]
    unsafe fn put(&self, at: usize, v: P::V) {
        let (to, room) = (self.dst.cast::<P::Acc>(), self.width * self.kb - at);
        // SAFETY: `at` lies within the panel.
        unsafe {
            if room >= P::W {
                P::store(to.add(at), v);
            } else {
                P::store_part(to.add(at), v, room);
            }
        }
    }

    /// Rows that lie together, an element a value. What a vector writes behind a row is written again with the next one.
    #[inline(always)]
    unsafe fn rows(&self) {
        // SAFETY: rows of `w` elements; `dst` has room for `width` a row.
        unsafe {
            for p in 0..self.kb {
                self.row(self.src.offset(p as isize * self.kstep), p);
            }
        }
    }

    /// One of them.
    #[inline(always)]
    unsafe fn row(&self, from: *const P::T, p: usize) {
        for i in (0..self.width).step_by(P::W) {
            // SAFETY: `w` elements are there.
            unsafe {
                let v = match self.w.saturating_sub(i) {
                    0 => P::zero(),
                    left if left >= P::W => P::load_wide(from.add(i)),
                    left => P::load_part(from.add(i), left),
                };
                self.put(p * self.width + i, v);
            }
        }
    }

    /// Columns that lie together, an element a value: squares of vectors, the last of the rows first, as vectors reach into
    /// next rows. What stands in for missing columns is never used.
    #[inline(always)]
    unsafe fn squares(&self) {
        let whole = self.kb / P::W * P::W;
        // SAFETY: columns of `kb` elements, `w` of them.
        unsafe {
            for done in 0..self.width.div_ceil(P::W) {
                let i0 = (self.width.div_ceil(P::W) - 1 - done) * P::W;
                for p0 in (0..self.kb).step_by(P::W) {
                    let mut square = [P::zero(); LANES];
                    let mut column = self.src.offset(i0.min(self.w - 1) as isize * self.step);
                    column = column.add(p0);
                    for i in 0..P::W {
                        square[i] = if p0 < whole {
                            fetch(column.wrapping_add(4 * P::W));
                            P::load_wide(column)
                        } else {
                            P::load_part(column, self.kb - p0)
                        };
                        if i0 + i + 1 < self.w {
                            column = column.wrapping_offset(self.step);
                        }
                    }
                    P::turn(&mut square);
                    let at = p0 * self.width + i0;
                    if p0 + 2 * P::W <= self.kb {
                        // Another square follows, so that there is room behind every row.
                        let to = self.dst.cast::<P::Acc>().add(at);
                        for q in 0..P::W {
                            P::store(to.add(q * self.width), square[q]);
                        }
                    } else {
                        for q in 0..P::W {
                            if p0 + q < self.kb {
                                self.put(at + q * self.width, square[q]);
                            }
                        }
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
        // The last four may share columns with those before.
        let i0 = if self.w < 4 { 0 } else { self.w };
        let whole = self.kb / (4 * P::STEP) * 4 * P::STEP;
        let step_bytes = self.step * size_of::<P::T>() as isize;
        // SAFETY: as for `one`: four columns and four packed values lie within the block.
        unsafe {
            // A cache line of each run at a time: runs a power of two apart push each other out of the cache.
            for p0 in (0..whole).step_by(16 * P::STEP) {
                for i in (0..i0).step_by(4) {
                    let i = i.min(i0 - 4);
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
