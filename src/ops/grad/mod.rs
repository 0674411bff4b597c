//! The backward operators of rows elsewhere: what the formulas of gradients call.

pub mod index;
pub mod layout;
pub mod pointwise;
pub mod products;
pub mod reduce;
pub mod special;
