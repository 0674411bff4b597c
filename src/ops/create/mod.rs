//! Tensors from nothing: constants, ranges, windows.

pub mod factory;
pub mod range;
pub mod window;
