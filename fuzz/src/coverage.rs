//! LLVM's coverage counters and comparisons, if the build has them.

#![allow(
    unsafe_code,
    reason = "the counters are raw memory that compiled code counts in"
)]

use std::cell::RefCell;
use std::sync::Mutex;

static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by the constructors of instrumented code with the range of its counters.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    if let Ok(mut counters) = COUNTERS.lock() {
        let range = (start as usize, stop as usize);
        if range.0 < range.1 && !counters.contains(&range) {
            counters.push(range);
        }
    }
}

thread_local! {
    static PAIRS: RefCell<Pairs> = const { RefCell::new(Pairs { seen: [(0, 0, 0); 256], next: 0 }) };
}

struct Pairs {
    seen: [(u64, u64, u8); 256],
    next: usize,
}

fn compared(a: u64, b: u64, size: u8) {
    // Zero and one are what mutation finds by itself.
    if a == b || (a < 2 && b < 2) {
        return;
    }
    let _ = PAIRS.try_with(|pairs| {
        if let Ok(mut pairs) = pairs.try_borrow_mut() {
            let next = pairs.next;
            pairs.seen[next % 256] = (a, b, size);
            pairs.next = next.wrapping_add(1);
        }
    });
}

macro_rules! hooks {
    ($($name:ident $t:ty;)+) => {$(
        #[unsafe(no_mangle)]
        #[allow(missing_docs)]
        pub extern "C" fn $name(a: $t, b: $t) {
            compared(a.into(), b.into(), size_of::<$t>() as u8);
        }
    )+};
}

hooks! {
    __sanitizer_cov_trace_cmp1 u8;
    __sanitizer_cov_trace_cmp2 u16;
    __sanitizer_cov_trace_cmp4 u32;
    __sanitizer_cov_trace_cmp8 u64;
    __sanitizer_cov_trace_const_cmp1 u8;
    __sanitizer_cov_trace_const_cmp2 u16;
    __sanitizer_cov_trace_const_cmp4 u32;
    __sanitizer_cov_trace_const_cmp8 u64;
}

/// A `match` on a number: its cases follow their count and width.
///
/// # Safety
/// Called by instrumented code only, whose table is as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_trace_switch(value: u64, cases: *const u64) {
    // SAFETY: as above.
    let (count, bits) = unsafe { (*cases, *cases.add(1)) };
    if count > 0 {
        // One case a time, a different one each: all come round.
        let turn = PAIRS
            .try_with(|p| p.try_borrow().map_or(0, |p| p.next))
            .unwrap_or(0);
        // SAFETY: as above.
        let case = unsafe { *cases.add(2 + turn % count as usize) };
        compared(value, case, (bits / 8).clamp(1, 8) as u8);
    }
}

/// What has been reached so far.
pub struct Map {
    ranges: Vec<(usize, usize)>,
    /// For each counter, the classes of counts that were seen.
    seen: Vec<u8>,
    /// Whether counts of a place are told apart.
    pub counts: bool,
}

impl Map {
    pub fn new() -> Self {
        let ranges = COUNTERS.lock().map(|c| c.clone()).unwrap_or_default();
        let n = ranges.iter().map(|r| r.1 - r.0).sum();
        Self {
            ranges,
            seen: vec![0; n],
            counts: true,
        }
    }

    /// True if the build counts.
    pub fn is_live(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Sets all counters to zero.
    pub fn reset(&self) {
        for &(start, stop) in &self.ranges {
            // SAFETY: the range is the counters of loaded code, which only this thread runs now.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, stop - start) };
        }
    }

    /// How many new things the run since [`Map::reset`] reached, and remembers them.
    pub fn new_reached(&mut self) -> usize {
        let (mut new, mut at) = (0, 0);
        for &(start, stop) in &self.ranges {
            // SAFETY: as above.
            let counters = unsafe { std::slice::from_raw_parts(start as *const u8, stop - start) };
            for (counts, seen) in counters.chunks(64).zip(self.seen[at..].chunks_mut(64)) {
                if counts.iter().all(|&c| c == 0) {
                    continue;
                }
                for (&count, seen) in counts.iter().zip(seen) {
                    let class = match count {
                        0 => continue,
                        _ if !self.counts => 1,
                        1 => 1,
                        2 => 2,
                        3 => 4,
                        4..=7 => 8,
                        8..=15 => 16,
                        16..=31 => 32,
                        32..=127 => 64,
                        _ => 128,
                    };
                    if *seen & class == 0 {
                        new += 1;
                        *seen |= class;
                    }
                }
            }
            at += stop - start;
        }
        new
    }

    /// How many places were reached.
    pub fn reached(&self) -> usize {
        self.seen.iter().filter(|&&s| s != 0).count()
    }
}

/// Numbers that the last run compared and found different.
pub fn compared_pairs() -> Vec<(u64, u64, u8)> {
    PAIRS.with(|p| {
        let p = p.borrow();
        p.seen[..p.next.min(256)].to_vec()
    })
}
