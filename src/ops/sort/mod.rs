//! Sorting, searching and counting.

pub mod histogram;
pub mod order;
pub mod search;
