//! Operators that work element by element.

pub mod binary;
pub mod bounds;
pub mod compare;
pub mod factors;
pub mod parts;
mod powers;
pub mod rows;
pub mod rule;
pub mod samples;
pub mod special;
pub mod unary;
