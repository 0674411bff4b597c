//! Memory of tensor objects that are gone, for those that are made next.

#![allow(
    unsafe_code,
    reason = "memory of a type that is made by hand is kept under the interpreter's lock"
)]

use super::class::{is_fake_class, is_tensor_class};
use pyo3::ffi::{self, PyObject};
use std::cell::Cell;
use std::ptr::null_mut;

/// How many blocks of instances that are gone wait for new ones.
const SPARE: usize = 64;

/// Memory of plain tensors that are gone.
pub struct Blocks {
    blocks: [Cell<*mut PyObject>; SPARE],
    count: Cell<usize>,
}

// SAFETY: only touched with the interpreter lock held.
unsafe impl Sync for Blocks {}

/// Of `Tensor`.
pub static BLOCKS: Blocks = Blocks::new();

/// As `BLOCKS`, of fake tensors.
pub static FAKE_BLOCKS: Blocks = Blocks::new();

impl Blocks {
    const fn new() -> Self {
        Self {
            blocks: [const { Cell::new(null_mut()) }; SPARE],
            count: Cell::new(0),
        }
    }

    /// Those of a class, if its instances are made again.
    #[inline]
    pub fn of(class: *mut ffi::PyTypeObject) -> Option<&'static Self> {
        if is_tensor_class(class) {
            Some(&BLOCKS)
        } else if is_fake_class(class) {
            Some(&FAKE_BLOCKS)
        } else {
            None
        }
    }

    /// A block, if one waits.
    #[inline]
    pub fn take(&self) -> Option<*mut PyObject> {
        let last = self.count.get().checked_sub(1)?;
        self.count.set(last);
        self.blocks.get(last).map(Cell::get)
    }

    /// Keeps a block, if there is room.
    #[inline]
    pub fn keep(&self, block: *mut PyObject) -> bool {
        let count = self.count.get();
        let Some(place) = self.blocks.get(count) else {
            return false;
        };
        place.set(block);
        self.count.set(count + 1);
        true
    }
}
