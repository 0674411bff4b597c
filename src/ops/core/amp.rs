//! What rows compute in under automatic mixed precision.

/// What a row computes in while autocast is on for the device of its tensors; see `layers::autocast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// The types that its arguments have.
    Kept,
    /// The low precision that autocast is on with.
    Low,
    /// Single precision.
    Single,
    /// Single precision, by its parameter `dtype` if that is not given.
    Result,
    /// The widest type among the arguments.
    Widest,
    /// It is refused: what it gives in low precision is of no use, and its gradient less so.
    Refused,
}

/// What a row computes in, by device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amp {
    /// On the CPU.
    pub cpu: Cast,
    /// On GPUs.
    pub cuda: Cast,
}

impl Amp {
    /// Of rows that say nothing.
    pub const KEPT: Self = Self {
        cpu: Cast::Kept,
        cuda: Cast::Kept,
    };
}
