//! Pointwise inner loops: one generic body an arity, instantiated for an operator and an element type.
//!
//! An operator is a zero-sized type that implements [`Un`], [`Bin`] or [`Tri`] for the types it supports.
//! Real types get a copy of the loop for each instruction set; 16-bit floats run the f32 loop on widened blocks
//! ([`super::halves`]).

#![allow(unsafe_code, reason = "loops over raw, checked memory")]

use super::simd;
use crate::DType;
use num_complex::{Complex32, Complex64};
use std::mem::MaybeUninit;

/// Numbers that an operator gets besides its elements (alpha, bounds, ...).
#[derive(Clone, Copy, Default)]
pub struct Ctx {
    /// As doubles.
    pub f: [f64; 3],
    /// As integers.
    pub i: [i64; 3],
    /// As complex numbers.
    pub c: [Complex64; 2],
    /// The f32 loop behind a 16-bit loop.
    pub inner: Option<Loop>,
    /// Numbers beside 16-bit tensors keep single precision.
    pub wide_numbers: bool,
    /// Which operands of a 16-bit loop are single-precision numbers (bits).
    pub numbers: u8,
    /// Results go past the caches, which are too small for them.
    pub stream: bool,
}

/// Processes a row: `ptrs[0]` is the result, the others are operands; strides in bytes.
pub type Loop = unsafe fn(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx);

/// A number from the context in an element's own type.
pub trait FromCtx: Copy {
    /// Number `k` of the context.
    fn ctx(c: &Ctx, k: usize) -> Self;
}
macro_rules! from_ctx {
    ($($t:ty => |$c:ident, $k:ident| $e:expr;)+) => { $(impl FromCtx for $t {
        #[inline(always)]
        fn ctx($c: &Ctx, $k: usize) -> Self { $e }
    })+ };
}
from_ctx! {
    u8 => |c, k| c.i[k] as u8; i8 => |c, k| c.i[k] as i8; i16 => |c, k| c.i[k] as i16; i32 => |c, k| c.i[k] as i32;
    i64 => |c, k| c.i[k]; u16 => |c, k| c.i[k] as u16; u32 => |c, k| c.i[k] as u32; u64 => |c, k| c.i[k] as u64;
    bool => |c, k| c.i[k] != 0; f32 => |c, k| c.f[k] as f32; f64 => |c, k| c.f[k];
    Complex32 => |c, k| Complex32::new(c.c[k].re as f32, c.c[k].im as f32); Complex64 => |c, k| c.c[k];
}

/// A one-operand operator on elements of type `A`.
pub trait Un<A> {
    /// The result's element type.
    type Out: Copy;
    /// The result for one element.
    fn f(a: A, c: &Ctx) -> Self::Out;
}

/// A two-operand operator on elements of type `A`.
pub trait Bin<A> {
    /// The result's element type.
    type Out: Copy;
    /// The result for one pair.
    fn f(a: A, b: A, c: &Ctx) -> Self::Out;
}

/// A three-operand operator on elements of type `A`.
pub trait Tri<A> {
    /// The result's element type.
    type Out: Copy;
    /// The result for one triple.
    fn f(x: A, y: A, z: A, c: &Ctx) -> Self::Out;
}

/// Elements of a block.
const BLOCK: usize = 64;
/// Something at the start of a cache line: vectors that cross lines cost twice.
#[repr(align(64))]
struct Lines<T>(T);
/// Bytes of a store past the caches.
const VECTOR: usize = 32;

/// Results of so many bytes do not stay in any cache: writing past it spares reading what is overwritten.
pub const STREAM: usize = 24 << 20;

/// Copies `n` bytes, a multiple of 16, to an address that is one too, past the caches.
///
/// # Safety
/// Both sides hold n bytes.
#[inline(always)]
pub unsafe fn store_past_caches(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller gives n bytes on both sides; SSE2 belongs to the target.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        for i in (0..n).step_by(16) {
            use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
            _mm_stream_si128(to.add(i).cast(), _mm_loadu_si128(from.add(i).cast()));
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::ptr::copy_nonoverlapping(from, to, n);
    }
}

