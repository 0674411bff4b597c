//! Products on plain arrays, for any machine.

#![allow(unsafe_code, reason = "vectors are read and written by pointer")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block reads or writes one vector, as the policy's contract has it"
)]

use super::policy::{Policy, Task, scalar_side};
use super::turn::*;
use crate::cpu::halves::Half;
use half::{bf16, f16};

macro_rules! portable_policy {
    ($name:ident, $side:ident $t:ty, $acc:ty, $kc:literal) => {
        /// Plain arrays, for any machine.
        #[derive(Clone, Copy)]
        pub(in crate::cpu::gemm) struct $name;
        // SAFETY of the bodies: the trait's contract, pointers valid for a vector.
        impl Policy for $name {
            scalar_side!($side $t);
            type V = [$acc; 4];
            type B = [$acc; 4];
            const W: usize = 4;
            // Those of x86-64 that have no AVX2 are too few for many kinds of tiles, and for code of their own elsewhere.
            const MR: usize = if cfg!(target_arch = "x86_64") { 2 } else { 4 };
            const KC: usize = $kc;
            const ROWS: bool = Self::IN_PLACE && cfg!(not(target_arch = "x86_64"));
            const ONCE: bool = cfg!(not(target_arch = "x86_64"));
            #[inline(always)]
            unsafe fn zero() -> [$acc; 4] { [0.0; 4] }
            #[inline(always)]
            unsafe fn fma(acc: [$acc; 4], a: *const $acc, b: [$acc; 4]) -> [$acc; 4] {
                let a = unsafe { *a };
                std::array::from_fn(|i| acc[i] + a * b[i])
            }
            #[inline(always)]
            unsafe fn load_b(b: *const $acc) -> [$acc; 4] { unsafe { b.cast::<[$acc; 4]>().read_unaligned() } }
            #[inline(always)]
            unsafe fn load(c: *const $acc) -> [$acc; 4] { unsafe { c.cast::<[$acc; 4]>().read_unaligned() } }
            #[inline(always)]
            unsafe fn load_wide(x: *const $t) -> [$acc; 4] { std::array::from_fn(|i| Self::widen(unsafe { *x.add(i) })) }
            #[inline(always)]
            unsafe fn store(c: *mut $acc, v: [$acc; 4]) { unsafe { c.cast::<[$acc; 4]>().write_unaligned(v) } }
            #[inline(always)]
            unsafe fn store_part(c: *mut $acc, v: [$acc; 4], n: usize) {
                unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), c, n.min(4)) }
            }
            #[inline(always)]
            unsafe fn turn(rows: &mut [[$acc; 4]; LANES]) { turn_plain(rows) }
            #[inline(always)]
            unsafe fn splat(x: $acc) -> [$acc; 4] { [x; 4] }
            #[inline(always)]
            unsafe fn muladd(a: [$acc; 4], b: [$acc; 4], c: [$acc; 4]) -> [$acc; 4] {
                std::array::from_fn(|i| a[i] * b[i] + c[i])
            }
            #[inline(never)]
            unsafe fn with<K: Task>(task: K) { unsafe { task.run() } }
            #[inline(always)]
            fn mac(a: $acc, b: $acc, c: $acc) -> $acc { a * b + c }
        }
    };
}
portable_policy! { F32Portable, same f32, f32, 256 }
portable_policy! { F64Portable, same f64, f64, 256 }
portable_policy! { F16Portable, half f16, f32, 1000000 }
portable_policy! { Bf16Portable, half bf16, f32, 1000000 }
