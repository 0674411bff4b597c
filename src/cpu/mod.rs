//! Host kernels. Each gets allocated results and may not change a shape.
//!
//! Kernels trust their arguments, so only what is useful alone and checks them is public.

pub(crate) mod activation;
pub(crate) mod adjoint;
pub(crate) mod alloc;
pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod attention_room;
pub(crate) mod bag;
pub(crate) mod batch;
pub(crate) mod batch_backward;
pub(crate) mod bilinear;
mod columns;
pub(crate) mod complex;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod cross;
pub(crate) mod ctc;
pub(crate) mod dense;
pub(crate) mod distance_backward;
pub(crate) mod distinct;
pub(crate) mod eigen;
pub(crate) mod embedding_backward;
pub(crate) mod extreme;
pub(crate) mod fft;
pub(crate) mod folds;
pub(crate) mod gamma_grad;
pub mod gemm;
pub(crate) mod grid;
pub(crate) mod groups;
pub(crate) mod halves;
pub(crate) mod histogram;
pub(crate) mod incomplete_gamma;
pub(crate) mod indefinite;
pub(crate) mod index;
pub(crate) mod iter;
pub(crate) mod join;
pub(crate) mod lanes;
mod layout;
pub(crate) mod lines;
pub(crate) mod loss;
pub(crate) mod loss_backward;
pub(crate) mod lstm;
pub mod map;
pub(crate) mod math;
pub(crate) mod matrices;
pub(crate) mod matrix;
mod memory;
pub(crate) mod moments;
pub(crate) mod narrow;
pub(crate) mod neighbour;
pub(crate) mod nest;
pub(crate) mod norm;
pub(crate) mod norm_backward;
pub(crate) mod pad;
pub(crate) mod parts;
pub(crate) mod past;
mod planes;
pub(crate) mod polynomials;
pub mod pool;
pub(crate) mod pooling;
pub(crate) mod pooling_backward;
pub(crate) mod pooling_room;
pub(crate) mod products;
pub(crate) mod quantile;
pub(crate) mod ramp;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod repeat;
pub(crate) mod resize;
pub mod room;
pub(crate) mod rows;
#[cfg(target_arch = "x86_64")]
mod runs;
pub(crate) mod scan;
pub(crate) mod select;
pub(crate) mod simd;
pub(crate) mod softmax;
pub(crate) mod softmax_backward;
pub(crate) mod sort;
pub(crate) mod special;
pub(crate) mod stored;
pub(crate) mod sweep;
pub(crate) mod taps;
pub(crate) mod transpose;
pub(crate) mod triangle;
mod unordered;
pub(crate) mod update;
pub(crate) mod view;
pub mod vmath;
pub mod vmath64;

pub(crate) use memory::any_zero;
pub(crate) use memory::{
    fill, for_each_mut, normal, read_scalar, read_slice, slice, slice_mut, truths, write_scalar,
    write_slice,
};
