//! 16-bit floats: rows of them in single precision and back.

#![allow(
    unsafe_code,
    reason = "conversions by vector instructions over raw, checked memory"
)]

use super::lanes::{Cell, Two};
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
        Self::from_bits((upper(v) >> 16) as u16)
    }
    #[inline(always)]
    unsafe fn narrow_row<const LEVEL: u8>(from: *const f32, to: *mut Self, n: usize) {
        let mut i = 0;
        // SAFETY: as the caller promises.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if LEVEL >= Level::Avx512 as u8 {
                use std::arch::x86_64::*;
                let upper = _mm512_loadu_si512(UPPER.as_ptr().cast());
                while i + 32 <= n {
                    let low = upper_512(_mm512_loadu_ps(from.add(i)));
                    let high = upper_512(_mm512_loadu_ps(from.add(i + 16)));
                    let x = _mm512_permutex2var_epi16(low, upper, high);
                    _mm512_storeu_si512(to.add(i).cast(), x);
                    i += 32;
                }
                while i < n {
                    let part = ((1u32 << (n - i).min(16)) - 1) as __mmask16;
                    let x = upper_512(_mm512_maskz_loadu_ps(part, from.add(i)));
                    let x = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(x));
                    _mm256_mask_storeu_epi16(to.add(i).cast(), part, x);
                    i += 16;
                }
            }
            while i < n {
                *to.add(i) = Self::narrow(*from.add(i));
                i += 1;
            }
        }
    }
}

/// Two neighbours, which become numbers, and are made of such, by as few instructions as single ones.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Pair([u8; 4]);

impl Pair {
    /// The pairs of a row, and what is left of it.
    #[inline(always)]
    #[must_use]
    pub fn of_row(row: &[bf16]) -> (&[Self], &[bf16]) {
        let (pairs, rest) = row.as_chunks::<2>();
        // SAFETY: bytes of two elements, which lie anywhere.
        let pairs = unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) };
        (pairs, rest)
    }

    /// The same to be written.
    #[inline(always)]
    #[must_use]
    pub fn of_row_mut(row: &mut [bf16]) -> (&mut [Self], &mut [bf16]) {
        let (pairs, rest) = row.as_chunks_mut::<2>();
        let n = pairs.len();
        // SAFETY: as above; any bits are elements.
        let pairs = unsafe { std::slice::from_raw_parts_mut(pairs.as_mut_ptr().cast(), n) };
        (pairs, rest)
    }
}

impl Cell for Pair {
    type T = f32;
    const N: usize = 2;
    #[inline(always)]
    fn get(self, i: usize) -> f32 {
        let word = u32::from_le_bytes(self.0);
        f32::from_bits(if i == 0 {
            word << 16
        } else {
            word & 0xffff_0000
        })
    }
    #[inline(always)]
    fn zip(self, other: Self, f: impl Two<f32>) -> Self {
        let low = upper(f.of(self.get(0), other.get(0))) >> 16;
        let high = upper(f.of(self.get(1), other.get(1))) & 0xffff_0000;
        Self((low | high).to_le_bytes())
    }
}

/// The bits of a number rounded to bf16 in the upper half; what stands in the lower one is not part of it.
#[inline(always)]
fn upper(v: f32) -> u32 {
    // To nearest even, branch-free.
    let bits = v.to_bits();
    let up = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    if v != v { 0x7fc0_0000 } else { up }
}

/// The odd ones of 64 words.
#[cfg(target_arch = "x86_64")]
const UPPER: [u16; 32] = {
    let mut odd = [0; 32];
    let mut i = 0;
    while i < 32 {
        odd[i] = 2 * i as u16 + 1;
        i += 1;
    }
    odd
};

/// [`upper`] of a vector.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn upper_512(v: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512i {
    use std::arch::x86_64::*;
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
    _mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7fc0_0000))
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

/// What rounds numbers in single precision to a type: to one of 16 bits, or not at all.
#[must_use]
pub fn rounding(dtype: DType) -> fn(f32) -> f32 {
    match dtype {
        DType::F16 => |v| f16::from_f32(v).to_f32(),
        DType::BF16 => |v| bf16::from_f32(v).to_f32(),
        _ => |v| v,
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

/// Elements that are summed together.
const SUMMED: usize = 256;

#[inline(always)]
unsafe fn sum_body<H: Half, const LEVEL: u8>(
    to: *mut H,
    from: *const u8,
    n: usize,
    offsets: impl Iterator<Item = isize> + Clone,
) {
    let (mut sum, mut x) = ([0f32; SUMMED], [0f32; SUMMED]);
    for at in (0..n).step_by(SUMMED) {
        let m = SUMMED.min(n - at);
        // SAFETY: as the caller promises.
        unsafe {
            H::widen_row::<LEVEL>(to.add(at), sum.as_mut_ptr(), m);
            for offset in offsets.clone() {
                let from = from.offset(offset).cast::<H>();
                H::widen_row::<LEVEL>(from.add(at), x.as_mut_ptr(), m);
                for i in 0..m {
                    sum[i] += x[i];
                }
            }
            H::narrow_row::<LEVEL>(sum.as_ptr(), to.add(at), m);
        }
    }
}
per_level! {
    /// Adds rows of `n` elements, which lie at offsets in bytes, to one that is there; the sums are rounded at last.
    ///
    /// # Safety
    /// Every row holds n elements, and none overlaps the sum's.
    pub fn add_rows<H: Half>(to: *mut H, from: *const u8, n: usize, offsets: impl Iterator<Item = isize> + Clone) => sum_body
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
        for n in 0..100 {
            let mut some = vec![bf16::ZERO; n + 1];
            narrowed(&values[..n], &mut some[..n]);
            assert!(
                some[..n]
                    .iter()
                    .zip(&b)
                    .all(|(x, y)| x.to_bits() == y.to_bits())
            );
            assert_eq!(some[n], bf16::ZERO, "what lies behind {n}");
        }
    }

    #[test]
    fn pairs_are_as_their_elements() {
        #[derive(Clone, Copy)]
        struct Sum;
        impl Two<f32> for Sum {
            fn of(self, x: f32, y: f32) -> f32 {
                x + y
            }
        }
        let row: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let mut sums = row.clone();
        let ((pairs, rest), (to, left)) =
            (Pair::of_row(&row[1..]), Pair::of_row_mut(&mut sums[1..]));
        assert_eq!((pairs.len(), rest.len(), left.len()), (32767, 1, 1));
        for (to, &pair) in to.iter_mut().zip(pairs) {
            *to = pair.zip(pair, Sum);
        }
        for (x, sum) in row[1..65535].iter().zip(&sums[1..]) {
            let want = bf16::narrow(x.widen() + x.widen());
            assert_eq!(sum.to_bits(), want.to_bits(), "{x}");
        }
    }
}
