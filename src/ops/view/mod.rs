//! Other looks at the same storage.

pub mod complex;
pub mod part;
pub mod shape;
pub mod split;
