//! Launches: arguments are packed on the stack, one pointer each.

#![allow(unsafe_code, reason = "starts kernels")]

use super::driver::{Gpu, failed};
use super::module::Function;
use crate::Result;
use cudarc::driver::result;
use std::ffi::c_void;

/// Threads of a block, everywhere.
pub const BLOCK: u32 = 256;

/// Starts a kernel on the device's stream. `args` point to the values of its parameters.
///
/// # Safety
/// The values have to be those that the kernel's parameters name, device addresses valid for what it does with them.
///
/// # Errors
/// If the driver refuses.
pub unsafe fn launch(
    gpu: &Gpu,
    f: Function,
    grid: (u32, u32),
    args: &mut [*mut c_void],
) -> Result<()> {
    // SAFETY: the caller's promise; the function belongs to a module that is never unloaded.
    unsafe { result::launch_kernel(f.0, (grid.0, grid.1, 1), (BLOCK, 1, 1), 0, gpu.stream, args) }
        .map_err(|e| failed("cuLaunchKernel", e))
}

/// The address of a value, for [`launch`].
pub fn arg<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
