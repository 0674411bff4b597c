//! The CPU's numeric engines: worker pool, vector mathematics, matrix products, reductions.

pub mod gemm;
pub mod pool;
pub mod simd;
pub mod vmath;
