//! The worker pool of the kernels: a region costs well under a microsecond while the workers are awake.
//!
//! Workers spin for about a millisecond after a region and then park. A region's items are cut into chunks, which the
//! workers *and the caller* claim, each from a share of its own first, as its caches have that of the region before, and then
//! from those of the others: a worker that the system has put aside holds nothing up.

#![allow(unsafe_code, reason = "a region is lent to threads that outlive it")]

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long an idle worker stays awake.
const SPIN: Duration = Duration::from_millis(1);

/// Chunks for each thread, so that uneven progress evens out.
const CHUNKS_PER_THREAD: usize = 4;

static WANTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True in workers, and in a caller while its region runs: regions inside regions run in place.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The number of threads a region may use, the caller included.
///
/// At first `TORCHLIKE_NUM_THREADS`, else `OMP_NUM_THREADS`, else the cores available to the process.
#[must_use]
pub fn num_threads() -> usize {
    let n = WANTED.load(Relaxed);
    if n != 0 {
        return n;
    }
    let from_env = |name| {
        std::env::var(name)
            .ok()?
            .trim()
            .parse::<usize>()
            .ok()
            .filter(|&n| n > 0)
    };
    let n = from_env("TORCHLIKE_NUM_THREADS")
        .or_else(|| from_env("OMP_NUM_THREADS"))
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .map_or(1, |n| n.min(MAX_THREADS));
    // A concurrent call of `set_num_threads` wins.
    let _ = WANTED.compare_exchange(0, n, Relaxed, Relaxed);
    WANTED.load(Relaxed)
}

/// More threads than this are never started.
const MAX_THREADS: usize = 1024;

/// Sets the number of threads that later regions use; 0 counts as 1.
pub fn set_num_threads(n: usize) {
    WANTED.store(n.clamp(1, MAX_THREADS), Relaxed);
}

/// What a region does with a range of its items. One pool runs them all, so that a loop is compiled once.
type Body<'a> = &'a (dyn Fn(Range<usize>) + Sync);

/// Most shares that a region's chunks are in.
const SHARES: usize = 8;

/// How many chunks of a share are claimed; on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Claimed(AtomicUsize);

/// One region, on its caller's stack for as long as it runs.
struct Job {
    body: *const (dyn Fn(Range<usize>) + Sync),
    items: usize,
    chunk: usize,
    shares: usize,
    claimed: [Claimed; SHARES],
    /// Workers that may still join.
    seats: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    /// Claims and runs chunks until none is left, those of share `home` first.
    fn work(&self, home: usize) {
        for i in 0..self.shares {
            self.work_on((home + i) % self.shares);
        }
    }

    /// Claims and runs chunks of a share until none is left.
    fn work_on(&self, share: usize) {
        let chunks = self.items.div_ceil(self.chunk);
        let first = |share| share * chunks / self.shares;
        let Claimed(claimed) = &self.claimed[share];
        loop {
            let start = (first(share) + claimed.fetch_add(1, Relaxed)) * self.chunk;
            let end = self.items.min(first(share + 1) * self.chunk);
            if start >= end {
                return;
            }
            let range = start..end.min(start + self.chunk);
            // SAFETY: the borrow of the body outlives the region.
            let run = || unsafe { (*self.body)(range) };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                for Claimed(claimed) in &self.claimed {
                    claimed.store(chunks, Relaxed);
                }
                if let Ok(mut slot) = self.panic.lock() {
                    slot.get_or_insert(payload);
                }
            }
        }
    }
}

/// What the workers and the callers share.
struct Shared {
    /// The region to join, or null.
    job: AtomicPtr<Job>,
    /// Grows with each region; what idle workers watch.
    epoch: AtomicU64,
    /// Workers between looking at `job` and leaving it; the caller waits for 0 before its job dies.
    visitors: AtomicU32,
    /// Sleeping workers.
    parked: Mutex<Vec<std::thread::Thread>>,
    n_parked: AtomicUsize,
}

struct Pool {
    shared: Arc<Shared>,
    /// Held by the caller of the running region; holds the number of workers.
    turn: Mutex<usize>,
    pid: u32,
}

static POOL: OnceLock<Pool> = OnceLock::new();

/// Runs `f` over `0..n_items` in disjoint ranges of at least `grain` items (the last may be shorter), on several threads.
///
/// Runs in place, as one range, where `n_items <= grain`, where there is one thread only, inside another region, while
/// another thread's region runs, and in a child after `fork`.
///
/// # Panics
/// Where `f` panics, with its payload, once every range that was started has ended.
pub fn parallel_for(n_items: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    share(n_items, grain, CHUNKS_PER_THREAD, &f);
}

/// Like [`parallel_for`] for items that are large already: each call of `f` gets one item.
///
/// # Panics
/// Where `f` panics.
pub fn parallel_items(n_items: usize, f: impl Fn(usize) + Sync) {
    share(n_items, 1, n_items, &|r: Range<usize>| r.for_each(&f));
}

/// Runs a body in at most so many chunks a thread.
fn share(n_items: usize, grain: usize, chunks: usize, body: Body) {
    if n_items == 0 {
        return;
    }
    let grain = grain.max(1);
    let threads = num_threads().min(n_items.div_ceil(grain));
    let chunk = n_items.div_ceil(threads * chunks).max(grain);
    if threads <= 1 || INSIDE.get() || !region(n_items, chunk, threads, body) {
        body(0..n_items);
    }
}

