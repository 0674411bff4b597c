//! Other looks at the same storage.

pub mod complex;
pub mod order;
pub mod part;
pub mod shape;
pub mod split;
