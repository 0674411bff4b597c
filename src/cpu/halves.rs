//! 16-bit floats: rows of them in single precision and back.

#![allow(
    unsafe_code,
    reason = "conversions by vector instructions over raw, checked memory"
)]

use super::simd::{self, Level};
use crate::{DType, Element, Scalar};
use half::{bf16, f16};

/// A 16-bit float.
pub trait Half: Copy {
    /// To single precision.
    fn widen(self) -> f32;
    /// Rounded from single precision.
    fn narrow(v: f32) -> Self;
    /// Widens `n` neighbours, by the instructions of a [`Level`].
    ///
    /// # Safety
    /// Both sides hold n elements and do not overlap; the caller is compiled for that level.
    #[inline(always)]
    unsafe fn widen_row<const LEVEL: u8>(from: *const Self, to: *mut f32, n: usize) {
        for i in 0..n {
            // SAFETY: as the caller promises.
            unsafe { *to.add(i) = (*from.add(i)).widen() };
        }
    }
    /// Rounds `n` neighbours, by the instructions of a [`Level`].
    ///
    /// # Safety
    /// As for [`Half::widen_row`].
    #[inline(always)]
    unsafe fn narrow_row<const LEVEL: u8>(from: *const f32, to: *mut Self, n: usize) {
        for i in 0..n {
            // SAFETY: as the caller promises.
            unsafe { *to.add(i) = Self::narrow(*from.add(i)) };
        }
    }
}

impl Half for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        super::folds::widen_f16(self)
    }
    #[inline(always)]
    fn narrow(v: f32) -> Self {
        Self::from_f32(v)
    }
    #[inline(always)]
    unsafe fn widen_row<const LEVEL: u8>(from: *const Self, to: *mut f32, n: usize) {
        let mut i = 0;
        // SAFETY: as the caller promises; F16C belongs to both levels above the baseline.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::*;
                if LEVEL >= Level::Avx512 as u8 {
                    while i + 16 <= n {
                        let x = _mm512_cvtph_ps(_mm256_loadu_si256(from.add(i).cast()));
                        _mm512_storeu_ps(to.add(i), x);
                        i += 16;
                    }
                }
                if LEVEL >= Level::Avx2 as u8 {
                    while i + 8 <= n {
                        let x = _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast()));
                        _mm256_storeu_ps(to.add(i), x);
                        i += 8;
                    }
                }
            }
            while i < n {
                *to.add(i) = (*from.add(i)).widen();
                i += 1;
            }
        }
    }
    #[inline(always)]
    unsafe fn narrow_row<const LEVEL: u8>(from: *const f32, to: *mut Self, n: usize) {
        let mut i = 0;
        // SAFETY: as above.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::*;
                const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
                if LEVEL >= Level::Avx512 as u8 {
                    while i + 16 <= n {
                        let x = _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(from.add(i)));
                        _mm256_storeu_si256(to.add(i).cast(), x);
                        i += 16;
                    }
                }
                if LEVEL >= Level::Avx2 as u8 {
                    while i + 8 <= n {
                        let x = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from.add(i)));
                        _mm_storeu_si128(to.add(i).cast(), x);
                        i += 8;
                    }
                }
            }
            while i < n {
                *to.add(i) = Self::narrow(*from.add(i));
                i += 1;
            }
        }
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(v: f32) -> Self {
        // Round to nearest even, branch-free.
        let bits = v.to_bits();
        let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
        let nan = v != v;
        Self::from_bits(if nan { 0x7fc0 } else { rounded as u16 })
    }
}

/// A number rounded to a 16-bit type; for the other types, itself.
#[must_use]
pub fn rounded(v: Scalar, dtype: DType) -> Scalar {
    match dtype {
        DType::F16 => f16::from_scalar(v).to_scalar(),
        DType::BF16 => bf16::from_scalar(v).to_scalar(),
        _ => v,
    }
}

