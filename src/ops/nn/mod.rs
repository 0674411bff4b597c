//! The operators of `nn.functional`: activations, norms, losses, convolutions, pools.

pub mod activation;
pub mod adaptive_pool;
pub mod attention;
pub mod avg_pool;
pub mod bag;
pub mod batch_norm;
mod cell;
pub mod classes;
pub mod conv;
mod conv_sizes;
pub mod ctc;
pub mod distance;
pub mod dropout;
pub mod fold;
pub mod fractional_pool;
pub mod gated;
pub mod grid;
pub mod in_place;
pub mod likelihood;
pub mod loss;
pub mod margin_loss;
pub mod max_pool;
pub mod norm;
pub mod pool;
pub mod recurrent;
pub mod resize;
pub mod unpool;
