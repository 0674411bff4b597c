//! How rows that see one example run on whole batches of them.

use crate::Result;
use crate::ops::core::args::Args;
use crate::ops::core::ret::Ret;

/// How a row that sees one example runs on a batch of them; see `layers::batch`. Arguments are whole batches then, whose first dimensions
/// are out of the row's sight.
#[derive(Clone, Copy, Debug)]
pub enum Batch {
    /// Pointwise rows, and those whose arguments name dimensions, as they are; else one call an example.
    Derived,
    /// Operands are aligned as in pointwise rows, and the first has the shape of the result.
    Pointwise,
    /// The row takes batches in its first dimensions.
    Lead,
    /// The row takes batches in its first dimensions, which operands broadcast: how many dimensions each has of its own.
    Broadcasting(&'static [usize]),
    /// The examples join the first dimension: results are made of the last so many dimensions and one before.
    Fold(usize),
    /// The arguments in these places (bits) are the same for all examples.
    Shared(u16),
    /// The result has a dimension more, which the row names.
    Inserting,
    /// The row takes all examples at once, and its result is the same for all.
    Together,
    /// Another call; nothing: one call an example.
    As(fn(&Args, Hidden) -> Result<Option<Ret>>),
    /// One call an example.
    Each,
    /// Refused: the sizes of results differ from example to example.
    Unknown,
}

/// What is out of sight of a row in whole batches.
#[derive(Clone, Copy, Debug)]
pub struct Hidden {
    /// How many dimensions; they come first.
    pub k: usize,
    /// The arguments that have them (bits); the others are the same for all examples.
    pub differ: u16,
}

impl Hidden {
    /// Whether an argument has the dimensions out of sight.
    #[must_use]
    pub fn differs(self, i: usize) -> bool {
        self.differ & 1 << i != 0
    }

    /// How many dimensions of an argument are out of sight.
    #[must_use]
    pub fn hides(self, i: usize) -> usize {
        if self.differs(i) { self.k } else { 0 }
    }
}