/// Runs a region; false, having done nothing, where the pool cannot be had.
fn region(items: usize, chunk: usize, threads: usize, body: Body) -> bool {
    let pool = POOL.get_or_init(Pool::new);
    if pool.pid != std::process::id() {
        return false;
    }
    let Ok(mut workers) = pool.turn.try_lock() else {
        return false;
    };
    let shared = &*pool.shared;
    while *workers + 1 < threads && Pool::add_worker(&pool.shared, *workers + 1) {
        *workers += 1;
    }
    // SAFETY: only the lifetime is dropped; the job ends before this function does.
    let body = unsafe { std::mem::transmute::<Body, Body<'static>>(body) };
    let job = Job {
        body,
        items,
        chunk,
        shares: threads.min(SHARES),
        claimed: Default::default(),
        seats: AtomicUsize::new(threads - 1),
        panic: Mutex::new(None),
    };
    shared
        .job
        .store(std::ptr::from_ref(&job).cast_mut(), SeqCst);
    shared.epoch.fetch_add(1, SeqCst);
    shared.wake();
    INSIDE.set(true);
    job.work(0);
    INSIDE.set(false);
    shared.job.store(std::ptr::null_mut(), SeqCst);
    shared.wait_for_visitors();
    drop(workers);
    let panic = job.panic.lock().ok().and_then(|mut slot| slot.take());
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
    true
}

impl Pool {
    fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                job: AtomicPtr::new(std::ptr::null_mut()),
                epoch: AtomicU64::new(0),
                visitors: AtomicU32::new(0),
                parked: Mutex::new(Vec::new()),
                n_parked: AtomicUsize::new(0),
            }),
            turn: Mutex::new(0),
            pid: std::process::id(),
        }
    }

    /// False if the system gives no more threads.
    fn add_worker(shared: &Arc<Shared>, home: usize) -> bool {
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name("torchlike-worker".into())
            .spawn(move || worker(&shared, home))
            .is_ok()
    }
}

impl Shared {
    /// Wakes the workers that sleep.
    fn wake(&self) {
        if self.n_parked.load(SeqCst) > 0
            && let Ok(mut parked) = self.parked.lock()
        {
            for thread in parked.drain(..) {
                thread.unpark();
            }
            self.n_parked.store(0, SeqCst);
        }
    }

    /// Waits until no worker can be looking at the job.
    fn wait_for_visitors(&self) {
        let mut turns = 0u32;
        while self.visitors.load(SeqCst) != 0 {
            turns += 1;
            // A worker that has lost its core needs ours, if there is no other.
            if turns > 20_000 {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }
}

/// A worker's life; the caller's share is the first, its own `home`.
fn worker(shared: &Shared, home: usize) {
    INSIDE.set(true);
    let mut seen = 0;
    loop {
        let mut idle_since = None;
        let mut turns = 0u32;
        loop {
            let epoch = shared.epoch.load(SeqCst);
            if epoch != seen {
                seen = epoch;
                break;
            }
            std::hint::spin_loop();
            turns += 1;
            if turns % 256 == 0 && idle_since.get_or_insert_with(Instant::now).elapsed() > SPIN {
                sleep(shared, seen);
                idle_since = None;
            }
        }
        // Announced before looking, so that a job seen here is alive until we leave.
        shared.visitors.fetch_add(1, SeqCst);
        let job = shared.job.load(SeqCst);
        if !job.is_null() {
            // SAFETY: the caller clears `job` and then waits for `visitors` to reach 0 before the job goes away.
            let job = unsafe { &*job };
            if job
                .seats
                .fetch_update(SeqCst, SeqCst, |s| s.checked_sub(1))
                .is_ok()
            {
                job.work(home);
            }
        }
        shared.visitors.fetch_sub(1, SeqCst);
    }
}

/// Parks until a region newer than `seen` begins.
fn sleep(shared: &Shared, seen: u64) {
    if let Ok(mut parked) = shared.parked.lock() {
        parked.push(std::thread::current());
        shared.n_parked.store(parked.len(), SeqCst);
    }
    // A region that began before we were listed is seen here; one that begins later unparks us.
    while shared.epoch.load(SeqCst) == seen {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_once() {
        for (threads, n) in [4, 11]
            .into_iter()
            .flat_map(|t| [0usize, 1, 2, 7, 100, 1001].map(|n| (t, n)))
        {
            set_num_threads(threads);
            for grain in [1, 3, 64] {
                let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                parallel_for(n, grain, |r| {
                    r.for_each(|i| {
                        hits[i].fetch_add(1, Relaxed);
                    })
                });
                assert!(hits.iter().all(|h| h.load(Relaxed) == 1), "{n} {grain}");
            }
        }
    }

    #[test]
    fn many_regions_nested_and_from_many_threads() {
        set_num_threads(3);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for round in 0..2000usize {
                        let sum = AtomicUsize::new(0);
                        parallel_for(100, 10, |r| {
                            parallel_for(r.len(), 1, |q| {
                                sum.fetch_add(q.len(), Relaxed);
                            });
                        });
                        assert_eq!(sum.load(Relaxed), 100, "{round}");
                        if round % 500 == 0 {
                            std::thread::sleep(Duration::from_millis(3));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn panics_reach_the_caller_and_the_pool_survives() {
        set_num_threads(2);
        for _ in 0..10 {
            let caught =
                catch_unwind(|| parallel_for(100, 1, |r| assert!(!r.contains(&57), "item 57")));
            assert!(caught.is_err());
        }
        let sum = AtomicUsize::new(0);
        parallel_for(100, 1, |r| {
            sum.fetch_add(r.len(), Relaxed);
        });
        assert_eq!(sum.load(Relaxed), 100);
    }
}
