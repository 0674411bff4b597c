//! torchlike: a tensor library in which every meta tensor knows how to become real.
//!
//! A [`Tensor`] is a shared [`Storage`] seen through a shape, strides, an offset and a [`DType`]. A storage is on a
//! [`Device`]: on the CPU, on a GPU, or on `meta`, where it has a size and perhaps a [`source`] but no bytes.
//! Operators are values in a table ([`ops`]); each has one layout rule, which runs first on every device.
//!
//! | module | what |
//! |---|---|
//! | [`dims`], [`dtype`], [`device`], [`scalar`] | plain data |
//! | [`storage`], [`tensor`], [`source`] | tensors and where their data comes from |
//! | [`parts`] | sparse and quantised tensors |
//! | [`ops`] | the operator table and the dispatcher |
//! | [`autograd`] | gradients |
//! | [`layers`] | recording, and whatever else watches calls |
//! | [`kernels`] | kernels by where the data is |
//! | [`cpu`], [`cuda`] | the kernels |
//! | [`io`] | checkpoints of every format |
//! | [`random`] | PyTorch's random streams |
//! | [`dist`] | how tensors lie on meshes of devices |

#![cfg_attr(not(feature = "python"), deny(unsafe_op_in_unsafe_fn))]

pub mod autograd;
#[cfg_attr(
    not(feature = "python"),
    allow(dead_code, reason = "the binding transforms functions")
)]
mod captured;
#[cfg(feature = "cli")]
pub mod cli;
mod cpu;
mod cuda;
pub mod device;
pub mod dims;
pub mod dist;
pub mod dtype;
pub mod error;
pub mod fake;
pub mod io;
#[cfg_attr(
    not(feature = "python"),
    allow(dead_code, unused_imports, reason = "the binding uses all of it")
)]
mod kernels;
pub mod layers;
pub mod ledger;
mod mixed;
pub mod mode;
#[cfg_attr(
    not(feature = "python"),
    allow(dead_code, unused_imports, reason = "the binding uses all of it")
)]
pub mod ops;
pub mod parts;
pub mod plan;
pub mod program;
#[cfg(feature = "python")]
mod py;
pub mod random;
pub mod scalar;
pub mod source;
pub mod storage;
pub mod tensor;
pub mod warning;
mod wiring;

/// What of the host's kernels is useful alone: products, and the workers that share them; and what its allocator counts.
pub mod host {
    pub use crate::cpu::alloc::{empty_cache, reset_peak, stats};
    pub use crate::cpu::{gemm, pool};
}

pub use device::{Device, DeviceKind};
pub use dims::{Dims, MemoryFormat};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use io::{Loaded, load, save};
pub use layers::{materialize, meta_init};
pub(crate) use ops::core::lookup::op;
pub use ops::f;
pub use scalar::{Element, Scalar};
pub use source::Source;
pub use storage::Storage;
pub use tensor::Tensor;
pub use wiring::kernel_sources;
