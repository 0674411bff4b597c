//! The blocked product of one thread: packing, tiles, and writing C.

#![allow(
    unsafe_code,
    reason = "packed panels are read and tiles written by pointer"
)]

use super::finish::{Ends, Finish};
use super::pack::{PackA, PackB};
use super::policy::{Policy, Real, Task};
use super::tile::{At, sums, sums_of_rows};
use super::turn::fetch;
use super::{Mat, MatMut};
use std::cell::RefCell;

/// Everything about one product; the pointers are trusted.
pub(super) struct Product<P: Policy> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: P::Acc,
    pub a: Mat<P::T>,
    pub b: Mat<P::T>,
    pub beta: P::Acc,
    pub c: MatMut<P::T>,
    /// Added to every row (stride `bias_step`) or, after a transposition, to every column.
    pub bias: Option<(*const P::T, isize, isize)>,
}

impl<P: Policy> Clone for Product<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Policy> Copy for Product<P> {}

impl<P: Policy> Product<P> {
    /// Writes an element: its sum with the factors, what was there before and the bias.
    ///
    /// # Safety
    /// `i` is below m, `j` below n.
    #[inline(always)]
    pub(super) unsafe fn put(&self, i: usize, j: usize, sum: P::Acc) {
        // SAFETY: the caller's.
        unsafe {
            let at = self.c.at(i, j).ptr;
            let mut v = sum * self.alpha;
            if self.beta != P::Acc::ZERO {
                v = P::mac(P::widen(*at), self.beta, v);
            }
            if let Some((bias, rs, cs)) = self.bias {
                v = v + P::widen(*bias.offset(i as isize * rs + j as isize * cs));
            }
            *at = P::narrow(v);
        }
    }
}

/// Bytes of packed A that are kept for all columns of B.
pub(super) const A_BLOCK: usize = 4 << 20;
/// Columns up to which A is read in place: packing it would cost more than the reading.
const NARROW: usize = 128;
/// Columns from which packing pairs of A costs next to nothing.
const FULL: usize = 1024;
/// Bytes of B up to which it is read in place.
const SMALL_B: usize = 32 << 10;
/// The same for few rows of A.
const LARGE_B: usize = 8 << 20;
/// Sums of the largest tile of any policy.
const MAX_TILE: usize = 9 * 48;

