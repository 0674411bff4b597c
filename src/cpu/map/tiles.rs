//! Operators in single precision on 16-bit floats, without a pass over memory in between.
//!
//! What the compiler makes vectors of by itself (bf16) goes by the loops of [`blocks`](super::blocks); float16, for whose
//! conversions there are instructions but no words, by tiles of known length.

#![allow(unsafe_code, reason = "tiles over raw, checked memory")]

use super::blocks::{
    Block, beside_numbers, beside_over_numbers, light_dense, light_over, wide_dense,
};
use super::{Ctx, Exact, Form, Op, Rounded};
use crate::cpu::folds::Widen;
use crate::cpu::halves::Half;
use crate::cpu::simd::Level;
use half::{bf16, f16};
use std::mem::MaybeUninit;

/// What becomes of results in bf16: they are rounded, or cut as there is nothing to round.
pub(super) trait Halving<O>: Op<bf16, Out = bf16> {
    /// Whether rounding, and not memory, is its limit, so that the widest vectors serve it.
    const WIDE: bool;
}

impl<O: Op<f32, Out = f32>> Halving<O> for Rounded<O> {
    const WIDE: bool = true;
}

impl<O: Op<f32, Out = f32>> Halving<O> for Exact<O> {
    const WIDE: bool = false;
}

/// The code for bf16, which `R` rounds or cuts, and operands in a form; for numbers in bf16 by way of that for numbers in
/// single precision.
pub(super) fn bf16_block<O: Op<f32, Out = f32>, R: Halving<O>>(
    form: Form,
    level: Level,
) -> Option<Block> {
    let alone = O::OPERANDS == 1;
    match form {
        Form::Dense if R::WIDE => wide_dense::<R, bf16>(level),
        Form::Dense => light_dense::<R, bf16>(level),
        Form::Over if !alone => light_over::<R, bf16>(level),
        Form::OverNumbers if alone => super::blocks::light_over_numbers::<R, bf16>(level),
        Form::Numbers | Form::OverNumbers if !alone && level >= Level::Avx2 => {
            Some(if form == Form::Numbers {
                widened::<O, false>
            } else {
                widened::<O, true>
            })
        }
        _ => None,
    }
}

/// The loop beside numbers in single precision for such in bf16.
unsafe fn widened<O: Op<f32, Out = f32>, const OVER: bool>(
    out: &mut [MaybeUninit<u8>],
    x: [*const u8; 3],
    c: &Ctx,
) {
    // SAFETY: numbers in bf16.
    let [y, z] = [1, 2].map(|k| Half::widen(unsafe { x[k].cast::<bf16>().read_unaligned() }));
    let from = [x[0], (&raw const y).cast(), (&raw const z).cast()];
    let block = if OVER {
        beside_over_numbers::<Rounded<O>, bf16>(Level::Avx2)
    } else {
        beside_numbers::<Rounded<O>, bf16>(Level::Avx2)
    };
    if let Some(block) = block {
        // SAFETY: as for this function, which is given for machines with AVX2; the numbers are of single precision.
        unsafe { block(out, from, c) }
    }
}

