//! Host memory for tensors: small blocks straight from the allocator, large ones kept for reuse.
//!
//! Fresh pages cost a fault each (1.7 us measured, ten times the work of an addition on them), so freed
//! blocks of 128 KiB and more (which the system's allocator would map afresh) wait in a bounded cache for the next result of the same size class.
//! With `TORCHLIKE_PLAIN_ALLOC` in the environment every block has its exact size and goes straight back, for allocators
//! that check what is written beyond.

#![allow(unsafe_code, reason = "this is the allocator")]

use crate::{Error, Result, err};
use std::alloc::{Layout, alloc, dealloc};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

const SMALL: usize = 512;
const LARGE: usize = 128 << 10;
/// Blocks from here on are asked to lie on huge pages: a fault for each 2 MiB instead of each 4 KiB.
const HUGE: usize = 8 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// At most this many bytes wait in the cache.
const CACHE_LIMIT: usize = 1 << 30;

/// An owned run of host bytes, aligned to 64 (16 below 512 bytes, as its only element below 16, to huge pages from 8 MiB on).
pub struct Block {
    ptr: *mut u8,
    capacity: usize,
}

// SAFETY: a block is plain memory; whoever holds it may use it from any thread.
unsafe impl Send for Block {}

struct Cache {
    blocks: Vec<(usize, usize)>,
    bytes: usize,
}

static CACHE: Mutex<Cache> = Mutex::new(Cache {
    blocks: Vec::new(),
    bytes: 0,
});

static PLAIN: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("TORCHLIKE_PLAIN_ALLOC").is_some());

fn layout(capacity: usize) -> Option<Layout> {
    let align = match capacity {
        // What malloc gives anyway: a larger alignment would be rounded up, and hide what lies beyond.
        _ if *PLAIN => 16,
        HUGE.. => HUGE_PAGE,
        SMALL.. => 64,
        16.. => 16,
        // Elements are no larger; a larger alignment than the size would go the long way through the system's allocator.
        _ => 1 << capacity.max(1).ilog2(),
    };
    Layout::from_size_align(capacity, align).ok()
}

/// Asks for huge pages, which the system may ignore.
#[cfg(target_os = "linux")]
fn advise(ptr: *mut u8, capacity: usize) {
    unsafe extern "C" {
        fn madvise(addr: *mut u8, length: usize, advice: i32) -> i32;
    }
    const MADV_HUGEPAGE: i32 = 14;
    // SAFETY: whole pages of a block of ours; this advice changes nothing that a program can see.
    unsafe { madvise(ptr, capacity / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE) };
}
#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize) {}

/// What a request takes: rounded so that a freed block fits requests up to an eighth smaller.
pub(crate) fn size_class(n: usize) -> usize {
    if n < LARGE {
        return n;
    }
    let step = (1usize << (usize::BITS - 1 - n.leading_zeros())) >> 3;
    n.div_ceil(step).saturating_mul(step)
}

/// Bytes of the blocks that are held, and the most there were since [`reset_peak`].
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn count(capacity: usize) {
    let now = HELD.fetch_add(capacity, Relaxed) + capacity;
    if now > MOST.load(Relaxed) {
        MOST.fetch_max(now, Relaxed);
    }
}

/// What the allocator holds, in bytes: blocks in use, the most that were, and blocks that wait.
#[must_use]
pub fn stats() -> [usize; 3] {
    let waiting = CACHE.lock().unwrap_or_else(PoisonError::into_inner).bytes;
    [HELD.load(Relaxed), MOST.load(Relaxed), waiting]
}

/// Memory of a kernel's own lists, counted while this is held as blocks of tensors are.
pub struct Noted(usize);

impl Noted {
    /// So many bytes.
    #[must_use]
    pub fn new(nbytes: usize) -> Self {
        let capacity = size_class(nbytes);
        count(capacity);
        Self(capacity)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Relaxed);
    }
}

/// Forgets how much was in use before.
pub fn reset_peak() {
    MOST.store(HELD.load(Relaxed), Relaxed);
}

/// Gives the blocks that wait back to the system.
pub fn empty_cache() {
    let waiting = {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        cache.bytes = 0;
        std::mem::take(&mut cache.blocks)
    };
    for (capacity, address) in waiting {
        free(address as *mut u8, capacity);
    }
}

impl Block {
    /// Uninitialised memory.
    ///
    /// # Errors
    /// A `Memory` error if the system has none left.
    #[inline]
    pub fn new(nbytes: usize) -> Result<Self> {
        if nbytes == 0 {
            return Ok(Self {
                ptr: std::ptr::null_mut(),
                capacity: 0,
            });
        }
        let capacity = if *PLAIN { nbytes } else { size_class(nbytes) };
        if capacity >= LARGE
            && !*PLAIN
            && let Some(ptr) = take(capacity)
        {
            count(capacity);
            return Ok(Self { ptr, capacity });
        }
        let ptr = match layout(capacity) {
            // SAFETY: the size is not zero.
            Some(layout) => unsafe { alloc(layout) },
            None => std::ptr::null_mut(),
        };
        if ptr.is_null() {
            return Err(no_memory(nbytes));
        }
        if capacity >= HUGE && !*PLAIN {
            advise(ptr, capacity);
        }
        count(capacity);
        Ok(Self { ptr, capacity })
    }

    /// The first byte; null for an empty block.
    #[inline]
    #[must_use]
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }
}

#[cold]
fn take(capacity: usize) -> Option<*mut u8> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = cache.blocks.iter().rposition(|b| b.0 == capacity)?;
    let (size, address) = cache.blocks.remove(at);
    cache.bytes -= size;
    Some(address as *mut u8)
}

fn free(ptr: *mut u8, capacity: usize) {
    if let Some(layout) = layout(capacity) {
        // SAFETY: the pointer came from `alloc` with this very layout.
        unsafe { dealloc(ptr, layout) };
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        HELD.fetch_sub(self.capacity, Relaxed);
        if self.capacity >= LARGE && !*PLAIN {
            let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.bytes + self.capacity <= CACHE_LIMIT {
                cache.bytes += self.capacity;
                cache.blocks.push((self.capacity, self.ptr as usize));
                return;
            }
        }
        free(self.ptr, self.capacity);
    }
}

#[cold]
fn no_memory(nbytes: usize) -> Error {
    err!(
        Runtime,
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
         allocate {nbytes} bytes. Error code 12 (Cannot allocate memory)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Block::new(usize::MAX / 2).is_err());
        assert!(Block::new(1 << 46).is_err());
    }
}