/// Orders stores past the caches before what follows.
#[inline(always)]
pub fn finish_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE belongs to the target.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

macro_rules! bodies {
    ($body:ident, $avx2:ident, $avx512:ident, $base:ident, $plain:ident, $mid:ident, $pick:ident, $Op:ident, [$($p:ident $s:ident $fixed:ident $k:literal),+]) => {
        #[inline(always)]
        unsafe fn $body<O: $Op<A>, A: Copy>(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx) {
            /// One block: references, so that the compiler knows that nothing overlaps.
            #[inline(always)]
            fn block<O: $Op<A>, A: Copy>(out: &mut [MaybeUninit<O::Out>; BLOCK], $($p: &[A; BLOCK],)+ ctx: &Ctx) {
                for i in 0..BLOCK {
                    out[i].write(O::f($($p[i]),+, ctx));
                }
            }
            // A copy, which no store can be thought to change.
            let ctx = &{ *ctx };
            let item = size_of::<A>() as isize;
            let out_item = size_of::<O::Out>();
            // SAFETY: the caller gives pointers and strides for n elements of each operand.
            unsafe {
                let (out, so) = ((*ptrs).cast::<O::Out>(), *strides);
                $(let ($p, $s) = ((*ptrs.add($k)).cast::<A>(), *strides.add($k));)+
                let mut at = 0;
                if so == out_item as isize && n > 0 $(&& ($s == item || $s == 0))+ {
                    let end = out.wrapping_add(n).cast::<u8>();
                    let apart = true $(&& (end <= $p.cast::<u8>() || $p.wrapping_add(if $s == 0 { 1 } else { n }).cast::<u8>() <= out.cast::<u8>()))+;
                    let stream = apart && ctx.stream && (out as usize).is_multiple_of(VECTOR) && BLOCK * out_item % VECTOR == 0;
                    if apart && !stream && true $(&& $s == item)+ {
                        for i in 0..n {
                            *out.add(i) = O::f($(*$p.add(i)),+, ctx);
                        }
                        return;
                    }
                    bodies!(@over [$($p $s),+] out n item ctx O);
                    if !stream {
                        bodies!(@numbers [$($p $s),+] out n item ctx O apart);
                    }
                    // A number is an operand whose block is always the same.
                    $(let $fixed = Lines([*$p; BLOCK]);)+
                    let mut aside = Lines([const { MaybeUninit::<O::Out>::uninit() }; BLOCK]);
                    while at + BLOCK <= n {
                        // Over an operand's own memory, and past the caches, the block is made aside.
                        let to = if apart && !stream { out.add(at).cast() } else { &raw mut aside.0 };
                        block::<O, A>(&mut *to, $(&*if $s == 0 { &raw const $fixed.0 } else { $p.add(at).cast() },)+ ctx);
                        if stream {
                            store_past_caches(out.add(at).cast(), aside.0.as_ptr().cast(), BLOCK * out_item);
                        } else if !apart {
                            std::ptr::copy_nonoverlapping(aside.0.as_ptr().cast(), out.add(at), BLOCK);
                        }
                        at += BLOCK;
                    }
                    if stream {
                        finish_stores();
                    }
                }
                for i in at as isize..n as isize {
                    *out.byte_offset(i * so) = O::f($(*$p.byte_offset(i * $s)),+, ctx);
                }
            }
        }
        unsafe fn $base<O: $Op<A>, A: Copy>(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx) {
            // SAFETY: as the caller promises.
            unsafe { $body::<O, A>(ptrs, strides, n, ctx) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $avx2<O: $Op<A>, A: Copy>(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx) {
            // SAFETY: as the caller promises.
            unsafe { $body::<O, A>(ptrs, strides, n, ctx) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")]
        unsafe fn $avx512<O: $Op<A>, A: Copy>(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx) {
            // SAFETY: as the caller promises.
            unsafe { $body::<O, A>(ptrs, strides, n, ctx) }
        }
        /// The loop for any machine.
        #[must_use]
        pub fn $plain<O: $Op<A>, A: Copy>() -> Loop {
            $base::<O, A>
        }
        /// The loop with AVX2, where the machine has it.
        #[must_use]
        pub fn $mid<O: $Op<A>, A: Copy>() -> Loop {
            #[cfg(target_arch = "x86_64")]
            if simd::level() >= simd::Level::Avx2 {
                return $avx2::<O, A>;
            }
            $base::<O, A>
        }
        /// The loop with the best instructions of the machine.
        #[must_use]
        pub fn $pick<O: $Op<A>, A: Copy>() -> Loop {
            #[cfg(target_arch = "x86_64")]
            if simd::level() == simd::Level::Avx512 {
                return $avx512::<O, A>;
            }
            $mid::<O, A>()
        }
    };
    // In place on the first operand: read through the result's pointer, so that the compiler sees one place.
    (@over [$p:ident $s:ident $(, $q:ident $t:ident)*] $out:ident $n:ident $item:ident $ctx:ident $O:ident) => {
        let others = true $(&& $t == $item && ($out.wrapping_add($n).cast::<u8>() <= $q.cast::<u8>() || $q.wrapping_add($n).cast::<u8>() <= $out.cast::<u8>()))*;
        if $out.cast::<u8>() == $p.cast::<u8>() && size_of::<$O::Out>() == size_of::<A>() && $s == $item && others {
            let place = $out.cast::<A>();
            for i in 0..$n {
                *place.add(i).cast::<$O::Out>() = $O::f(*place.add(i), $(*$q.add(i),)* $ctx);
            }
            return;
        }
    };
    (@numbers [$p:ident $s:ident] $($rest:ident)+) => {};
    // Numbers beside one dense operand stay in registers, in place too.
    (@numbers [$p:ident $s:ident $(, $q:ident $t:ident)+] $out:ident $n:ident $item:ident $ctx:ident $O:ident $apart:ident) => {
        if $s == $item $(&& $t == 0)+ {
            $(let $q = *$q;)+
            if $apart {
                for i in 0..$n {
                    *$out.add(i) = $O::f(*$p.add(i), $($q,)+ $ctx);
                }
                return;
            }
            if $out.cast::<u8>() == $p.cast::<u8>() && size_of::<$O::Out>() == size_of::<A>() {
                let place = $out.cast::<A>();
                for i in 0..$n {
                    *place.add(i).cast::<$O::Out>() = $O::f(*place.add(i), $($q,)+ $ctx);
                }
                return;
            }
        }
    };
}

bodies!(un_body, un_avx2, un_avx512, un_base, un_plain, un_mid, un, Un, [a sa fa 1]);
bodies!(bin_body, bin_avx2, bin_avx512, bin_base, bin_plain, bin_mid, bin, Bin, [a sa fa 1, b sb fb 2]);
bodies!(tri_body, tri_avx2, tri_avx512, tri_base, tri_plain, tri_mid, tri, Tri, [a sa fa 1, b sb fb 2, c sc fc 3]);

/// The loop for a real floating type.
fn reals(d: DType, single: fn() -> Loop, double: fn() -> Loop) -> Option<Loop> {
    match d {
        DType::F32 | DType::F16 | DType::BF16 => Some(single()),
        DType::F64 => Some(double()),
        _ => None,
    }
}

macro_rules! class_fns {
    ($Op:ident, $plain:ident, $mid:ident, $pick:ident, $int:ident, $uint:ident, $float:ident, $light:ident, $complex:ident, $boolean:ident) => {
        /// Loops for the integer types.
        #[must_use]
        pub fn $int<O: $Op<u8> + $Op<i8> + $Op<i16> + $Op<i32> + $Op<i64>>(
            d: DType,
        ) -> Option<Loop> {
            Some(match d {
                DType::U8 => $mid::<O, u8>(),
                DType::I8 => $plain::<O, i8>(),
                DType::I16 => $plain::<O, i16>(),
                DType::I32 => $mid::<O, i32>(),
                DType::I64 => $mid::<O, i64>(),
                _ => return None,
            })
        }
        /// Loops for the unsigned types beyond 8 bits.
        #[must_use]
        pub fn $uint<O: $Op<u16> + $Op<u32> + $Op<u64>>(d: DType) -> Option<Loop> {
            Some(match d {
                DType::U16 => $plain::<O, u16>(),
                DType::U32 => $plain::<O, u32>(),
                DType::U64 => $plain::<O, u64>(),
                _ => return None,
            })
        }
        /// Loops for the real floating types; the 16-bit ones get the f32 loop, to be wrapped.
        #[must_use]
        pub fn $float<O: $Op<f32> + $Op<f64>>(d: DType) -> Option<Loop> {
            reals(d, $pick::<O, f32>, $pick::<O, f64>)
        }
        /// The same where memory is the limit: 512-bit vectors would only slow it down (a tenth on Zen 4, beyond L2).
        #[must_use]
        pub fn $light<O: $Op<f32> + $Op<f64>>(d: DType) -> Option<Loop> {
            reals(d, $mid::<O, f32>, $mid::<O, f64>)
        }
        /// Loops for the complex types.
        #[must_use]
        pub fn $complex<O: $Op<Complex32> + $Op<Complex64>>(d: DType) -> Option<Loop> {
            Some(match d {
                DType::C64 => $plain::<O, Complex32>(),
                DType::C128 => $plain::<O, Complex64>(),
                _ => return None,
            })
        }
        /// The loop for truth values.
        #[must_use]
        pub fn $boolean<O: $Op<bool>>(d: DType) -> Option<Loop> {
            (d == DType::Bool).then(|| $plain::<O, bool>())
        }
    };
}
class_fns!(
    Un, un_plain, un_mid, un, int1, uint1, float1, light1, complex1, bool1
);
class_fns!(
    Bin, bin_plain, bin_mid, bin, int2, uint2, float2, light2, complex2, bool2
);
class_fns!(
    Tri, tri_plain, tri_mid, tri, int3, uint3, float3, light3, complex3, bool3
);

#[cfg(test)]
mod tests {
    use super::*;

    struct Minus;
    impl Bin<f32> for Minus {
        type Out = f32;
        #[inline(always)]
        fn f(a: f32, b: f32, _: &Ctx) -> f32 {
            a - b
        }
    }

    /// Runs the loops on `n` elements with all operands in one buffer (start, step), and compares with a plain loop.
    fn check(n: usize, out: usize, a: (usize, usize), b: (usize, usize), stream: bool) {
        let before: Vec<f32> = (0..4096).map(|i| ((i * 37) % 101) as f32).collect();
        let ctx = Ctx {
            stream,
            ..Ctx::default()
        };
        let loops = [
            bin_plain::<Minus, f32>(),
            bin_mid::<Minus, f32>(),
            bin::<Minus, f32>(),
        ];
        for kernel in loops {
            let mut x = before.clone();
            let p = x.as_mut_ptr();
            let ptrs = [out, a.0, b.0].map(|at| p.wrapping_add(at).cast::<u8>());
            let strides = [4, 4 * a.1 as isize, 4 * b.1 as isize];
            // SAFETY: the buffer has n elements from each place on.
            unsafe { kernel(ptrs.as_ptr(), strides.as_ptr(), n, &ctx) };
            for i in 0..n {
                let want = before[a.0 + i * a.1] - before[b.0 + i * b.1];
                assert_eq!(x[out + i], want, "{n} {out} {a:?} {b:?} {i}");
            }
            assert_eq!(x[out + n..], before[out + n..]);
        }
    }

    #[test]
    fn loops_agree_wherever_the_operands_are() {
        for n in [1, 63, 64, 200, 1000] {
            for stream in [false, true] {
                check(n, 2048, (0, 1), (1024, 1), stream);
                check(n, 2048, (0, 1), (7, 0), stream);
                check(n, 2048, (5, 0), (0, 1), stream);
                check(n, 0, (0, 1), (2048, 1), stream);
                check(n, 0, (2048, 1), (0, 1), stream);
                check(n, 0, (0, 1), (3000, 0), stream);
                check(n, 2048, (0, 2), (1, 2), stream);
            }
        }
    }
}
