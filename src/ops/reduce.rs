//! Reductions.

use super::op::OpDef;

/// What tells one reduction from another.
pub struct ReduceRow {}

/// The family's rows.
pub static OPS: &[OpDef] = &[];