thread_local! {
    /// Packing buffers, kept between calls: 8-byte words, for every packed type.
    pub(super) static BUFFERS: RefCell<(Vec<u64>, Vec<u64>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Room for `n` values of type `T` starting at a cache line.
pub(super) fn room<T>(buffer: &mut Vec<u64>, n: usize) -> *mut T {
    let words = (n * size_of::<T>()).div_ceil(8) + 8;
    if buffer.len() < words {
        buffer.clear();
        buffer.resize(words, 0);
    }
    let at = buffer.as_mut_ptr();
    let skip = at.cast::<u8>().align_offset(64);
    // SAFETY: 8 words more than needed were reserved, and `skip` is below 64 bytes (or 0 where it cannot be told).
    unsafe { at.cast::<u8>().add(if skip < 64 { skip } else { 0 }).cast() }
}

/// Heights of the tiles that `rows` rows are cut into: all within one of each other.
pub(super) fn tiles(rows: usize, mr: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(mr).max(1);
    let (base, extra) = (rows / count, rows % count);
    (0..count).map(move |t| (t * base + t.min(extra), base + usize::from(t < extra)))
}

/// Where the panels that `columns` columns are cut into begin, and how wide they are: all of `WIDE` or two vectors, or one
/// where that is all.
pub(super) fn panels<P: Policy>(columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let vectors = columns.div_ceil(P::W);
    let wide = match (P::WIDE, vectors % 3) {
        (2, _) => 0,
        (_, 1) => (vectors / 3).saturating_sub(1),
        _ => vectors / 3,
    };
    let (wide_end, pairs) = (wide * 3 * P::W, (vectors - 3 * wide).div_ceil(2));
    let wide = (0..wide).map(|i| (i * 3 * P::W, 3 * P::W));
    let rest = vectors.min(2) * P::W;
    wide.chain((0..pairs).map(move |i| (wide_end + i * 2 * P::W, rest)))
}

/// How a product is cut into blocks.
struct Plan {
    mc: usize,
    kc: usize,
    nc: usize,
    a_in_place: bool,
    b_in_place: bool,
}

impl<P: Policy> Product<P> {
    /// Bytes of packed B that stay in the second cache while all rows of A meet them: that of machines with 512-bit vectors has a
    /// megabyte or more.
    const B_BLOCK: usize = if size_of::<P::V>() >= 64 {
        640 << 10
    } else {
        320 << 10
    };
    /// Columns of the widest panel.
    const NR: usize = P::WIDE * P::W;

    /// What ends sums that begin at row `i0` and column `j0` of C; the bias comes with the last of them.
    ///
    /// # Safety
    /// The element is there.
    pub(super) unsafe fn ends_at(&self, i0: usize, j0: usize, last: bool) -> Ends<P> {
        let place = |rs: isize, cs: isize| i0 as isize * rs + j0 as isize * cs;
        let bias = self.bias.filter(|_| last);
        // SAFETY: the caller's.
        unsafe {
            Ends {
                alpha: self.alpha,
                beta: self.beta,
                c: self.c.at(i0, j0),
                bias: bias.map(|(b, rs, cs)| (b.offset(place(rs, cs)), rs, cs)),
            }
        }
    }

    /// The whole product on this thread.
    ///
    /// # Safety
    /// Pointers and strides describe valid matrices, C overlaps nothing, and the machine has the policy's instructions.
    pub(super) unsafe fn run_serial(&self) {
        let mut buffers = BUFFERS.take();
        // SAFETY: the caller's.
        unsafe { self.blocks(&mut buffers) };
        BUFFERS.set(buffers);
    }

    /// Which operands are read where they are, and how much of the others is packed at a time.
    fn plan(&self) -> Plan {
        let (m, n, k) = (self.m, self.n, self.k);
        let kblocks = k.div_ceil(P::KC).max(1);
        let kc = k.div_ceil(kblocks).next_multiple_of(P::STEP).max(1);
        let (size, packed) = (size_of::<P::T>(), kc.div_ceil(P::STEP) * size_of::<P::P>());
        let panels = Self::B_BLOCK / (packed * Self::NR);
        // Few rows meet a panel so seldom that it is best used while it is in the first cache.
        let most = if m > 4 * P::MR {
            usize::MAX
        } else if self.b.cs == 1 {
            4
        } else {
            1
        };
        let bytes = n * k * size;
        let b_in_place = P::IN_PLACE
            && self.b.cs == 1
            && (bytes <= SMALL_B || m <= 2 * P::MR && bytes <= LARGE_B);
        Plan {
            mc: (A_BLOCK / packed).max(240),
            kc,
            nc: panels.min(most).max(1) * Self::NR,
            a_in_place: P::ROWS
                && match (self.a.rs, self.a.cs) {
                    _ if !P::IN_PLACE && (n > FULL || self.a.rs % 2 != 0 || k % 2 != 0) => false,
                    // Rows whole pages apart push each other out of the first cache.
                    (rs, 1) if n > NARROW => !b_in_place && (rs.unsigned_abs() * size) % 4096 != 0,
                    (_, 1) => !b_in_place || bytes <= SMALL_B,
                    (1, _) => P::IN_PLACE && n <= NARROW && (!b_in_place || bytes <= SMALL_B),
                    _ => false,
                },
            b_in_place,
        }
    }

    unsafe fn blocks(&self, buffers: &mut (Vec<u64>, Vec<u64>)) {
        let plan = self.plan();
        let (m, n, k) = (self.m, self.n, self.k);
        let packed_k = plan.kc.div_ceil(P::STEP);
        let pa: *mut P::P = if plan.a_in_place {
            std::ptr::null_mut()
        } else {
            room(&mut buffers.0, packed_k * m.min(plan.mc))
        };
        let width = plan.nc.min(n + 2 * P::W).next_multiple_of(P::W);
        let pb: *mut P::P = room(&mut buffers.1, packed_k * width);
        for i0 in (0..m).step_by(plan.mc) {
            let mb = plan.mc.min(m - i0);
            let mut p0 = 0;
            while p0 == 0 || p0 < k {
                let kb = plan.kc.min(k - p0);
                // SAFETY: blocks lie within the matrices; buffers have room for a block.
                unsafe { self.depth(&plan, (i0, mb), (p0, kb), (pa, pb)) };
                p0 += kb.max(1);
            }
        }
    }

    /// Rows `i0..i0 + mb` against all columns, along `p0..p0 + kb`.
    unsafe fn depth(
        &self,
        plan: &Plan,
        (i0, mb): (usize, usize),
        (p0, kb): (usize, usize),
        (pa, pb): (*mut P::P, *mut P::P),
    ) {
        // SAFETY: the caller's.
        unsafe {
            let src = self.a.at(i0, p0);
            if !plan.a_in_place {
                let dst = pa;
                P::with(PackA::<P> { src, mb, kb, dst });
            }
            for j0 in (0..self.n).step_by(plan.nc) {
                let nb = plan.nc.min(self.n - j0);
                let b = self.b.at(p0, j0);
                // The panels that are used in place need no packing; a narrow last one does.
                P::with(PackB::<P> {
                    src: b,
                    kb,
                    nb,
                    dst: pb,
                    only_tail: plan.b_in_place,
                });
                let block = Block::<P> {
                    mb,
                    nb,
                    ks: kb.div_ceil(P::STEP),
                    a: if plan.a_in_place { src.ptr.cast() } else { pa },
                    a_strides: plan
                        .a_in_place
                        .then_some((src.rs / P::STEP as isize, src.cs)),
                    b: plan.b_in_place.then_some((b.ptr.cast(), b.rs)),
                    pb,
                    ends: Ends {
                        beta: if p0 == 0 { self.beta } else { P::Acc::ONE },
                        ..self.ends_at(i0, j0, p0 + kb >= self.k)
                    },
                };
                if P::ROWS && plan.a_in_place && src.rs != 1 {
                    P::with(Rows(block));
                } else {
                    P::with(Tiles(block));
                }
            }
        }
    }
}

/// A packed (or in-place) block against a packed (or in-place) block.
struct Block<P: Policy> {
    mb: usize,
    nb: usize,
    ks: usize,
    a: *const P::P,
    a_strides: Option<(isize, isize)>,
    b: Option<(*const P::P, isize)>,
    pb: *const P::P,
    ends: Ends<P>,
}

/// The rows of a tile lie side by side: packed, or a matrix that is read transposed.
struct Tiles<P: Policy>(Block<P>);
/// Rows of A as they are, each contiguous.
struct Rows<P: Policy>(Block<P>);

impl<P: Policy> Task for Tiles<P> {
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's.
        unsafe { self.0.run::<false>() }
    }
}
impl<P: Policy> Task for Rows<P> {
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's.
        unsafe { self.0.run::<true>() }
    }
}

