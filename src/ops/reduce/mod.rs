//! Operators that fold elements together: sums, extremes, statistics, scans.

pub mod extreme;
pub mod gradient;
pub mod hash;
pub mod moments;
pub mod order;
pub mod rule;
pub mod scan;
pub mod segments;
pub mod statistics;
pub mod sums;
