//! Tensors from nothing: constants, ranges, windows.

pub mod factory;
pub mod periodic;
pub mod range;
pub mod triangle;
pub mod window;
