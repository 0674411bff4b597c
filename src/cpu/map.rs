//! Pointwise inner loops: one generic body an arity, instantiated for an operator and an element type.
//!
//! An operator is a zero-sized type that implements [`Un`], [`Bin`] or [`Tri`] for the types it supports.
//! Real types get a copy of the loop for each instruction set; 16-bit floats run the f32 loop on widened blocks.

#![allow(unsafe_code, reason = "loops over raw, checked memory")]

use super::simd;
use crate::DType;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

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

const BLOCK: usize = 64;

macro_rules! bodies {
    ($body:ident, $avx2:ident, $avx512:ident, $base:ident, $pick:ident, $Op:ident, [$($p:ident $s:ident $k:literal),+]) => {
        #[inline(always)]
        unsafe fn $body<O: $Op<A>, A: Copy>(ptrs: *const *mut u8, strides: *const isize, n: usize, ctx: &Ctx) {
            let item = size_of::<A>() as isize;
            // SAFETY: the caller gives pointers and strides for n elements of each operand.
            unsafe {
                let (out, so) = ((*ptrs).cast::<O::Out>(), *strides);
                $(let ($p, $s) = ((*ptrs.add($k)).cast::<A>(), *strides.add($k));)+
                let dense = so == size_of::<O::Out>() as isize $(&& ($s == item || $s == 0))+;
                if dense {
                    // Over an operand's own memory the vectoriser's alias check fails: go through a block.
                    let end = out.wrapping_add(n).cast::<u8>();
                    let apart = true $(&& (end <= $p.cast::<u8>() || $p.wrapping_add(n).cast::<u8>() <= out.cast::<u8>()))+;
                    // A stride of 0 reads one element; keep it in a register.
                    $(let $s = if $s == 0 { 0usize } else { 1 };)+
                    if apart && true $(&& $s == 1)+ {
                        for i in 0..n {
                            *out.add(i) = O::f($(*$p.add(i)),+, ctx);
                        }
                        return;
                    }
                    let mut at = 0;
                    while at + BLOCK <= n {
                        let block: [O::Out; BLOCK] = std::array::from_fn(|i| O::f($(*$p.add((at + i) * $s)),+, ctx));
                        std::ptr::copy_nonoverlapping(block.as_ptr(), out.add(at), BLOCK);
                        at += BLOCK;
                    }
                    for i in at..n {
                        *out.add(i) = O::f($(*$p.add(i * $s)),+, ctx);
                    }
                } else {
                    for i in 0..n as isize {
                        *out.byte_offset(i * so) = O::f($(*$p.byte_offset(i * $s)),+, ctx);
                    }
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
        /// The loop for this machine; `wide` asks for copies per instruction set.
        #[must_use]
        pub fn $pick<O: $Op<A>, A: Copy>(wide: bool) -> Loop {
            #[cfg(target_arch = "x86_64")]
            if wide {
                return match simd::level() {
                    simd::Level::Avx512 => $avx512::<O, A>,
                    simd::Level::Avx2 => $avx2::<O, A>,
                    simd::Level::Baseline => $base::<O, A>,
                };
            }
            let _ = wide;
            $base::<O, A>
        }
    };
}

bodies!(un_body, un_avx2, un_avx512, un_base, un, Un, [a sa 1]);
bodies!(bin_body, bin_avx2, bin_avx512, bin_base, bin, Bin, [a sa 1, b sb 2]);
bodies!(tri_body, tri_avx2, tri_avx512, tri_base, tri, Tri, [a sa 1, b sb 2, c sc 3]);

/// A 16-bit float.
pub trait Half: Copy {
    /// To single precision.
    fn widen(self) -> f32;
    /// Rounded from single precision.
    fn narrow(v: f32) -> Self;
}
impl Half for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(v: f32) -> Self {
        Self::from_f32(v)
    }
}
impl Half for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(v: f32) -> Self {
        // Round to nearest even, branch-free but for NaN.
        let bits = v.to_bits();
        let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
        Self::from_bits(if v.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

/// Runs the context's f32 loop on widened blocks of `N` operands. `OUT` is the result's size in bytes: 2 for the
/// 16-bit type itself, otherwise the f32 loop's result is copied as it is (1: bool, 8: index).
unsafe fn half_loop<H: Half, const N: usize, const OUT: usize>(
    ptrs: *const *mut u8,
    strides: *const isize,
    n: usize,
    ctx: &Ctx,
) {
    let Some(inner) = ctx.inner else { return };
    let mut wide = [[0f32; BLOCK]; N];
    let mut result = [0u64; BLOCK];
    let mut at = 0;
    while at < n {
        let m = BLOCK.min(n - at);
        let mut block_ptrs = [std::ptr::null_mut::<u8>(); 4];
        let block_strides: [isize; 4] = if OUT == 2 {
            [4; 4]
        } else {
            [OUT as isize, 4, 4, 4]
        };
        block_ptrs[0] = result.as_mut_ptr().cast();
        // SAFETY: the caller gives pointers and strides for n elements of each operand; the blocks hold BLOCK each.
        unsafe {
            for k in 0..N {
                let (p, s) = ((*ptrs.add(k + 1)).cast::<H>(), *strides.add(k + 1));
                if ctx.numbers & (1 << k) != 0 {
                    wide[k] = [*p.cast::<f32>(); BLOCK];
                } else if s == 2 {
                    for i in 0..m {
                        wide[k][i] = (*p.add(at + i)).widen();
                    }
                } else {
                    for i in 0..m {
                        wide[k][i] = (*p.byte_offset((at + i) as isize * s)).widen();
                    }
                }
                block_ptrs[k + 1] = wide[k].as_mut_ptr().cast();
            }
            inner(block_ptrs.as_ptr(), block_strides.as_ptr(), m, ctx);
            let (out, so) = (*ptrs, *strides);
            if OUT == 2 {
                let src = result.as_ptr().cast::<f32>();
                for i in 0..m {
                    *out.byte_offset((at + i) as isize * so).cast::<H>() = H::narrow(*src.add(i));
                }
            } else {
                let src = result.as_ptr().cast::<u8>();
                for i in 0..m {
                    std::ptr::copy_nonoverlapping(
                        src.add(i * OUT),
                        out.byte_offset((at + i) as isize * so),
                        OUT,
                    );
                }
            }
        }
        at += m;
    }
}

/// The loop that runs an f32 loop of `arity` operands on a 16-bit type, for results of `out_size` bytes.
#[must_use]
pub fn half_loop_for(dtype: DType, arity: usize, out_size: usize) -> Option<Loop> {
    Some(match (dtype, arity, out_size) {
        (DType::F16, 1, 2) => half_loop::<f16, 1, 2>,
        (DType::F16, 2, 2) => half_loop::<f16, 2, 2>,
        (DType::F16, 3, 2) => half_loop::<f16, 3, 2>,
        (DType::F16, 1, 1) => half_loop::<f16, 1, 1>,
        (DType::F16, 2, 1) => half_loop::<f16, 2, 1>,
        (DType::BF16, 1, 2) => half_loop::<bf16, 1, 2>,
        (DType::BF16, 2, 2) => half_loop::<bf16, 2, 2>,
        (DType::BF16, 3, 2) => half_loop::<bf16, 3, 2>,
        (DType::BF16, 1, 1) => half_loop::<bf16, 1, 1>,
        (DType::BF16, 2, 1) => half_loop::<bf16, 2, 1>,
        _ => return None,
    })
}

macro_rules! class_fns {
    ($Op:ident, $pick:ident, $int:ident, $uint:ident, $float:ident, $complex:ident, $boolean:ident) => {
        /// Loops for the integer types.
        #[must_use]
        pub fn $int<O: $Op<u8> + $Op<i8> + $Op<i16> + $Op<i32> + $Op<i64>>(
            d: DType,
        ) -> Option<Loop> {
            Some(match d {
                DType::U8 => $pick::<O, u8>(false),
                DType::I8 => $pick::<O, i8>(false),
                DType::I16 => $pick::<O, i16>(false),
                DType::I32 => $pick::<O, i32>(false),
                DType::I64 => $pick::<O, i64>(false),
                _ => return None,
            })
        }
        /// Loops for the unsigned types beyond 8 bits.
        #[must_use]
        pub fn $uint<O: $Op<u16> + $Op<u32> + $Op<u64>>(d: DType) -> Option<Loop> {
            Some(match d {
                DType::U16 => $pick::<O, u16>(false),
                DType::U32 => $pick::<O, u32>(false),
                DType::U64 => $pick::<O, u64>(false),
                _ => return None,
            })
        }
        /// Loops for the real floating types; the 16-bit ones get the f32 loop, to be wrapped.
        #[must_use]
        pub fn $float<O: $Op<f32> + $Op<f64>>(d: DType) -> Option<Loop> {
            Some(match d {
                DType::F32 | DType::F16 | DType::BF16 => $pick::<O, f32>(true),
                DType::F64 => $pick::<O, f64>(true),
                _ => return None,
            })
        }
        /// Loops for the complex types.
        #[must_use]
        pub fn $complex<O: $Op<Complex32> + $Op<Complex64>>(d: DType) -> Option<Loop> {
            Some(match d {
                DType::C64 => $pick::<O, Complex32>(false),
                DType::C128 => $pick::<O, Complex64>(false),
                _ => return None,
            })
        }
        /// The loop for truth values.
        #[must_use]
        pub fn $boolean<O: $Op<bool>>(d: DType) -> Option<Loop> {
            (d == DType::Bool).then(|| $pick::<O, bool>(false))
        }
    };
}
class_fns!(Un, un, int1, uint1, float1, complex1, bool1);
class_fns!(Bin, bin, int2, uint2, float2, complex2, bool2);
class_fns!(Tri, tri, int3, uint3, float3, complex3, bool3);
