//! Host kernels. Each gets allocated results and may not change a shape.

pub mod activation;
pub mod alloc;
pub mod attention;
pub mod bag;
pub mod conv;
pub mod copy;
pub mod cross;
pub mod ctc;
pub mod dense;
pub mod distinct;
pub mod extreme;
pub mod folds;
pub mod gemm;
pub mod halves;
pub mod histogram;
pub mod index;
pub mod iter;
pub mod join;
pub mod lanes;
pub mod lines;
pub mod loss;
pub mod map;
pub mod math;
pub mod matrices;
pub mod matrix;
mod memory;
pub mod moments;
pub mod narrow;
pub mod nest;
pub mod norm;
pub mod pad;
pub mod parts;
pub mod past;
pub mod pool;
pub mod pooling;
pub mod products;
pub mod quantile;
pub mod random;
pub mod reduce;
pub mod repeat;
pub mod resize;
pub mod rows;
#[cfg(target_arch = "x86_64")]
mod runs;
pub mod scan;
pub mod select;
pub mod simd;
pub mod softmax;
pub mod sort;
pub mod special;
pub mod sweep;
pub mod taps;
pub mod transpose;
pub mod view;
pub mod triangle;
pub mod vmath;
pub mod vmath64;

pub(crate) use memory::any_zero;
pub use memory::{
    fill, for_each_mut, read_scalar, read_slice, slice, slice_mut, write_scalar, write_slice,
};
