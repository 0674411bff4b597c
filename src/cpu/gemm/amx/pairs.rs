//! Products of rows and pairs where they lie, on tile registers.

#![allow(unsafe_code, reason = "tile registers, and operands by pointer")]

use super::super::pairs::{Pair, Pairs, SIDE};
use super::Configured;
use half::bf16;
use std::arch::asm;

/// # Safety
/// As [`Pairs::run`].
pub(in crate::cpu::gemm) unsafe fn run(p: &Pairs) {
    let part = p.part.max(1);
    // SAFETY: the caller's.
    let _configured = unsafe { Configured::new() };
    for r0 in (0..p.m).step_by(2 * SIDE) {
        let two = p.m - r0 > SIDE;
        for from in (0..p.places.len()).step_by(part) {
            let places = &p.places[from..p.places.len().min(from + part)];
            for c0 in (0..p.n).step_by(2 * SIDE) {
                // SAFETY: the tiles are there.
                unsafe {
                    let at = r0 / (2 * SIDE) * p.a.both + from * p.a.step;
                    let tiles = Tiles {
                        product: p,
                        a: p.a.at.add(at),
                        b: p.b.add(c0),
                        places,
                        c: p.c.add(r0 * p.pitch + c0),
                    };
                    match (two, p.add || from > 0) {
                        (true, false) => two_rows(&tiles),
                        (true, true) => two_rows_more(&tiles),
                        (false, false) => one_row(&tiles),
                        (false, true) => one_row_more(&tiles),
                    }
                }
            }
        }
    }
}

/// Tiles of rows and two of columns.
struct Tiles<'a> {
    product: &'a Pairs<'a>,
    a: *const bf16,
    b: *const Pair,
    places: &'a [usize],
    c: *mut f32,
}

macro_rules! product {
    ($name:ident, [$($begin:literal)+] [$($step:literal)+] [$($end:literal)+]) => {
        /// # Safety
        /// Registers are configured; the tiles are there, and places are not none.
        #[inline(never)]
        unsafe fn $name(t: &Tiles) {
            let a = &t.product.a;
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    $($begin,)+
                    "2:",
                    "mov {b1}, [{places}]",
                    "lea {b1}, [{b} + {b1}*4]",
                    "lea {a2}, [{a} + {second}]",
                    $($step,)+
                    "add {a}, {step}",
                    "add {places}, 8",
                    "dec {n}",
                    "jnz 2b",
                    "mov {a2}, {pitch}",
                    "shl {a2}, 4",
                    "add {a2}, {c}",
                    $($end,)+
                    a = inout(reg) t.a => _,
                    row = in(reg) a.row * size_of::<bf16>(),
                    step = in(reg) a.step * size_of::<bf16>(),
                    second = in(reg) a.second * size_of::<bf16>(),
                    b = in(reg) t.b,
                    places = inout(reg) t.places.as_ptr() => _,
                    lane = in(reg) t.product.lane * size_of::<Pair>(),
                    n = inout(reg) t.places.len() => _,
                    c = in(reg) t.c,
                    pitch = in(reg) t.product.pitch * size_of::<f32>(),
                    b1 = out(reg) _,
                    a2 = out(reg) _,
                    options(nostack),
                );
            }
        }
    };
    // The sums of two tiles of rows.
    ($name:ident of two, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm6, [{b1} + {lane}*1]" "tileloadd tmm4, [{a} + {row}*1]" "tdpbf16ps tmm0, tmm4, tmm6"
             "tileloadd tmm5, [{a2} + {row}*1]" "tdpbf16ps tmm2, tmm5, tmm6"
             "tileloadd tmm7, [{b1} + {lane}*1 + 64]" "tdpbf16ps tmm1, tmm4, tmm7" "tdpbf16ps tmm3, tmm5, tmm7"]
            ["tilestored [{c} + {pitch}*1], tmm0" "tilestored [{c} + {pitch}*1 + 64], tmm1"
             "tilestored [{a2} + {pitch}*1], tmm2" "tilestored [{a2} + {pitch}*1 + 64], tmm3"] }
    };
    // Of one tile of rows.
    ($name:ident of one, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm4, [{a} + {row}*1]" "tileloadd tmm6, [{b1} + {lane}*1]" "tdpbf16ps tmm0, tmm4, tmm6"
             "tileloadd tmm7, [{b1} + {lane}*1 + 64]" "tdpbf16ps tmm1, tmm4, tmm7"]
            ["tilestored [{c} + {pitch}*1], tmm0" "tilestored [{c} + {pitch}*1 + 64], tmm1"] }
    };
}

product! { two_rows of two, "tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3" }
product! { two_rows_more of two,
"mov {a2}, {pitch}" "shl {a2}, 4" "add {a2}, {c}"
"tileloadd tmm0, [{c} + {pitch}*1]" "tileloadd tmm1, [{c} + {pitch}*1 + 64]"
"tileloadd tmm2, [{a2} + {pitch}*1]" "tileloadd tmm3, [{a2} + {pitch}*1 + 64]" }
product! { one_row of one, "tilezero tmm0" "tilezero tmm1" }
product! { one_row_more of one, "tileloadd tmm0, [{c} + {pitch}*1]" "tileloadd tmm1, [{c} + {pitch}*1 + 64]" }
