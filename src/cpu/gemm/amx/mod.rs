//! Products of bf16 on tile registers (Intel's AMX): an instruction adds the products of 16 rows and 16 columns along 32
//! elements to 256 sums.

#![allow(unsafe_code, reason = "tile registers, and packed operands by pointer")]

mod pack;
pub(super) mod tiled;

use super::finish::Finish;
use super::kernel::{A_BLOCK, BUFFERS, Product, room};
use super::policy::{Bf16Dot, Policy};
use crate::cpu::simd::{cpuid, second_cache};
use half::bf16;
use pack::Pack;
use std::arch::asm;
use std::sync::OnceLock;

/// Rows of a tile of A, columns of one of B.
const SIDE: usize = 16;
/// Elements along k of a tile.
const DEPTH: usize = 32;
/// Values of 32 bits of a tile.
const TILE: usize = 256;
/// Bytes of a tile.
const BYTES: usize = 1024;
/// Steps along k up to which sums stay in registers.
const WHOLE_DEPTH: usize = 16;
/// Steps of a part otherwise: its tiles of A stay in the first cache while all columns pass by.
const PART: usize = 8;
/// Products with fewer multiply-adds of 32 rows and columns are quicker without packing. (More of those change nothing: parts
/// of a product are summed in one order.)
const FROM: usize = 32 * 32 * 32;
/// With so many rows and columns tiles pay that are but half full along k.
const MANY: usize = 128;

/// Whether this machine and this process have tile registers, for bf16 and for bytes.
pub(super) fn available() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        // Leaf 7, register D: bit 22 is bf16 on tiles, bit 24 the tiles, bit 25 bytes on them.
        const NEEDED: u32 = 1 << 22 | 1 << 24 | 1 << 25;
        cpuid(7)[3] & NEEDED == NEEDED && permitted()
    })
}

/// Asks Linux for the state of tile registers, which it saves for those alone that do (Documentation/arch/x86/xstate.rst).
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    if !cfg!(target_os = "linux") {
        return false;
    }
    let answer: i64;
    // SAFETY: the call only sets a permission of this process.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") REQUEST, in("rsi") TILE_DATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer == 0
}

/// Whether a product is one for tiles.
pub(super) fn fits(p: &Product<Bf16Dot>) -> bool {
    let work = (p.m.min(2 * SIDE) * p.n.min(2 * SIDE)).saturating_mul(p.k);
    let deep = p.m >= SIDE && p.n >= SIDE && p.k >= DEPTH && work >= FROM;
    let wide = p.m >= MANY && p.n >= MANY && p.k >= DEPTH / 2;
    (deep || wide) && available()
}

/// How tiles are laid out: registers 0 to 7 have 16 rows of 64 bytes each.
#[repr(C, align(64))]
struct Config([u8; 64]);

static WHOLE: Config = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut i = 0;
    while i < 8 {
        bytes[16 + 2 * i] = 64;
        bytes[48 + i] = SIDE as u8;
        i += 1;
    }
    Config(bytes)
};

/// Tile registers in use on this thread, until it is dropped.
struct Configured;

