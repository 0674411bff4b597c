//! What kernels of the host take besides their results, told to who records a program: a fake mode runs no kernel, and asks it.

use crate::cpu::room::Room;
use crate::ops::core::op::{Exec, Traits};
use crate::{Result, Tensor};
use std::cell::RefCell;

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
    static TAKEN: RefCell<Option<Taken>> = const { RefCell::new(None) };
}

/// Runs `f`, which makes a call, and gives what its kernels would take.
pub fn watched<R>(f: impl FnOnce() -> R) -> (R, Taken) {
    let before = TAKEN.replace(Some(Taken::default()));
    let result = f();
    let taken = TAKEN.replace(before).unwrap_or_default();
    (result, taken)
}

/// Notes what a kernel would take to fill results.
pub(super) fn note(traits: &Traits, exec: &Exec, outs: &[Tensor]) -> Result<()> {
    TAKEN.with_borrow_mut(|taken| match taken {
        Some(taken) => {
            taken.unknown |= traits.unmeasured;
            taken.room.within(|room| (exec.scratch)(outs, room))
        }
        None => Ok(()),
    })
}

/// Notes a result that is made aside, and copied to where it belongs at the end of the call.
pub(super) fn aside(made: &Tensor) -> Result<()> {
    TAKEN.with_borrow_mut(|taken| match taken {
        Some(taken) => taken.room.empty(made.shape(), made.dtype()).map(drop),
        None => Ok(()),
    })
}