/// A function over [`Half`] rows compiled for each level and chosen at run time.
macro_rules! per_level {
    ($(#[$m:meta])* $vis:vis fn $name:ident<H: Half>($($a:ident: $t:ty),+ $(,)?) => $body:ident) => {
        $(#[$m])*
        $vis unsafe fn $name<H: Half>($($a: $t),+) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                unsafe fn avx2<H: Half>($($a: $t),+) {
                    // SAFETY: as the caller promises.
                    unsafe { $body::<H, { Level::Avx2 as u8 }>($($a),+) }
                }
                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")]
                unsafe fn avx512<H: Half>($($a: $t),+) {
                    // SAFETY: as the caller promises.
                    unsafe { $body::<H, { Level::Avx512 as u8 }>($($a),+) }
                }
                match simd::level() {
                    // SAFETY: the machine has these features; the rest as the caller promises.
                    Level::Avx512 => return unsafe { avx512::<H>($($a),+) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2::<H>($($a),+) },
                    Level::Baseline => {}
                }
            }
            // SAFETY: as the caller promises.
            unsafe { $body::<H, { Level::Baseline as u8 }>($($a),+) }
        }
    };
}

#[inline(always)]
unsafe fn widen_body<H: Half, const LEVEL: u8>(from: *const H, to: *mut f32, n: usize) {
    // SAFETY: as the caller promises.
    unsafe { H::widen_row::<LEVEL>(from, to, n) }
}
#[inline(always)]
unsafe fn narrow_body<H: Half, const LEVEL: u8>(from: *const f32, to: *mut H, n: usize) {
    // SAFETY: as the caller promises.
    unsafe { H::narrow_row::<LEVEL>(from, to, n) }
}
per_level! {
    /// Widens `n` neighbours.
    ///
    /// # Safety
    /// Both sides hold n elements and do not overlap.
    pub fn widen_row<H: Half>(from: *const H, to: *mut f32, n: usize) => widen_body
}
per_level! {
    /// Rounds `n` neighbours.
    ///
    /// # Safety
    /// Both sides hold n elements and do not overlap.
    pub fn narrow_row<H: Half>(from: *const f32, to: *mut H, n: usize) => narrow_body
}

/// Widens a row into one as long.
///
/// # Panics
/// If it is not.
pub fn widened<H: Half>(from: &[H], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "rows of one length");
    // SAFETY: both have so many elements, and references do not overlap.
    unsafe { widen_row(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

/// Rounds a row into one as long.
///
/// # Panics
/// If it is not.
pub fn narrowed<H: Half>(from: &[f32], to: &mut [H]) {
    assert_eq!(from.len(), to.len(), "rows of one length");
    // SAFETY: as above.
    unsafe { narrow_row(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_convert_like_single_elements() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let mut wide = vec![0f32; bits.len()];
        // SAFETY: 65,536 elements on both sides.
        unsafe { widen_row::<f16>(bits.as_ptr().cast(), wide.as_mut_ptr(), bits.len()) };
        for (&b, &w) in bits.iter().zip(&wide) {
            let want = f16::from_bits(b).to_f32();
            assert!(w == want || w.is_nan() && want.is_nan(), "{b:#x} {w}");
        }
        let values: Vec<f32> = (0..100_003u32)
            .map(|i| f32::from_bits(i.wrapping_mul(42_949)))
            .collect();
        let (mut a, mut b) = (
            vec![f16::ZERO; values.len()],
            vec![bf16::ZERO; values.len()],
        );
        // SAFETY: as many elements on both sides.
        unsafe {
            narrow_row::<f16>(values.as_ptr(), a.as_mut_ptr(), values.len());
            narrow_row::<bf16>(values.as_ptr(), b.as_mut_ptr(), values.len());
        }
        for ((&v, a), b) in values.iter().zip(&a).zip(&b) {
            assert!(*a == f16::from_f32(v) || v.is_nan() && a.is_nan(), "{v:e}");
            assert!(*b == bf16::from_f32(v) || v.is_nan() && b.is_nan(), "{v:e}");
        }
    }
}
