//! Places whose gradients are all there, in the order in which they run.

use crate::tensor::{Link, Node};
use std::cmp::Ordering;

/// A place that is ready. The newest runs first; those that are as new (all leaves) come out of a heap as it keeps them, which is
/// PyTorch's order, as its heap sifts as this library's does.
pub(super) struct Ready {
    seq: u64,
    /// Its number among those that take part.
    pub(super) at: usize,
}

impl Ready {
    pub(super) fn new(link: &Link, at: usize) -> Self {
        let seq = link.node().map_or(u64::MAX, Node::seq);
        Self { seq, at }
    }
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> Ordering {
        self.seq.cmp(&other.seq)
    }
}