impl Configured {
    /// # Safety
    /// They are there: [`available`].
    unsafe fn new() -> Self {
        // SAFETY: the caller's; 64 bytes are read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) WHOLE.0.as_ptr(), options(nostack, readonly)) };
        Self
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: one is made where the registers are there.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Rows of A: where they are, if that is how tiles are read, and packed.
struct Left {
    /// The first element.
    at: *const u8,
    /// Bytes from one row to the next.
    row: usize,
    /// Rows that are read where they are.
    as_they_are: usize,
    /// The others.
    packed: *const u32,
    steps: usize,
}

/// Two tiles of rows for every step along k.
#[derive(Clone, Copy)]
struct Pair {
    at: *const u8,
    /// Bytes from one row to the next.
    row: usize,
    /// Bytes from one step to the next.
    step: usize,
    /// Bytes from the first tile to the second.
    second: usize,
}

impl Left {
    /// Rows `r0..r0 + 32` from a step on.
    fn pair(&self, r0: usize, from: usize) -> Pair {
        let (at, row, step, second) = if r0 < self.as_they_are {
            let at = self.at.wrapping_add(r0 * self.row);
            (at, self.row, 2 * DEPTH, SIDE * self.row)
        } else {
            let tiles = (r0 - self.as_they_are) / SIDE * self.steps;
            let at = self.packed.wrapping_add(tiles * TILE).cast();
            (at, 2 * DEPTH, BYTES, self.steps * BYTES)
        };
        Pair {
            at: at.wrapping_add(from * step),
            row,
            step,
            second,
        }
    }
}

/// The whole product on this thread.
///
/// # Safety
/// As [`Product::run_serial`], of a product that [`fits`].
pub(super) unsafe fn run(p: &Product<Bf16Dot>) {
    let steps = p.k.div_ceil(DEPTH);
    // Bytes of a packed row or column.
    let line = steps * 2 * DEPTH;
    let whole = |bytes: usize| (bytes / line).max(2 * SIDE) / (2 * SIDE) * (2 * SIDE);
    let in_place = p.a.cs == 1 && p.a.rs > 0 && p.k.is_multiple_of(DEPTH);
    let nc = whole(second_cache() / 2);
    let mc = if in_place { p.m } else { whole(A_BLOCK) };
    let values = |lines: usize| lines.next_multiple_of(2 * SIDE) * line / size_of::<u32>();
    let mut buffers = BUFFERS.take();
    let packed_rows = if in_place {
        p.m % (2 * SIDE)
    } else {
        p.m.min(mc)
    };
    let pa: *mut u32 = room(&mut buffers.0, values(packed_rows));
    // Behind the columns there is room for the sums of 32 rows.
    let columns = values(p.n.min(nc));
    let pb: *mut u32 = room(
        &mut buffers.1,
        columns + 2 * SIDE * p.n.min(nc).next_multiple_of(4 * SIDE),
    );
    // SAFETY: `fits` says that they are there.
    let _configured = unsafe { Configured::new() };
    for i0 in (0..p.m).step_by(mc) {
        let mb = mc.min(p.m - i0);
        let as_they_are = if in_place {
            mb / (2 * SIDE) * (2 * SIDE)
        } else {
            0
        };
        // SAFETY: blocks lie within the matrices, and buffers have room for one.
        unsafe {
            let a = p.a.at(i0 + as_they_are, 0);
            let lines = mb - as_they_are;
            Bf16Dot::with(Pack {
                src: a.ptr,
                step: a.rs,
                kstep: a.cs,
                lines,
                k: p.k,
                dst: pa,
                pairs: false,
            });
            let (at, row) = (
                p.a.at(i0, 0).ptr.cast(),
                p.a.rs.unsigned_abs() * size_of::<bf16>(),
            );
            let left = Left {
                at,
                row,
                as_they_are,
                packed: pa,
                steps,
            };
            for j0 in (0..p.n).step_by(nc) {
                let lines = nc.min(p.n - j0);
                let b = p.b.at(0, j0);
                Bf16Dot::with(Pack {
                    src: b.ptr,
                    step: b.cs,
                    kstep: b.rs,
                    lines,
                    k: p.k,
                    dst: pb,
                    pairs: true,
                });
                block(
                    p,
                    (i0, mb),
                    (j0, lines),
                    &left,
                    (pb, pb.add(columns).cast()),
                );
            }
        }
    }
    BUFFERS.set(buffers);
}

/// Rows of A against packed columns.
unsafe fn block(
    p: &Product<Bf16Dot>,
    (i0, mb): (usize, usize),
    (j0, nb): (usize, usize),
    left: &Left,
    (pb, sums): (*const u32, *mut f32),
) {
    // SAFETY: the block lies within C and the bias.
    let ends = unsafe { p.ends_at(i0, j0, true) };
    let parts = match left.steps {
        ..=WHOLE_DEPTH => 1,
        steps => steps.div_ceil(PART),
    };
    let part = left.steps.div_ceil(parts);
    // The sums of one tile are finished while those of the next are made.
    let mut waiting = None;
    for r0 in (0..mb).step_by(2 * SIDE) {
        let rows = (2 * SIDE).min(mb - r0);
        for from in (0..left.steps).step_by(part) {
            let steps = part.min(left.steps - from);
            let pair = left.pair(r0, from);
            for (turn, c0) in (0..nb).step_by(2 * SIDE).enumerate() {
                // SAFETY: two tiles of A, or one where that is all, and two of B are there for every step.
                unsafe {
                    let place = if parts == 1 { turn % 2 } else { turn };
                    let to = sums.add(place * 4 * SIDE * SIDE);
                    let tiles = Tiles {
                        a: pair,
                        b: pb.add((c0 / SIDE * left.steps + from) * TILE),
                        next: left.steps * BYTES,
                        steps,
                        sums: to,
                    };
                    match (rows > SIDE, from) {
                        (true, 0) => two_rows(&tiles),
                        (true, _) => two_rows_more(&tiles),
                        (false, 0) => one_row(&tiles),
                        (false, _) => one_row_more(&tiles),
                    }
                    if from + steps == left.steps {
                        let made = Finish {
                            ends: &ends,
                            sums: to,
                            rows,
                            width: 2 * SIDE,
                            at: (r0, c0),
                            w: (2 * SIDE).min(nb - c0),
                        };
                        if let Some(before) = waiting.replace(made) {
                            Bf16Dot::with(before);
                        }
                    }
                }
            }
            // The next part overwrites sums.
            if let Some(last) = waiting.take() {
                // SAFETY: the sums were made.
                unsafe { Bf16Dot::with(last) };
            }
        }
    }
}

/// What an instruction after the other is run on.
struct Tiles {
    a: Pair,
    b: *const u32,
    /// Bytes from a tile of B to the one beside it.
    next: usize,
    steps: usize,
    sums: *mut f32,
}

macro_rules! product {
    ($name:ident, [$($begin:literal)+] [$($step:literal)+] [$($end:literal)+]) => {
        /// # Safety
        /// Registers are configured; operands have `steps` tiles, those of B 1024 bytes each; `sums` has 32 rows of 32.
        #[inline(never)]
        unsafe fn $name(t: &Tiles) {
            // SAFETY: the caller's.
            unsafe {
                asm!(
                    $($begin,)+
                    "2:",
                    "lea {a2}, [{a} + {second}]",
                    "lea {b2}, [{b} + {next}]",
                    $($step,)+
                    "add {a}, {step}",
                    "add {b}, 1024",
                    "dec {n}",
                    "jnz 2b",
                    $($end,)+
                    a = inout(reg) t.a.at => _,
                    row = in(reg) t.a.row,
                    step = in(reg) t.a.step,
                    second = in(reg) t.a.second,
                    b = inout(reg) t.b => _,
                    next = in(reg) t.next,
                    n = inout(reg) t.steps => _,
                    side = in(reg) 64usize,
                    c = in(reg) t.sums,
                    wide = in(reg) 128usize,
                    a2 = out(reg) _,
                    b2 = out(reg) _,
                    options(nostack),
                );
            }
        }
    };
    // The sums of two tiles of rows and two of columns.
    ($name:ident of two, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm6, [{b} + {side}*1]" "tileloadd tmm4, [{a} + {row}*1]" "tdpbf16ps tmm0, tmm4, tmm6"
             "tileloadd tmm5, [{a2} + {row}*1]" "tdpbf16ps tmm2, tmm5, tmm6"
             "tileloadd tmm7, [{b2} + {side}*1]" "tdpbf16ps tmm1, tmm4, tmm7" "tdpbf16ps tmm3, tmm5, tmm7"]
            ["tilestored [{c} + {wide}*1], tmm0" "tilestored [{c} + {wide}*1 + 64], tmm1"
             "tilestored [{c} + {wide}*1 + 2048], tmm2" "tilestored [{c} + {wide}*1 + 2112], tmm3"] }
    };
    // Of one tile of rows.
    ($name:ident of one, $($begin:literal)+) => {
        product! { $name, [$($begin)+]
            ["tileloadd tmm4, [{a} + {row}*1]" "tileloadd tmm6, [{b} + {side}*1]" "tdpbf16ps tmm0, tmm4, tmm6"
             "tileloadd tmm7, [{b2} + {side}*1]" "tdpbf16ps tmm1, tmm4, tmm7"]
            ["tilestored [{c} + {wide}*1], tmm0" "tilestored [{c} + {wide}*1 + 64], tmm1"] }
    };
}

product! { two_rows of two, "tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3" }
product! { two_rows_more of two,
"tileloadd tmm0, [{c} + {wide}*1]" "tileloadd tmm1, [{c} + {wide}*1 + 64]"
"tileloadd tmm2, [{c} + {wide}*1 + 2048]" "tileloadd tmm3, [{c} + {wide}*1 + 2112]" }
product! { one_row of one, "tilezero tmm0" "tilezero tmm1" }
product! { one_row_more of one, "tileloadd tmm0, [{c} + {wide}*1]" "tileloadd tmm1, [{c} + {wide}*1 + 64]" }
