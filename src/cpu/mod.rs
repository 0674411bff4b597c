//! The CPU's numeric engines: worker pool, vector mathematics, matrix products, reductions.

pub mod pool;
