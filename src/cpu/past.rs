//! What the caches are told: stores that go past them, as what will not be read soon need not push out what will, nor be
//! read first; and reads that are to come from places that the machine cannot guess.

#![allow(unsafe_code, reason = "vector instructions over raw, checked memory")]

use super::simd;

/// Results of so many bytes do not stay in any cache.
const FROM: usize = 24 << 20;
/// What addresses and sizes are multiples of.
const VECTOR: usize = 16;

/// Whether results of so many bytes are better stored past the caches. Intel's cores wait for such stores longer than for the
/// reads that they save.
pub fn suits(bytes: usize) -> bool {
    bytes >= FROM && simd::is_amd()
}

/// Whether [`store`] can write `n` bytes to this address.
#[inline(always)]
pub fn fits(to: *const u8, n: usize) -> bool {
    to.addr().is_multiple_of(VECTOR) && n.is_multiple_of(VECTOR)
}

/// Copies `n` bytes to an address where they fit, past the caches.
///
/// # Safety
/// Both sides hold n bytes, apart from each other, and [`fits`] says yes.
#[inline(always)]
pub unsafe fn store(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller gives n bytes on both sides; SSE2 belongs to the target.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        for i in (0..n).step_by(VECTOR) {
            use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
            _mm_stream_si128(to.add(i).cast(), _mm_loadu_si128(from.add(i).cast()));
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::ptr::copy_nonoverlapping(from, to, n);
    }
}

/// Orders such stores before what follows.
#[inline(always)]
pub fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE belongs to the target.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Asks for the first of `n` bytes that will be read soon; an address that holds nothing does no harm.
#[inline(always)]
pub fn expect(from: *const u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..n.min(512)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE belongs to the target; asking reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, n);
}
