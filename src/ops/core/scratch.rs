//! What kernels of the host take besides their results, told to who records a program: a fake mode runs no kernel, and asks it.

use crate::cpu::room::Room;
use crate::ops::core::op::{Exec, Traits};
use crate::{Result, Tensor};
use std::cell::{Cell, RefCell};

/// What one call takes.
#[derive(Debug, Default)]
pub struct Taken {
    room: Room,
    unknown: bool,
}

impl Taken {
    /// The blocks at the moment when they were most, in bytes.
    #[must_use]
    pub fn into_blocks(self) -> Vec<usize> {
        self.room.into_blocks()
    }

    /// True if a kernel took memory of which no function says how much.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }
}

thread_local! {
    /// Whether somebody wants to know.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// What was noted; mostly there is nothing.
    static TAKEN: RefCell<Option<Box<Taken>>> = const { RefCell::new(None) };
}

/// What was watched before.
pub struct Before(bool, Option<Box<Taken>>);

/// From now on it is noted what kernels would take.
#[must_use]
pub fn begin() -> Before {
    Before(WATCHED.replace(true), TAKEN.take())
}

/// What was noted since; what was watched before is watched again.
pub fn end(before: Before) -> Option<Box<Taken>> {
    WATCHED.set(before.0);
    TAKEN.replace(before.1)
}

/// Adds to what was noted, if somebody wants to know.
fn add(f: impl FnOnce(&mut Taken) -> Result<()>) -> Result<()> {
    match WATCHED.get() {
        true => TAKEN.with_borrow_mut(|taken| f(taken.get_or_insert_default())),
        false => Ok(()),
    }
}

/// Notes what a kernel would take to fill results.
pub(super) fn note(traits: &Traits, exec: &Exec, outs: &[Tensor]) -> Result<()> {
    add(|taken| {
        taken.unknown |= traits.unmeasured;
        taken.room.within(|room| (exec.scratch)(outs, room))
    })
}

/// Notes a result that is made aside, and copied to where it belongs at the end of the call.
pub(super) fn aside(made: &Tensor) -> Result<()> {
    add(|taken| taken.room.empty(made.shape(), made.dtype()).map(drop))
}