/// The code for float16 and operands in a form, numbers being of type `N`; none for machines without its instructions, and for
/// those with AVX2 alone only if `TILED`.
pub(super) fn f16_block<O: Op<f32, Out = f32>, N: Widen<Wide = f32>, const TILED: bool>(
    form: Form,
    level: Level,
) -> Option<Block> {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        return x86::block::<O, N, { Level::Avx512 as u8 }>(form);
    } else if TILED && level >= Level::Avx2 {
        return x86::block::<O, N, { Level::Avx2 as u8 }>(form);
    }
    let _ = (form, level);
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;

    /// Elements of a tile.
    const TILE: usize = 64;

    /// The code for a form by the instructions of a [`Level`].
    pub fn block<O: Op<f32, Out = f32>, N: Widen<Wide = f32>, const LEVEL: u8>(
        form: Form,
    ) -> Option<Block> {
        match form {
            Form::Dense => Some(dense::<O, false, LEVEL>),
            Form::Over | Form::OverNumbers if O::OPERANDS == 1 => {
                (form == Form::OverNumbers).then_some(dense::<O, true, LEVEL>)
            }
            Form::Over => Some(dense::<O, true, LEVEL>),
            Form::Numbers if O::OPERANDS > 1 => Some(numbers::<O, N, false, LEVEL>),
            Form::OverNumbers => Some(numbers::<O, N, true, LEVEL>),
            Form::Numbers => None,
        }
    }

    /// Operands as many as results; the first is in their place if it is `OVER` them.
    unsafe fn dense<O: Op<f32, Out = f32>, const OVER: bool, const LEVEL: u8>(
        out: &mut [MaybeUninit<u8>],
        x: [*const u8; 3],
        c: &Ctx,
    ) {
        let (to, n) = (out.as_mut_ptr().cast::<f16>(), out.len() / 2);
        let mut from = x.map(|p| p.cast::<f16>());
        if OVER {
            from[0] = to;
        }
        if O::OPERANDS == 1 {
            from = [from[0]; 3];
        }
        // SAFETY: as many elements of each; the level was asked.
        unsafe { tiles::<O, false, LEVEL>(to, from, [0.0; 2], n, c) }
    }

    /// Two numbers beside the first operand.
    unsafe fn numbers<
        O: Op<f32, Out = f32>,
        N: Widen<Wide = f32>,
        const OVER: bool,
        const LEVEL: u8,
    >(
        out: &mut [MaybeUninit<u8>],
        x: [*const u8; 3],
        c: &Ctx,
    ) {
        let (to, n) = (out.as_mut_ptr().cast::<f16>(), out.len() / 2);
        // SAFETY: numbers of that type.
        let beside = [1, 2].map(|k| unsafe { x[k].cast::<N>().read_unaligned() }.widen());
        let first = if OVER { to } else { x[0].cast() };
        // SAFETY: as above.
        unsafe { tiles::<O, true, LEVEL>(to, [first; 3], beside, n, c) }
    }

    /// Computes `n` elements. A tile is read before it is written, so operands may be in the result's place. With `NUMBERS`
    /// the second and the third operand are these.
    ///
    /// # Safety
    /// There are so many elements of each, and the machine has this level.
    #[inline(always)]
    unsafe fn tiles<O: Op<f32, Out = f32>, const NUMBERS: bool, const LEVEL: u8>(
        to: *mut f16,
        from: [*const f16; 3],
        numbers: [f32; 2],
        n: usize,
        c: &Ctx,
    ) {
        macro_rules! compiled {
            ($name:ident, $level:ident, $features:literal) => {
                #[target_feature(enable = $features)]
                unsafe fn $name<O: Op<f32, Out = f32>, const NUMBERS: bool>(
                    to: *mut f16,
                    from: [*const f16; 3],
                    numbers: [f32; 2],
                    n: usize,
                    c: &Ctx,
                ) {
                    // SAFETY: as the caller promises.
                    unsafe { body::<O, NUMBERS, { Level::$level as u8 }>(to, from, numbers, n, c) }
                }
            };
        }
        compiled!(
            by_512,
            Avx512,
            "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
        );
        compiled!(by_256, Avx2, "avx2,fma,f16c");
        // SAFETY: as the caller promises.
        unsafe {
            if LEVEL == Level::Avx512 as u8 {
                by_512::<O, NUMBERS>(to, from, numbers, n, c);
            } else {
                by_256::<O, NUMBERS>(to, from, numbers, n, c);
            }
        }
    }

    /// A tile in single precision.
    #[inline(always)]
    unsafe fn wide<const LEVEL: u8>(from: *const f16) -> [f32; TILE] {
        let mut wide = [0.0; TILE];
        // SAFETY: as the caller promises.
        unsafe { f16::widen_row::<LEVEL>(from, wide.as_mut_ptr(), TILE) };
        wide
    }

    #[inline(always)]
    unsafe fn body<O: Op<f32, Out = f32>, const NUMBERS: bool, const LEVEL: u8>(
        to: *mut f16,
        from: [*const f16; 3],
        numbers: [f32; 2],
        n: usize,
        c: &Ctx,
    ) {
        let mut rooms = [[f16::ZERO; TILE]; 3];
        let room = (&raw mut rooms).cast::<f16>();
        for at in (0..n).step_by(TILE) {
            let rest = TILE.min(n - at);
            let mut place = to.wrapping_add(at);
            // Written out: the closure of a `map` would not be part of this loop.
            let [x, y, z] = from;
            let mut x = [x.wrapping_add(at), y.wrapping_add(at), z.wrapping_add(at)];
            // SAFETY: elements `at..at + rest` are there; what is too short for a tile goes by way of rooms as long.
            unsafe {
                if rest < TILE {
                    for (k, x) in x.iter_mut().enumerate() {
                        let aside = room.add(k * TILE);
                        std::ptr::copy_nonoverlapping(*x, aside, rest);
                        *x = aside;
                    }
                    place = room;
                }
                let a = wide::<LEVEL>(x[0]);
                let mut made = [0f32; TILE];
                if NUMBERS {
                    for l in 0..TILE {
                        made[l] = O::f([a[l], numbers[0], numbers[1]], c);
                    }
                } else {
                    let b = wide::<LEVEL>(x[1]);
                    let d = wide::<LEVEL>(x[2]);
                    for l in 0..TILE {
                        made[l] = O::f([a[l], b[l], d[l]], c);
                    }
                }
                f16::narrow_row::<LEVEL>(made.as_ptr(), place, TILE);
                if rest < TILE {
                    std::ptr::copy_nonoverlapping(place, to.wrapping_add(at), rest);
                }
            }
        }
    }
}
