//! Operators that fold elements together: sums, extremes, statistics, scans.

pub mod extreme;
pub mod order;
pub mod scan;
pub mod statistics;
pub mod sums;
