//! Stores past the caches: what is written and will not be read soon need not push out what will, nor be read first.

#![allow(unsafe_code, reason = "vector instructions over raw, checked memory")]

/// Results of so many bytes do not stay in any cache.
pub const FROM: usize = 24 << 20;
/// What addresses and sizes are multiples of.
const VECTOR: usize = 16;

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
