//! The micro-kernels: sums of a tile of C in registers, over the whole depth of a block.

#![allow(unsafe_code, reason = "operands are read by pointer")]

use super::policy::Policy;
use super::turn::{fetch, opaque};

/// Steps along k that a panel is asked for before they are needed.
const AHEAD: isize = 8;

/// Operands and place of a tile.
#[derive(Clone, Copy)]
pub(super) struct At<P: Policy> {
    pub a: *const P::P,
    pub ars: isize,
    pub acs: isize,
    pub b: *const P::P,
    pub bks: isize,
    pub r0: usize,
    pub j0: usize,
    pub w: usize,
}

/// Sums of a tile whose rows lie side by side.
#[inline(always)]
pub(super) unsafe fn sums<P: Policy, const MR: usize, const NV: usize>(
    t: At<P>,
    ks: usize,
) -> [[P::V; NV]; MR] {
    let (mut a, mut b) = (t.a, t.b);
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[P::zero(); NV]; MR];
        for _ in 0..ks {
            let ahead = b.wrapping_offset(AHEAD * t.bks);
            let mut row = [P::load_b(b); NV];
            for v in 0..NV {
                row[v] = P::load_b(b.add(v * P::W));
                fetch(ahead.wrapping_add(v * P::W));
            }
            for i in 0..MR {
                for v in 0..NV {
                    acc[i][v] = P::fma(acc[i][v], a.add(i), row[v]);
                }
            }
            a = a.wrapping_offset(t.acs);
            b = b.wrapping_offset(t.bks);
        }
        acc
    }
}

/// Sums of a tile whose rows are contiguous, at most 9. Three rows a pointer: more pointers than registers would be read again
/// each step.
#[inline(always)]
pub(super) unsafe fn sums_of_rows<P: Policy, const MR: usize, const NV: usize>(
    t: At<P>,
    ks: usize,
) -> [[P::V; NV]; MR] {
    let mut b = t.b;
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[P::zero(); NV]; MR];
        let mut a = [t.a; 3];
        for g in 1..3 {
            a[g] = t.a.wrapping_offset(3 * g as isize * t.ars);
        }
        for _ in 0..ks / 4 {
            for g in 0..3 {
                a[g] = opaque(a[g]);
            }
            step_of_rows::<P, MR, NV>(&mut acc, a, 0, t.ars, b);
            b = opaque(b.wrapping_offset(t.bks));
            step_of_rows::<P, MR, NV>(&mut acc, a, 1, t.ars, b);
            b = opaque(b.wrapping_offset(t.bks));
            step_of_rows::<P, MR, NV>(&mut acc, a, 2, t.ars, b);
            b = opaque(b.wrapping_offset(t.bks));
            step_of_rows::<P, MR, NV>(&mut acc, a, 3, t.ars, b);
            b = opaque(b.wrapping_offset(t.bks));
            for g in 0..3 {
                a[g] = a[g].wrapping_add(4);
            }
        }
        for u in 0..ks % 4 {
            step_of_rows::<P, MR, NV>(&mut acc, a, u, t.ars, b);
            b = b.wrapping_offset(t.bks);
        }
        acc
    }
}

/// Column `u` of a tile times a row of the panel.
#[inline(always)]
unsafe fn step_of_rows<P: Policy, const MR: usize, const NV: usize>(
    acc: &mut [[P::V; NV]; MR],
    a: [*const P::P; 3],
    u: usize,
    ars: isize,
    b: *const P::P,
) {
    // SAFETY: the caller's.
    unsafe {
        // Panels; rows of B that lie apart are few enough here to be in the first cache.
        let ahead = b.wrapping_add(AHEAD as usize * NV * P::W);
        let mut row = [P::load_b(b); NV];
        for v in 0..NV {
            row[v] = P::load_b(b.add(v * P::W));
            fetch(ahead.wrapping_add(v * P::W));
        }
        for i in 0..MR {
            let x = a[i / 3].offset((i % 3) as isize * ars).add(u);
            for v in 0..NV {
                acc[i][v] = P::fma(acc[i][v], x, row[v]);
            }
        }
    }
}
