//! Memory and time: a counting allocator, and a thread that ends a run that takes too long.

#![allow(unsafe_code, reason = "an allocator")]

use cpu_time::ProcessTime;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes that one run may have at a time.
const MAX_BYTES: usize = 256 << 20;
/// Time that one run may compute.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Time that it may take: a run that waits for ever computes nothing, and a busy machine may hold up a good one.
const MAX_WAIT: Duration = Duration::from_secs(600);

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);
static RUN: AtomicU64 = AtomicU64::new(0);

fn grown(by: usize) -> bool {
    let live = LIVE.fetch_add(by, Relaxed) + by;
    let used = live.saturating_sub(BASE.load(Relaxed));
    PEAK.fetch_max(used, Relaxed);
    used <= MAX_BYTES || !RUNNING.load(Relaxed)
}

// SAFETY: everything is passed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grown(layout.size()) {
            // The standard library ends the process on this, with the size.
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !grown(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Ends the process if a run takes too long.
pub fn watch() {
    std::thread::spawn(|| {
        let (mut run, mut since) = (0, (ProcessTime::now(), Instant::now()));
        loop {
            std::thread::sleep(Duration::from_millis(250));
            let now = RUN.load(Relaxed);
            if now != run || !RUNNING.load(Relaxed) {
                (run, since) = (now, (ProcessTime::now(), Instant::now()));
            } else if since.0.elapsed() > MAX_TIME || since.1.elapsed() > MAX_WAIT {
                eprintln!("a run takes more than {MAX_TIME:?}");
                std::process::abort();
            }
        }
    });
}

/// A run begins.
pub fn begin() {
    BASE.store(LIVE.load(Relaxed), Relaxed);
    PEAK.store(0, Relaxed);
    RUN.fetch_add(1, Relaxed);
    RUNNING.store(true, Relaxed);
}

/// A run is over; gives the most bytes it had at a time.
pub fn end() -> usize {
    RUNNING.store(false, Relaxed);
    PEAK.load(Relaxed)
}
