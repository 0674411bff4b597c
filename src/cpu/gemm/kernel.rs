//! The blocked product of one thread: packing, tiles, and writing C.

#![allow(
    unsafe_code,
    reason = "packed panels are read and tiles written by pointer"
)]

use super::pack::{PackA, PackB};
use super::policy::{Policy, Real, Task};
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

/// The most rows of A in a packed block.
const MC: usize = 240;
/// Tallest tile and widest tile of any policy.
const MAX_TILE: usize = 12 * 32;
/// In-place limits in bytes.
const SMALL_A: usize = 256 << 10;
const SMALL_B: usize = 512 << 10;

thread_local! {
    /// Packing buffers, kept between calls: 8-byte words, for every packed type.
    static BUFFERS: RefCell<(Vec<u64>, Vec<u64>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Room for `n` values of type `T` starting at a cache line.
fn room<T>(buffer: &mut Vec<u64>, n: usize) -> *mut T {
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

/// How a product is cut into blocks.
struct Plan {
    kc: usize,
    nc: usize,
    a_in_place: bool,
    b_in_place: bool,
}

impl<P: Policy> Product<P> {
    const NR: usize = 2 * P::W;

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

    /// Which operands are read where they are, and how many columns of B are packed at a time.
    fn plan(&self) -> Plan {
        let (m, n, k) = (self.m, self.n, self.k);
        let kblocks = k.div_ceil(P::KC).max(1);
        let kc = k.div_ceil(kblocks).next_multiple_of(P::STEP).max(1);
        let size = size_of::<P::T>();
        let a_page = (self.a.rs.unsigned_abs() * size) % 4096 == 0;
        let small_m = m <= MC;
        // A panel at a time where each is used once; else as much of B as half a megabyte or so holds.
        let nc = if small_m && self.b.cs == 1 && n * k * size > 1 << 20 {
            // Rows of a large B: longer pieces than a panel's of each.
            4 * Self::NR
        } else if small_m {
            Self::NR
        } else {
            ((1 << 20) / (kc * size_of::<P::P>())).clamp(4, 64) * Self::NR
        };
        Plan {
            kc,
            nc,
            a_in_place: P::IN_PLACE
                && m * kc * size <= SMALL_A
                && (!a_page || m <= 2 || self.a.rs == 1),
            b_in_place: P::IN_PLACE
                && self.b.cs == 1
                && n * k * size <= SMALL_B
                && (m > 12 || n * k * size <= 48 << 10),
        }
    }

    unsafe fn blocks(&self, buffers: &mut (Vec<u64>, Vec<u64>)) {
        let plan = self.plan();
        let (n, k, kc, nc) = (self.n, self.k, plan.kc, plan.nc);
        let packed_k = kc.div_ceil(P::STEP);
        let pa: *mut P::P = if plan.a_in_place {
            std::ptr::null_mut()
        } else {
            room(&mut buffers.0, packed_k * self.m.min(MC))
        };
        let width = nc.min(n.next_multiple_of(Self::NR));
        let pb: *mut P::P = room(&mut buffers.1, packed_k * width);
        let mut p0 = 0;
        while p0 == 0 || p0 < k {
            let kb = kc.min(k - p0);
            let mut a_packed = usize::MAX;
            for j0 in (0..n).step_by(nc) {
                let nb = nc.min(n - j0);
                // SAFETY: blocks lie within the matrices; buffers have room for a block.
                unsafe {
                    // The panels that are used in place need no packing; a narrow last one does.
                    P::with(PackB::<P> {
                        src: self.b.at(p0, j0),
                        kb,
                        nb,
                        dst: pb,
                        only_tail: plan.b_in_place,
                    });
                    self.columns(&plan, (p0, kb), (j0, nb), (pa, pb), &mut a_packed);
                }
            }
            p0 += kb.max(1);
        }
    }

    /// All rows of A against the packed columns `j0..j0 + nb` of B, along `p0..p0 + kb`.
    #[inline(always)]
    unsafe fn columns(
        &self,
        plan: &Plan,
        (p0, kb): (usize, usize),
        (j0, nb): (usize, usize),
        (pa, pb): (*mut P::P, *mut P::P),
        a_packed: &mut usize,
    ) {
        let (first, last) = (p0 == 0, p0 + kb >= self.k);
        // Blocks of one height: a low last one would read the columns for a few rows only.
        let mc = self.m.div_ceil(self.m.div_ceil(MC).max(1)).max(1);
        for i0 in (0..self.m).step_by(mc) {
            let mb = mc.min(self.m - i0);
            // SAFETY: blocks lie within the matrices; the buffer has room for a block.
            unsafe {
                let (a, b) = (self.a.at(i0, p0), self.b.at(p0, j0));
                if !plan.a_in_place && *a_packed != i0 {
                    P::with(PackA::<P> {
                        src: a,
                        mb,
                        kb,
                        dst: pa,
                    });
                    *a_packed = i0;
                }
                let bias = self.bias.filter(|_| last);
                let place = |rs: isize, cs: isize| i0 as isize * rs + j0 as isize * cs;
                let block = Block::<P> {
                    mb,
                    nb,
                    ks: kb.div_ceil(P::STEP),
                    alpha: self.alpha,
                    beta: if first { self.beta } else { P::Acc::ONE },
                    a: if plan.a_in_place { a.ptr.cast() } else { pa },
                    a_strides: plan.a_in_place.then_some((a.rs, a.cs)),
                    b: plan.b_in_place.then_some((b.ptr.cast(), b.rs)),
                    pb,
                    c: self.c.at(i0, j0),
                    bias: bias.map(|(b, rs, cs)| (b.offset(place(rs, cs)), rs, cs)),
                };
                if plan.a_in_place {
                    P::with(InPlace(block))
                } else {
                    P::with(Packed(block))
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
    alpha: P::Acc,
    beta: P::Acc,
    a: *const P::P,
    a_strides: Option<(isize, isize)>,
    b: Option<(*const P::P, isize)>,
    pb: *const P::P,
    c: MatMut<P::T>,
    bias: Option<(*const P::T, isize, isize)>,
}

struct Packed<P: Policy>(Block<P>);
struct InPlace<P: Policy>(Block<P>);

impl<P: Policy> Task for Packed<P> {
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's.
        unsafe { self.0.run::<true>() }
    }
}
impl<P: Policy> Task for InPlace<P> {
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's.
        unsafe { self.0.run::<false>() }
    }
}

impl<P: Policy> Block<P> {
    #[inline(always)]
    unsafe fn run<const PACKED: bool>(&self) {
        let nr = 2 * P::W;
        let (ars, acs) = self.a_strides.unwrap_or((1, 0));
        for j0 in (0..self.nb).step_by(nr) {
            let w = nr.min(self.nb - j0);
            let (b, bks) = match self.b {
                // SAFETY: within B.
                Some((b, rs)) if w == nr => (unsafe { b.add(j0) }, rs),
                // SAFETY: within the packed panels.
                _ => (unsafe { self.pb.add(j0 * self.ks) }, nr as isize),
            };
            let mut a = self.a;
            for (r0, h) in tiles(self.mb, P::MR) {
                macro_rules! height {
                    ($($h:literal)+) => {
                        match h {
                            $($h => tile::<P, $h, PACKED>(self, a, ars, acs, b, bks, r0, j0, w),)+
                            _ => {}
                        }
                    };
                }
                // SAFETY: the tile lies within the blocks.
                unsafe {
                    if P::MR > 6 {
                        height!(1 2 3 4 5 6 7 8 9 10 11 12);
                    } else if P::MR > 4 {
                        height!(1 2 3 4 5 6);
                    } else {
                        height!(1 2 3 4);
                    }
                    a = if PACKED {
                        a.add(h * self.ks)
                    } else {
                        a.offset(h as isize * ars)
                    };
                }
            }
        }
    }
}

/// One tile of C: `MR` rows of two vectors, sums in registers over the whole depth.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn tile<P: Policy, const MR: usize, const PACKED: bool>(
    block: &Block<P>,
    mut a: *const P::P,
    ars: isize,
    acs: isize,
    mut b: *const P::P,
    bks: isize,
    r0: usize,
    j0: usize,
    w: usize,
) {
    // SAFETY: the caller's; every pointer stays within the tile's operands.
    unsafe {
        let mut acc = [[P::zero(); 2]; MR];
        for _ in 0..block.ks {
            let (b0, b1) = (P::load_b(b), P::load_b(b.add(P::W)));
            for (i, acc) in acc.iter_mut().enumerate() {
                let x = if PACKED {
                    a.add(i)
                } else {
                    a.offset(i as isize * ars)
                };
                acc[0] = P::fma(acc[0], x, b0);
                acc[1] = P::fma(acc[1], x, b1);
            }
            a = if PACKED { a.add(MR) } else { a.offset(acs) };
            b = b.offset(bks);
        }
        let c = block.c.at(r0, j0);
        let (alpha, beta) = (block.alpha, block.beta);
        let plain_bias = block.bias.is_none_or(|(_, rs, cs)| rs == 0 && cs == 1);
        if P::IN_PLACE && w == 2 * P::W && c.cs == 1 && plain_bias {
            // IN_PLACE says that T and Acc are one type.
            let (va, vb, one) = (P::splat(alpha), P::splat(beta), P::splat(P::Acc::ONE));
            for (i, acc) in acc.iter().enumerate() {
                let row = c.ptr.offset(i as isize * c.rs).cast::<P::Acc>();
                for (half, &acc) in acc.iter().enumerate() {
                    let at = row.add(half * P::W);
                    let mut v = acc;
                    if alpha != P::Acc::ONE {
                        v = P::muladd(v, va, P::zero());
                    }
                    if beta != P::Acc::ZERO {
                        v = P::muladd(P::load(at), vb, v);
                    }
                    if let Some((bias, _, _)) = block.bias {
                        v = P::muladd(P::load(bias.add(j0 + half * P::W).cast()), one, v);
                    }
                    P::store(at, v);
                }
            }
            return;
        }
        let mut scratch = [P::Acc::ZERO; MAX_TILE];
        for (i, acc) in acc.iter().enumerate() {
            P::store(scratch.as_mut_ptr().add(i * 2 * P::W), acc[0]);
            P::store(scratch.as_mut_ptr().add(i * 2 * P::W + P::W), acc[1]);
        }
        if c.cs == 1 && beta == P::Acc::ZERO && plain_bias {
            for i in 0..MR {
                let row = &mut scratch[i * 2 * P::W..][..w];
                if alpha != P::Acc::ONE {
                    row.iter_mut().for_each(|v| *v = *v * alpha);
                }
                if let Some((bias, _, _)) = block.bias {
                    for (j, v) in row.iter_mut().enumerate() {
                        *v = *v + P::widen(*bias.add(j0 + j));
                    }
                }
                P::narrow_row(row.as_ptr(), c.ptr.offset(i as isize * c.rs), w);
            }
            return;
        }
        for i in 0..MR {
            for j in 0..w {
                let at = c.ptr.offset(i as isize * c.rs + j as isize * c.cs);
                let mut v = scratch[i * 2 * P::W + j] * alpha;
                if beta != P::Acc::ZERO {
                    v = P::mac(P::widen(*at), beta, v);
                }
                if let Some((bias, rs, cs)) = block.bias {
                    v = v + P::widen(*bias.offset((r0 + i) as isize * rs + (j0 + j) as isize * cs));
                }
                *at = P::narrow(v);
            }
        }
    }
}
