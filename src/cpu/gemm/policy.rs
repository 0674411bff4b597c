//! What the micro-kernel needs from an instruction set: one small trait, one implementation for each set and type.

#![allow(unsafe_code, reason = "vector instructions")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is one intrinsic, under the target features that the policy's contract names"
)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::kernel::Product;
use super::turn::*;
use crate::cpu::halves::Half;
use half::{bf16, f16};

/// Instruction set and element types of a product.
///
/// Methods are `unsafe` because they may only run where the instructions exist; pointers must be valid for one vector.
pub(super) trait Policy: Copy + 'static {
    /// Element of the operands and the result.
    type T: Copy + 'static;
    /// What sums are kept in.
    type Acc: Real;
    /// What a packed panel holds for each element (or pair of elements along k).
    type P: Copy + 'static;
    /// A vector of sums.
    type V: Copy;
    /// Lanes of a vector.
    const W: usize;
    /// Rows of the tallest tile of packed products.
    const MR: usize;
    /// Rows of the tallest tile of two vectors, where B lies in an outer cache and is better read seldom.
    const TALL: usize = if Self::WIDE > 2 { 12 } else { Self::MR };
    /// Vectors of a row of the widest: three take fewer instructions for as many sums, where registers suffice.
    const WIDE: usize = 2;
    /// Elements along k in one packed value.
    const STEP: usize = 1;
    /// True where operands need no conversion, so that they can be used in place.
    const IN_PLACE: bool;
    /// Whether contiguous rows of A can be read as packed values where they are.
    const ROWS: bool = Self::IN_PLACE;
    /// Depth of a block of K.
    const KC: usize;
    /// Whether products of few rows have code of their own, which reads a large B once.
    const ONCE: bool = true;

    fn pack(x0: Self::T, x1: Self::T) -> Self::P;
    fn zero_p() -> Self::P;
    fn widen(x: Self::T) -> Self::Acc;
    fn narrow(x: Self::Acc) -> Self::T;
    unsafe fn zero() -> Self::V;
    /// `acc + a * b`: `a` broadcast from one packed value, `b` a vector of packed values.
    unsafe fn fma(acc: Self::V, a: *const Self::P, b: Self::B) -> Self::V;
    /// A vector of packed values.
    type B: Copy;
    unsafe fn load_b(b: *const Self::P) -> Self::B;
    unsafe fn load(c: *const Self::Acc) -> Self::V;
    /// A vector of elements, widened.
    unsafe fn load_wide(x: *const Self::T) -> Self::V;
    /// The first `n` of them, and zeros.
    #[inline(always)]
    unsafe fn load_part(x: *const Self::T, n: usize) -> Self::V {
        let mut all = [Self::narrow(Self::Acc::ZERO); LANES];
        // SAFETY: `n` elements are there, and room for a vector.
        unsafe {
            std::ptr::copy_nonoverlapping(x, all.as_mut_ptr(), n.min(Self::W));
            Self::load_wide(all.as_ptr())
        }
    }
    /// Writes the first `n` lanes.
    unsafe fn store_part(c: *mut Self::Acc, v: Self::V, n: usize);
    /// Transposes the first `W` vectors.
    unsafe fn turn(rows: &mut [Self::V; LANES]);
    /// What dot products keep the shorter operand in.
    type X: Copy;
    /// Elements of a step of a dot product.
    const DOT: usize = Self::W;
    fn keep(x: Self::T) -> Self::X;
    /// The element that was kept.
    fn kept(x: Self::X) -> Self::Acc;
    /// `acc + x * b` for [`Policy::DOT`] elements, summed in any lanes.
    unsafe fn dot(acc: Self::V, x: *const Self::X, b: *const Self::T) -> Self::V;
    /// Rounds `n` neighbouring sums to elements.
    #[inline(always)]
    unsafe fn narrow_row(from: *const Self::Acc, to: *mut Self::T, n: usize) {
        for i in 0..n {
            unsafe { *to.add(i) = Self::narrow(*from.add(i)) };
        }
    }
    unsafe fn store(c: *mut Self::Acc, v: Self::V);
    /// Whether an instruction rounds sums to elements: [`Policy::put`].
    const ROUNDS: bool = false;
    /// Writes a vector of sums, rounded.
    unsafe fn put(_: *mut Self::T, _: Self::V) {}
    /// Writes two neighbouring vectors of sums, rounded.
    #[inline(always)]
    unsafe fn put_two(to: *mut Self::T, first: Self::V, second: Self::V) {
        // SAFETY: the caller's.
        unsafe {
            Self::put(to, first);
            Self::put(to.add(Self::W), second);
        }
    }
    unsafe fn splat(x: Self::Acc) -> Self::V;
    /// `a * b + c` on sums.
    unsafe fn muladd(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a * b + c` on single values.
    fn mac(a: Self::Acc, b: Self::Acc, c: Self::Acc) -> Self::Acc;
    /// Whether there are registers for whole tiles, and a product is one for them.
    fn fits(_: &Product<Self>) -> bool {
        false
    }
    /// The whole product on this thread, on such registers.
    unsafe fn on_tiles(_: &Product<Self>) {}
    /// Runs `task` compiled for this instruction set, in a function of its own: tasks are large, and called from many tiles. (Of
    /// one with instructions of its own the compiler asks that at calls, and not at those from such without.)
    unsafe fn with<K: Task>(task: K);
}

/// Code to compile for an instruction set; `run` has to be always inlined.
pub(super) trait Task {
    unsafe fn run(self);
}

/// A type sums are kept in.
pub(super) trait Real:
    Copy
    + PartialEq
    + Send
    + Sync
    + Default
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
}
impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}
impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

/// What a policy of one type of elements says apart from its vectors.
macro_rules! scalar_side {
    (same $t:ty) => {
        type X = $t;
        #[inline(always)]
        fn keep(x: $t) -> $t {
            Self::widen(x)
        }
        #[inline(always)]
        fn kept(x: $t) -> $t {
            x
        }
        #[inline(always)]
        unsafe fn dot(acc: Self::V, x: *const $t, b: *const $t) -> Self::V {
            unsafe { Self::muladd(Self::load_wide(b), Self::load(x), acc) }
        }
        type T = $t;
        type Acc = $t;
        type P = $t;
        const IN_PLACE: bool = true;
        #[inline(always)]
        fn pack(x0: $t, _: $t) -> $t {
            x0
        }
        #[inline(always)]
        fn zero_p() -> $t {
            0.0
        }
        #[inline(always)]
        fn widen(x: $t) -> $t {
            x
        }
        #[inline(always)]
        fn narrow(x: $t) -> $t {
            x
        }
    };
    (half $t:ty) => {
        type X = f32;
        #[inline(always)]
        fn keep(x: $t) -> f32 {
            Self::widen(x)
        }
        #[inline(always)]
        fn kept(x: f32) -> f32 {
            x
        }
        #[inline(always)]
        unsafe fn dot(acc: Self::V, x: *const f32, b: *const $t) -> Self::V {
            unsafe { Self::muladd(Self::load_wide(b), Self::load(x), acc) }
        }
        type T = $t;
        type Acc = f32;
        type P = f32;
        const IN_PLACE: bool = false;
        #[inline(always)]
        fn pack(x0: $t, _: $t) -> f32 {
            x0.widen()
        }
        #[inline(always)]
        fn zero_p() -> f32 {
            0.0
        }
        #[inline(always)]
        fn widen(x: $t) -> f32 {
            x.widen()
        }
        #[inline(always)]
        fn narrow(x: f32) -> $t {
            <$t as Half>::narrow(x)
        }
    };
}

pub(super) use scalar_side;

#[cfg(target_arch = "x86_64")]
macro_rules! x86_policy {
    ($name:ident, $side:ident $t:ty, $acc:ty, $v:ty, $w:literal, $mr:literal, $kc:literal, $features:literal,
     $zero:ident $splat:ident $load:ident $store:ident $fma:ident, $wide:ident $level:ident, $turn:ident $part:ident $put:ident) => {
        #[derive(Clone, Copy)]
        pub(in crate::cpu::gemm) struct $name;
        // SAFETY of the bodies: the trait's contract, instructions present and pointers valid for a vector.
        impl Policy for $name {
            scalar_side!($side $t);
            type V = $v;
            type B = $v;
            const W: usize = $w;
            const MR: usize = $mr;
            const WIDE: usize = if $mr > 6 { 3 } else { 2 };
            const KC: usize = $kc;
            #[inline(always)]
            unsafe fn zero() -> $v { unsafe { $zero() } }
            #[inline(always)]
            unsafe fn fma(acc: $v, a: *const $acc, b: $v) -> $v { unsafe { $fma($splat(*a), b, acc) } }
            #[inline(always)]
            unsafe fn load_b(b: *const $acc) -> $v { unsafe { $load(b) } }
            #[inline(always)]
            unsafe fn load(c: *const $acc) -> $v { unsafe { $load(c) } }
            #[inline(always)]
            unsafe fn load_wide(x: *const $t) -> $v { unsafe { $wide(x) } }
            x86_policy! { @narrow $side $t, $level }
            x86_policy! { @part $side $t, $v, $part }
            #[inline(always)]
            unsafe fn store_part(c: *mut $acc, v: $v, n: usize) { unsafe { $put(c, v, n) } }
            #[inline(always)]
            unsafe fn turn(rows: &mut [$v; LANES]) { unsafe { $turn(rows) } }
            #[inline(always)]
            unsafe fn store(c: *mut $acc, v: $v) { unsafe { $store(c, v) } }
            #[inline(always)]
            unsafe fn splat(x: $acc) -> $v { unsafe { $splat(x) } }
            #[inline(always)]
            unsafe fn muladd(a: $v, b: $v, c: $v) -> $v { unsafe { $fma(a, b, c) } }
            #[inline(always)]
            fn mac(a: $acc, b: $acc, c: $acc) -> $acc { a.mul_add(b, c) }
            #[inline(never)]
            unsafe fn with<K: Task>(task: K) {
                #[target_feature(enable = $features)]
                unsafe fn inner<K: Task>(task: K) { unsafe { task.run() } }
                unsafe { inner(task) }
            }
        }
    };
    (@part same $t:ty, $v:ty, $part:ident) => {
        #[inline(always)]
        unsafe fn load_part(x: *const $t, n: usize) -> $v { unsafe { $part(x, n) } }
    };
    (@part half $t:ty, $v:ty, $part:ident) => {};
    (@narrow same $t:ty, $level:ident) => {};
    (@narrow half $t:ty, $level:ident) => {
        #[inline(always)]
        unsafe fn narrow_row(from: *const f32, to: *mut $t, n: usize) {
            unsafe { <$t as Half>::narrow_row::<{ Level::$level as u8 }>(from, to, n) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::amx;
    use super::*;
    use crate::cpu::simd::Level;

    #[inline(always)]
    unsafe fn bf16x16(x: *const bf16) -> __m512 {
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(
                _mm256_loadu_si256(x.cast()),
            )))
        }
    }
    #[inline(always)]
    unsafe fn bf16x8(x: *const bf16) -> __m256 {
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(
                _mm_loadu_si128(x.cast()),
            )))
        }
    }
    #[inline(always)]
    unsafe fn f16x16(x: *const f16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.cast())) }
    }
    #[inline(always)]
    unsafe fn f16x8(x: *const f16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.cast())) }
    }
    macro_rules! both {
        ($a5:ident $a2:ident, $side:ident $t:ty, $kc:literal, $w5:ident $w2:ident) => {
            x86_policy! { $a5, $side $t, f32, __m512, 16, 9, $kc, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c",
                _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps, $w5 Avx512, turn_ps512 part_ps512 put_ps512 }
            x86_policy! { $a2, $side $t, f32, __m256, 8, 6, $kc, "avx2,fma,f16c",
                _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps, $w2 Avx2, turn_ps256 part_ps256 put_ps256 }
        };
    }
    both! { F32Avx512 F32Avx2, same f32, 512, _mm512_loadu_ps _mm256_loadu_ps }
    both! { F16Avx512 F16Avx2, half f16, 1000000, f16x16 f16x8 }
    both! { Bf16Avx512 Bf16Avx2, half bf16, 1000000, bf16x16 bf16x8 }
    x86_policy! { F64Avx512, same f64, f64, __m512d, 8, 9, 256, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c",
    _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd, _mm512_loadu_pd Avx512, turn_pd512 part_pd512 put_pd512 }
    x86_policy! { F64Avx2, same f64, f64, __m256d, 4, 6, 256, "avx2,fma,f16c",
    _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd, _mm256_loadu_pd Avx2, turn_pd256 part_pd256 put_pd256 }

    /// bf16 pairs through the dot product instruction: a lane of 32 bits holds the elements k and k + 1.
    #[derive(Clone, Copy)]
    pub(in crate::cpu::gemm) struct Bf16Dot;
    impl Policy for Bf16Dot {
        type T = bf16;
        type Acc = f32;
        type P = u32;
        type V = __m512;
        type B = __m512i;
        const W: usize = 16;
        const MR: usize = 9;
        const WIDE: usize = 3;
        const STEP: usize = 2;
        const IN_PLACE: bool = false;
        const ROWS: bool = true;
        const ROUNDS: bool = true;
        #[inline(always)]
        unsafe fn put(to: *mut bf16, v: __m512) {
            // SAFETY: both are plain 256-bit vectors. The instruction loses subnormal numbers, as products have done.
            unsafe {
                let x = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v));
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
                let x = _mm256_mask_mov_epi16(x, nan, _mm256_set1_epi16(0x7fc0));
                _mm256_storeu_si256(to.cast(), x);
            }
        }
        #[inline(always)]
        unsafe fn put_two(to: *mut bf16, first: __m512, second: __m512) {
            // SAFETY: both are plain 512-bit vectors.
            unsafe {
                let both = _mm512_cvtne2ps_pbh(second, first);
                let x = std::mem::transmute::<__m512bh, __m512i>(both);
                let nan = |v| u32::from(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v));
                let nan = nan(first) | nan(second) << 16;
                let x = _mm512_mask_mov_epi16(x, nan, _mm512_set1_epi16(0x7fc0));
                _mm512_storeu_si512(to.cast(), x);
            }
        }
        fn fits(p: &Product<Self>) -> bool {
            amx::fits(p)
        }
        unsafe fn on_tiles(p: &Product<Self>) {
            // SAFETY: the caller's.
            unsafe { amx::run(p) };
        }
        type X = bf16;
        const DOT: usize = 32;
        #[inline(always)]
        fn keep(x: bf16) -> bf16 {
            x
        }
        #[inline(always)]
        fn kept(x: bf16) -> f32 {
            x.widen()
        }
        #[inline(always)]
        unsafe fn dot(acc: __m512, x: *const bf16, b: *const bf16) -> __m512 {
            // SAFETY: both are plain 512-bit vectors.
            unsafe {
                let load = |p: *const bf16| {
                    std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast()))
                };
                _mm512_dpbf16_ps(acc, load(x), load(b))
            }
        }
        const KC: usize = 1_000_000;
        #[inline(always)]
        fn pack(x0: bf16, x1: bf16) -> u32 {
            u32::from(x0.to_bits()) | u32::from(x1.to_bits()) << 16
        }
        #[inline(always)]
        fn zero_p() -> u32 {
            0
        }
        #[inline(always)]
        fn widen(x: bf16) -> f32 {
            x.widen()
        }
        #[inline(always)]
        fn narrow(x: f32) -> bf16 {
            <bf16 as Half>::narrow(x)
        }
        #[inline(always)]
        unsafe fn zero() -> __m512 {
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn fma(acc: __m512, a: *const u32, b: __m512i) -> __m512 {
            // SAFETY: both are plain 512-bit vectors.
            unsafe {
                let a = _mm512_set1_epi32(a.cast::<i32>().read_unaligned());
                _mm512_dpbf16_ps(
                    acc,
                    std::mem::transmute::<__m512i, __m512bh>(a),
                    std::mem::transmute::<__m512i, __m512bh>(b),
                )
            }
        }
        #[inline(always)]
        unsafe fn load_b(b: *const u32) -> __m512i {
            unsafe { _mm512_loadu_si512(b.cast()) }
        }
        #[inline(always)]
        unsafe fn load(c: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(c) }
        }
        #[inline(always)]
        unsafe fn load_wide(x: *const bf16) -> __m512 {
            unsafe { bf16x16(x) }
        }
        #[inline(always)]
        unsafe fn narrow_row(from: *const f32, to: *mut bf16, n: usize) {
            unsafe { <bf16 as Half>::narrow_row::<{ Level::Avx512 as u8 }>(from, to, n) }
        }
        #[inline(always)]
        unsafe fn store(c: *mut f32, v: __m512) {
            unsafe { _mm512_storeu_ps(c, v) }
        }
        #[inline(always)]
        unsafe fn store_part(c: *mut f32, v: __m512, n: usize) {
            unsafe { put_ps512(c, v, n) }
        }
        #[inline(always)]
        unsafe fn turn(rows: &mut [__m512; LANES]) {
            unsafe { turn_ps512(rows) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn muladd(a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn mac(a: f32, b: f32, c: f32) -> f32 {
            a.mul_add(b, c)
        }
        #[inline(never)]
        unsafe fn with<K: Task>(task: K) {
            #[target_feature(
                enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"
            )]
            unsafe fn inner<K: Task>(task: K) {
                unsafe { task.run() }
            }
            unsafe { inner(task) }
        }
    }
}
pub(super) use super::portable::*;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::*;
