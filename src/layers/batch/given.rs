//! Along which dimension of a batch its examples lie, where that is not the first: rules of the user's are told.

use crate::{Dims, Tensor};
use std::cell::RefCell;

/// An example that was taken out of sight along a dimension: its level, how it lies, and the dimension.
struct Given {
    level: u32,
    storage: usize,
    offset: i64,
    shape: Dims,
    strides: Dims,
    dim: i64,
}

thread_local! {
    static GIVEN: RefCell<Vec<Given>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the examples of a level, of which `t` is one, lie along dimension `dim`.
pub(super) fn note(t: &Tensor, level: u32, dim: i64) {
    let given = Given {
        level,
        storage: t.storage().id(),
        offset: t.offset(),
        shape: t.shape().clone(),
        strides: t.strides().clone(),
        dim,
    };
    GIVEN.with_borrow_mut(|all| all.push(given));
}

/// Along which dimension the examples of a level lie: where they were given, or the first.
#[must_use]
pub fn dim(t: &Tensor, level: u32) -> i64 {
    let is_it = |g: &&Given| {
        (g.level, g.storage, g.offset) == (level, t.storage().id(), t.offset())
            && g.shape == *t.shape()
            && g.strides == *t.strides()
    };
    GIVEN.with_borrow(|all| all.iter().rev().find(is_it).map_or(0, |g| g.dim))
}

/// Forgets what was noted of a level and those opened since.
pub(super) fn forget(level: u32) {
    GIVEN.with_borrow_mut(|all| all.retain(|g| g.level < level));
}
