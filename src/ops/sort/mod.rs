//! Sorting, searching and counting.

pub mod histogram;
pub mod histogram_nd;
pub mod order;
pub mod search;
pub mod unique;
