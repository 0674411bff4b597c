//! NVIDIA GPUs; without the `cuda` feature, the text of their kernels alone.
//!
//! Nothing is linked: the driver, NVRTC and cuBLAS are opened at run time, and asked for first, as opening a missing
//! library would panic. Each device has one context and one stream that orders all its work. Kernels are text
//! ([`source`]), made from expressions and compiled for the device at hand.

pub mod listing;
pub mod source;

#[cfg(feature = "cuda")]
mod alloc;
#[cfg(feature = "cuda")]
mod blas;
#[cfg(feature = "cuda")]
mod copy;
#[cfg(feature = "cuda")]
mod devices;
#[cfg(feature = "cuda")]
mod dnn;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod fft;
#[cfg(feature = "cuda")]
mod launch;
#[cfg(feature = "cuda")]
mod map;
#[cfg(feature = "cuda")]
mod module;
#[cfg(feature = "cuda")]
mod random;
#[cfg(feature = "cuda")]
mod reduce;

#[cfg(feature = "cuda")]
pub use devices::Gpus;
