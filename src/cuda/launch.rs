//! Launches: arguments are packed on the stack, one pointer each.

#![allow(unsafe_code, reason = "starts kernels")]

use super::driver::{self, Gpu, failed};
use super::module::Function;
use crate::kernels::job::Job;
use crate::{Device, Result};
use cudarc::driver::{result, sys};
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
    // SAFETY: the caller's promise.
    unsafe { launch_with(gpu, f, grid, (BLOCK, 0), args) }
}

/// Bytes of shared memory that a block may ask for without saying so before.
const USUAL: u32 = 48 << 10;

/// As [`launch`], with so many threads and bytes of shared memory in a block.
///
/// # Safety
/// As for [`launch`].
unsafe fn launch_with(
    gpu: &Gpu,
    f: Function,
    grid: (u32, u32),
    (threads, shared): (u32, u32),
    args: &mut [*mut c_void],
) -> Result<()> {
    if shared > USUAL {
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a module that is never unloaded.
        unsafe { result::function::set_function_attribute(f.0, most, shared as i32) }
            .map_err(|e| failed("cuFuncSetAttribute", e))?;
    }
    // SAFETY: the caller's promise; the function belongs to a module that is never unloaded.
    unsafe {
        result::launch_kernel(
            f.0,
            (grid.0, grid.1, 1),
            (threads, 1, 1),
            shared,
            gpu.stream,
            args,
        )
    }
    .map_err(|e| failed("cuLaunchKernel", e))
}

/// Starts a job.
///
/// # Errors
/// If its kernel cannot be compiled or started.
pub fn start(job: &mut Job, device: Device, blocks: u32) -> Result<()> {
    let gpu = driver::gpu(device)?;
    let f = super::module::function(gpu, &job.head, job.kernel.file, job.kernel.name)?;
    let mut args = job.arguments(gpu.flag.device());
    // SAFETY: launchers pass what their kernels' parameters name, and layouts that lie within the tensors that a rule has checked; the
    // stream's order keeps their memory until the kernel is done.
    unsafe { launch_with(gpu, f, (blocks, 1), (job.threads, job.shared), &mut args) }
}

/// The address of a value, for [`launch`].
pub fn arg<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
