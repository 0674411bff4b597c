//! Products of rows and words where they lie, on tile registers.

#![allow(unsafe_code, reason = "tile registers, and operands by pointer")]

use super::super::tiled::{Kind, SIDE, Tiled};
use super::Configured;
use smallvec::SmallVec;

/// # Safety
/// As [`Tiled::run`].
pub(in crate::cpu::gemm) unsafe fn run(p: &Tiled) {
    let part = p.part.max(1);
    let places: SmallVec<[Place; 64]> = (0..)
        .zip(p.places)
        .map(|(step, &b)| Place {
            a: p.a.steps.start(step),
            b,
        })
        .collect();
    let kernels = match p.kind {
        Kind::Halves => &halves::KERNELS,
        Kind::Bytes => &bytes::KERNELS,
        Kind::Unsigned => &unsigned::KERNELS,
        Kind::Signed => &signed::KERNELS,
    };
    // SAFETY: the caller's.
    let _configured = unsafe { Configured::new() };
    for r0 in (0..p.m).step_by(2 * SIDE) {
        let two = p.m - r0 > SIDE;
        for from in (0..p.places.len()).step_by(part) {
            let places = &places[from..places.len().min(from + part)];
            for c0 in (0..p.n).step_by(2 * SIDE) {
                // SAFETY: the tiles are there.
                unsafe {
                    let at = r0 / (2 * SIDE) * p.a.both;
                    let tiles = Tiles {
                        product: p,
                        a: p.a.at.add(at),
                        b: p.b.add(c0),
                        places,
                        c: p.c.add(r0 * p.pitch + c0),
                    };
                    let more = usize::from(p.add || from > 0);
                    kernels[usize::from(two)][more](&tiles);
                }
            }
        }
    }
}

/// Where a step begins in both operands, in words.
#[repr(C)]
struct Place {
    a: usize,
    b: usize,
}

/// Tiles of rows and two of columns.
struct Tiles<'a> {
    product: &'a Tiled<'a>,
    a: *const u32,
    b: *const u32,
    places: &'a [Place],
    c: *mut u32,
}

macro_rules! product {
    ($name:ident, [$($begin:literal)+] [$($step:expr),+] [$($end:literal)+]) => {
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
                    "mov {a1}, [{places}]",
                    "lea {a1}, [{a} + {a1}*4]",
                    "mov {b1}, [{places} + 8]",
                    "lea {b1}, [{b} + {b1}*4]",
                    "lea {a2}, [{a1} + {second}]",
                    $($step,)+
                    "add {places}, 16",
                    "dec {n}",
                    "jnz 2b",
                    "mov {a2}, {pitch}",
                    "shl {a2}, 4",
                    "add {a2}, {c}",
                    $($end,)+
                    a = in(reg) t.a,
                    row = in(reg) a.row * size_of::<u32>(),
                    second = in(reg) a.second * size_of::<u32>(),
                    b = in(reg) t.b,
                    places = inout(reg) t.places.as_ptr() => _,
                    lane = in(reg) t.product.lane * size_of::<u32>(),
                    n = inout(reg) t.places.len() => _,
                    c = in(reg) t.c,
                    pitch = in(reg) t.product.pitch * size_of::<u32>(),
                    a1 = out(reg) _,
                    b1 = out(reg) _,
                    a2 = out(reg) _,
                    options(nostack),
                );
            }
        }
    };
    // The sums of two tiles of rows.
    ($name:ident of two by $dot:literal, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm6, [{b1} + {lane}*1]", "tileloadd tmm4, [{a1} + {row}*1]", concat!($dot, " tmm0, tmm4, tmm6"),
             "tileloadd tmm5, [{a2} + {row}*1]", concat!($dot, " tmm2, tmm5, tmm6"),
             "tileloadd tmm7, [{b1} + {lane}*1 + 64]", concat!($dot, " tmm1, tmm4, tmm7"), concat!($dot, " tmm3, tmm5, tmm7")]
            ["tilestored [{c} + {pitch}*1], tmm0" "tilestored [{c} + {pitch}*1 + 64], tmm1"
             "tilestored [{a2} + {pitch}*1], tmm2" "tilestored [{a2} + {pitch}*1 + 64], tmm3"] }
    };
    // Of one tile of rows.
    ($name:ident of one by $dot:literal, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm4, [{a1} + {row}*1]", "tileloadd tmm6, [{b1} + {lane}*1]", concat!($dot, " tmm0, tmm4, tmm6"),
             "tileloadd tmm7, [{b1} + {lane}*1 + 64]", concat!($dot, " tmm1, tmm4, tmm7")]
            ["tilestored [{c} + {pitch}*1], tmm0" "tilestored [{c} + {pitch}*1 + 64], tmm1"] }
    };
}

/// The kernels of one kind: of one tile of rows and of two, into new sums and into those that are there.
macro_rules! kernels {
    ($($kind:ident $dot:literal)+) => { $(
        mod $kind {
            use super::Tiles;
            use std::arch::asm;

            pub(super) static KERNELS: [[unsafe fn(&Tiles); 2]; 2] =
                [[one_row, one_row_more], [two_rows, two_rows_more]];
            product! { two_rows of two by $dot, "tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3" }
            product! { two_rows_more of two by $dot,
            "mov {a2}, {pitch}" "shl {a2}, 4" "add {a2}, {c}"
            "tileloadd tmm0, [{c} + {pitch}*1]" "tileloadd tmm1, [{c} + {pitch}*1 + 64]"
            "tileloadd tmm2, [{a2} + {pitch}*1]" "tileloadd tmm3, [{a2} + {pitch}*1 + 64]" }
            product! { one_row of one by $dot, "tilezero tmm0" "tilezero tmm1" }
            product! { one_row_more of one by $dot, "tileloadd tmm0, [{c} + {pitch}*1]" "tileloadd tmm1, [{c} + {pitch}*1 + 64]" }
        }
    )+ };
}
kernels! { halves "tdpbf16ps" bytes "tdpbssd" unsigned "tdpbusd" signed "tdpbsud" }
