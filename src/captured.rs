//! Functions that are differentiated as a whole, and which storages they were neither given nor made: writes to those are refused.

use crate::{Storage, Tensor};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A function that runs.
struct Level {
    number: u64,
    /// The storages that it was given, by their ids.
    given: Vec<usize>,
    /// Whether writes were looked at before.
    outer: bool,
    /// Whether its calls are recorded, and not pushed forward.
    records: bool,
}

static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// The number of the innermost function, which storages made now keep; numbers only grow, 0 stands for none.
#[inline]
#[must_use]
pub fn number() -> u64 {
    NUMBER.get()
}

/// Whether writes are looked at.
#[inline]
#[must_use]
pub fn is_looking() -> bool {
    LOOKING.get()
}

/// Looks at writes from now on, or does not; gives what was so before.
pub fn look(on: bool) -> bool {
    LOOKING.replace(on && NUMBER.get() != 0)
}

/// Runs `f`, which is no part of the function, without looking at writes.
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            LOOKING.set(self.0);
        }
    }
    let _restore = Restore(look(false));
    f()
}

/// How many functions run, one within the other.
#[must_use]
pub fn depth() -> usize {
    LEVELS.with_borrow(Vec::len)
}

/// Whether one of the functions that run has its calls recorded.
#[must_use]
pub fn records() -> bool {
    LEVELS.with_borrow(|l| l.iter().any(|level| level.records))
}

/// A function begins, whose calls are recorded or pushed forward.
pub fn enter(records: bool) {
    let number = LAST.fetch_add(1, Relaxed) + 1;
    let outer = LOOKING.replace(true);
    LEVELS.with_borrow_mut(|l| {
        l.push(Level {
            number,
            given: Vec::new(),
            outer,
            records,
        });
    });
    NUMBER.set(number);
}

/// The innermost function ends.
pub fn leave() {
    let (number, looking) = LEVELS.with_borrow_mut(|l| {
        let outer = l.pop().is_some_and(|level| level.outer);
        (l.last().map_or(0, |level| level.number), outer)
    });
    NUMBER.set(number);
    LOOKING.set(looking);
}

/// The innermost function is given a storage.
pub fn give(storage: &Storage) {
    LEVELS.with_borrow_mut(|l| {
        if let Some(level) = l.last_mut() {
            level.given.push(storage.id());
        }
    });
}

/// Whether the innermost function has a tensor from elsewhere.
#[cold]
#[must_use]
pub fn holds(t: &Tensor) -> bool {
    LEVELS.with_borrow(|l| {
        l.last().is_some_and(|level| {
            t.storage().born() < level.number && !level.given.contains(&t.storage().id())
        })
    })
}