impl<P: Policy> Block<P> {
    /// A tile of A stays in the first cache while all panels of B pass by.
    #[inline(always)]
    unsafe fn run<const ROWS: bool>(&self) {
        let mut a = self.a;
        for (r0, h) in tiles(self.mb, P::MR) {
            let (ars, acs) = self.a_strides.unwrap_or((1, h as isize));
            for (j0, width) in panels::<P>(self.nb) {
                let w = width.min(self.nb - j0);
                let (b, bks) = match self.b {
                    // SAFETY: within B.
                    Some((b, rs)) if w == width => (unsafe { b.add(j0) }, rs),
                    // SAFETY: within the packed panels.
                    _ => (unsafe { self.pb.add(j0 * self.ks) }, width as isize),
                };
                let at = At {
                    a,
                    ars,
                    acs,
                    b,
                    bks,
                    r0,
                    j0,
                    w,
                };
                macro_rules! height {
                    ($($h:literal)+) => {
                        match (h, width / P::W) {
                            $(($h, 1) => self.tile::<$h, 1, ROWS>(at),)+
                            $(($h, 2) => self.tile::<$h, 2, ROWS>(at),)+
                            $(($h, 3) if P::WIDE > 2 => self.tile::<$h, 3, ROWS>(at),)+
                            _ => {}
                        }
                    };
                }
                // SAFETY: the tile lies within the blocks.
                unsafe {
                    if P::MR > 6 {
                        height!(1 2 3 4 5 6 7 8 9);
                    } else if P::MR > 4 {
                        height!(1 2 3 4 5 6);
                    } else if P::MR > 2 {
                        height!(1 2 3 4);
                    } else {
                        height!(1 2);
                    }
                }
            }
            // SAFETY: the next tile, or the end of the block.
            a = unsafe {
                if self.a_strides.is_none() {
                    a.add(h * self.ks)
                } else {
                    a.offset(h as isize * ars)
                }
            };
        }
    }

