//! NVIDIA GPUs. Without the `cuda` feature, or without a driver, every entry is an ordinary error.

pub mod copy;
pub mod map;
pub mod source;

use crate::{Device, Result, Storage, bail};

/// How many GPUs there are.
#[must_use]
pub fn device_count() -> usize {
    0
}

/// Refuses a CUDA device that is not there.
///
/// # Errors
/// PyTorch's `AssertionError` of a build without CUDA.
pub fn check(_device: Device) -> Result<()> {
    bail!(Assertion, "Torch not compiled with CUDA enabled")
}

/// Uninitialised device memory.
///
/// # Errors
/// If there is no such device.
pub fn empty_storage(_nbytes: usize, device: Device) -> Result<Storage> {
    check(device)?;
    Ok(Storage::meta(0))
}
