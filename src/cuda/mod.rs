//! NVIDIA GPUs. Without the `cuda` feature, or without a driver, every entry is an ordinary error.
//!
//! Nothing is linked: the driver, NVRTC and cuBLAS are opened at run time, and asked for first, as opening a missing
//! library would panic. Each device has one context and one stream that orders all its work. Kernels are text
//! ([`source`]), made from the op table and compiled for the device at hand.

pub mod source;

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
pub mod alloc;
#[cfg(feature = "cuda")]
pub mod blas;
#[cfg(feature = "cuda")]
pub mod copy;
#[cfg(feature = "cuda")]
pub mod driver;
#[cfg(feature = "cuda")]
mod launch;
#[cfg(feature = "cuda")]
pub mod map;
#[cfg(feature = "cuda")]
mod module;
#[cfg(feature = "cuda")]
pub mod random;
#[cfg(feature = "cuda")]
pub mod reduce;

#[cfg(not(feature = "cuda"))]
pub use absent::{alloc, blas, copy, driver, map, random, reduce};

use crate::{Device, Error, Result, Storage, err};

/// How many GPUs there are; 0 without a driver.
#[must_use]
pub fn device_count() -> usize {
    driver::count()
}

/// Refuses a CUDA device that is not there.
///
/// # Errors
/// PyTorch's texts for a build without CUDA, a machine without a driver, and a number that is too high.
pub fn check(device: Device) -> Result<()> {
    driver::check(device)
}

/// Uninitialised device memory.
///
/// # Errors
/// If there is no such device or no memory.
pub fn empty_storage(nbytes: usize, device: Device) -> Result<Storage> {
    alloc::empty_storage(nbytes, device)
}

/// The error for a number that no device has.
#[cold]
#[must_use]
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "the entries fail earlier")
)]
fn absent_device(device: Device) -> Error {
    err!(
        Runtime,
        "CUDA error: invalid device ordinal ({device}; there are {} CUDA devices)",
        driver::count()
    )
}

/// What can be said about a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// For people.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub total_memory: usize,
    /// Multiprocessors.
    pub processors: u32,
    /// Threads a multiprocessor holds.
    pub threads: u32,
}

/// What can be said about a device.
///
/// # Errors
/// If it is not there.
pub fn properties(device: Device) -> Result<Properties> {
    driver::check(device)?;
    let g = driver::gpu(device)?;
    Ok(Properties {
        name: g.name()?,
        capability: g.arch,
        total_memory: g.total_memory()?,
        processors: g.processors,
        threads: g.threads,
    })
}