    /// One tile of C: `MR` rows of `NV` vectors, sums in registers over the whole depth.
    #[inline(always)]
    unsafe fn tile<const MR: usize, const NV: usize, const ROWS: bool>(&self, t: At<P>) {
        // SAFETY: the caller's; every pointer stays within the tile's operands.
        unsafe {
            let ends = &self.ends;
            let c = ends.c.at(t.r0, t.j0);
            for i in 0..MR {
                let row = c.ptr.wrapping_offset(i as isize * c.rs);
                for v in 0..NV {
                    fetch(row.wrapping_add(v * P::W));
                }
            }
            let sums = if ROWS {
                sums_of_rows::<P, MR, NV>(t, self.ks)
            } else {
                sums::<P, MR, NV>(t, self.ks)
            };
            // IN_PLACE says that T and Acc are one type.
            let add = ends.beta == P::Acc::ONE && ends.alpha == P::Acc::ONE;
            let plain = P::IN_PLACE && ends.bias.is_none() && (add || ends.beta == P::Acc::ZERO);
            if plain && t.w == NV * P::W && c.cs == 1 {
                let alpha = P::splat(ends.alpha);
                for i in 0..MR {
                    let row = c.ptr.offset(i as isize * c.rs).cast::<P::Acc>();
                    for v in 0..NV {
                        let at = row.add(v * P::W);
                        let before = if add { P::load(at) } else { P::zero() };
                        P::store(at, P::muladd(sums[i][v], alpha, before));
                    }
                }
                return;
            }
            if P::ROUNDS && ends.plainly_biased() && t.w == NV * P::W && c.cs == 1 {
                for i in 0..MR {
                    let row = c.ptr.offset(i as isize * c.rs);
                    for v in 0..NV {
                        let at = row.add(v * P::W);
                        let bias = ends.bias.map(|(b, _, _)| b.add(t.j0 + v * P::W));
                        let sum = ends.completed(sums[i][v], at, bias, P::W);
                        P::put(at, sum);
                    }
                }
                return;
            }
            let mut scratch = std::mem::MaybeUninit::<[P::Acc; MAX_TILE]>::uninit();
            let to = scratch.as_mut_ptr().cast::<P::Acc>();
            for i in 0..MR {
                for v in 0..NV {
                    P::store(to.add((i * NV + v) * P::W), sums[i][v]);
                }
            }
            P::with(Finish {
                ends,
                sums: to,
                rows: MR,
                width: NV * P::W,
                at: (t.r0, t.j0),
                w: t.w,
            });
        }
    }
}
