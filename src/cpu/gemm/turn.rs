//! Squares of vectors transposed in registers, and vectors that are only partly there.

#![allow(unsafe_code, reason = "vector instructions")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each block is intrinsics alone, under the target features that the policy's contract names"
)]

/// Lanes of the widest vector of any policy.
pub(super) const LANES: usize = 16;

/// Asks for the cache line at `at`; any address will do.
#[inline(always)]
pub(super) fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::*;
        _mm_prefetch::<_MM_HINT_T0>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same value, of which the compiler knows nothing: it makes no more pointers out of it than it is asked for.
#[inline(always)]
pub(super) fn opaque<T>(at: *const T) -> *const T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut same = at;
        #[allow(
            clippy::pointers_in_nomem_asm_block,
            reason = "there are no instructions in it"
        )]
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) same, options(nomem, nostack, preserves_flags))
        };
        same
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    at
}

/// Four by four, plainly.
#[inline(always)]
pub(super) fn turn_plain<T: Copy>(r: &mut [[T; 4]; LANES]) {
    for i in 0..4 {
        for j in 0..i {
            (r[i][j], r[j][i]) = (r[j][i], r[i][j]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LANES;
    use std::arch::x86_64::*;

    /// The first `n` lanes (at most 16).
    #[inline(always)]
    fn first(n: usize) -> u32 {
        (1u32 << n) - 1
    }

    /// Sixteen by sixteen.
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn turn_ps512(r: &mut [__m512; LANES]) {
        unsafe {
            let (mut t, mut u) = (*r, *r);
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..4 {
                for c in 0..2 {
                    let a = _mm512_castps_pd(t[4 * i + c]);
                    let b = _mm512_castps_pd(t[4 * i + 2 + c]);
                    u[4 * i + 2 * c] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    u[4 * i + 2 * c + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                }
            }
            for c in 0..4 {
                let (a, b) = (u[c], u[4 + c]);
                let (d, e) = (u[8 + c], u[12 + c]);
                let (even, odd) = (
                    _mm512_shuffle_f32x4::<0x88>(a, b),
                    _mm512_shuffle_f32x4::<0xdd>(a, b),
                );
                let (even2, odd2) = (
                    _mm512_shuffle_f32x4::<0x88>(d, e),
                    _mm512_shuffle_f32x4::<0xdd>(d, e),
                );
                r[c] = _mm512_shuffle_f32x4::<0x88>(even, even2);
                r[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd, odd2);
                r[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even, even2);
                r[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd, odd2);
            }
        }
    }

    /// Eight by eight.
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn turn_pd512(r: &mut [__m512d; LANES]) {
        unsafe {
            let mut t = *r;
            for i in 0..4 {
                t[2 * i] = _mm512_unpacklo_pd(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_pd(r[2 * i], r[2 * i + 1]);
            }
            for c in 0..2 {
                let (a, b) = (t[c], t[2 + c]);
                let (d, e) = (t[4 + c], t[6 + c]);
                let (even, odd) = (
                    _mm512_shuffle_f64x2::<0x88>(a, b),
                    _mm512_shuffle_f64x2::<0xdd>(a, b),
                );
                let (even2, odd2) = (
                    _mm512_shuffle_f64x2::<0x88>(d, e),
                    _mm512_shuffle_f64x2::<0xdd>(d, e),
                );
                r[c] = _mm512_shuffle_f64x2::<0x88>(even, even2);
                r[2 + c] = _mm512_shuffle_f64x2::<0x88>(odd, odd2);
                r[4 + c] = _mm512_shuffle_f64x2::<0xdd>(even, even2);
                r[6 + c] = _mm512_shuffle_f64x2::<0xdd>(odd, odd2);
            }
        }
    }

    /// Eight by eight.
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn turn_ps256(r: &mut [__m256; LANES]) {
        unsafe {
            let (mut t, mut u) = (*r, *r);
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..2 {
                for c in 0..2 {
                    let a = _mm256_castps_pd(t[4 * i + c]);
                    let b = _mm256_castps_pd(t[4 * i + 2 + c]);
                    u[4 * i + 2 * c] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                    u[4 * i + 2 * c + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
                }
            }
            for c in 0..4 {
                r[c] = _mm256_permute2f128_ps::<0x20>(u[c], u[4 + c]);
                r[4 + c] = _mm256_permute2f128_ps::<0x31>(u[c], u[4 + c]);
            }
        }
    }

    /// Four by four.
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn turn_pd256(r: &mut [__m256d; LANES]) {
        unsafe {
            for i in [0, 2] {
                let (a, b) = (r[i], r[i + 1]);
                r[i] = _mm256_unpacklo_pd(a, b);
                r[i + 1] = _mm256_unpackhi_pd(a, b);
            }
            for i in 0..2 {
                let (a, b) = (r[i], r[i + 2]);
                r[i] = _mm256_permute2f128_pd::<0x20>(a, b);
                r[i + 2] = _mm256_permute2f128_pd::<0x31>(a, b);
            }
        }
    }

    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn part_ps512(x: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(first(n) as u16, x) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn put_ps512(x: *mut f32, v: __m512, n: usize) {
        unsafe { _mm512_mask_storeu_ps(x, first(n) as u16, v) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn part_pd512(x: *const f64, n: usize) -> __m512d {
        unsafe { _mm512_maskz_loadu_pd(first(n) as u8, x) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn put_pd512(x: *mut f64, v: __m512d, n: usize) {
        unsafe { _mm512_mask_storeu_pd(x, first(n) as u8, v) }
    }

    /// Lanes below `n`, all bits set.
    #[inline(always)]
    unsafe fn below8(n: usize) -> __m256i {
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
        }
    }
    #[inline(always)]
    unsafe fn below4(n: usize) -> __m256i {
        unsafe {
            let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
            _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), lanes)
        }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn part_ps256(x: *const f32, n: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(x, below8(n)) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn put_ps256(x: *mut f32, v: __m256, n: usize) {
        unsafe { _mm256_maskstore_ps(x, below8(n), v) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn part_pd256(x: *const f64, n: usize) -> __m256d {
        unsafe { _mm256_maskload_pd(x, below4(n)) }
    }
    #[inline(always)]
    pub(in crate::cpu::gemm) unsafe fn put_pd256(x: *mut f64, v: __m256d, n: usize) {
        unsafe { _mm256_maskstore_pd(x, below4(n), v) }
    }
}
#[cfg(target_arch = "x86_64")]
pub(super) use x86::*;
