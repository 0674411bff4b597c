//! torchlike: a tensor library in which every meta tensor knows how to become real.

pub mod cpu;
pub mod device;
pub mod dtype;
pub mod error;
pub mod random;
pub mod scalar;

pub use device::{Device, DeviceKind};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use scalar::{Element, Scalar};
