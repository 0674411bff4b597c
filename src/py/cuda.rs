//! What `torchlike.cuda` is made of.

use super::convert::PyGenerator;
use super::types::PyDevice;
use crate::kernels::{self, accelerator, single_precision};
use crate::{Device, device, wiring};
use pyo3::prelude::*;

fn at(index: i8) -> Device {
    Device::cuda(index).canonical()
}

/// How many GPUs there are; 0 without a driver.
#[pyfunction]
fn _cuda_device_count() -> usize {
    kernels::device_count()
}

/// Whether this build can use GPUs, if there are any.
#[pyfunction]
fn _cuda_built() -> bool {
    cfg!(feature = "cuda")
}

/// Fails with PyTorch's text if there is no such GPU.
#[pyfunction]
fn _cuda_check(index: i8) -> PyResult<()> {
    Ok(accelerator()?.check(at(index))?)
}

/// True once a GPU was used.
#[pyfunction]
fn _cuda_is_initialized() -> bool {
    wiring::accelerator().is_some_and(|a| a.is_open())
}

/// `(name, (major, minor), bytes, multiprocessors, threads of a multiprocessor)`.
#[pyfunction]
fn _cuda_properties(index: i8) -> PyResult<(String, (i32, i32), usize, u32, u32)> {
    let p = accelerator()?.properties(at(index))?;
    Ok((
        p.name,
        p.capability,
        p.total_memory,
        p.processors,
        p.threads,
    ))
}

/// `(free, total)` bytes.
#[pyfunction]
fn _cuda_memory(index: i8) -> PyResult<(usize, usize)> {
    Ok(accelerator()?.memory(at(index))?)
}

/// `(allocated, reserved, most allocated)` bytes of our own.
#[pyfunction]
fn _cuda_memory_stats(index: i8) -> (usize, usize, usize) {
    let index = at(index).index as usize;
    let s = wiring::accelerator().map_or_else(kernels::Stats::default, |a| a.stats(index));
    (s.allocated, s.reserved, s.peak)
}

/// Gives cached memory back to the driver.
#[pyfunction]
fn _cuda_empty_cache(py: Python<'_>) -> PyResult<()> {
    match wiring::accelerator() {
        Some(a) => Ok(py.detach(|| a.empty_cache())?),
        None => Ok(()),
    }
}

/// Waits for a GPU.
#[pyfunction]
fn _cuda_synchronize(py: Python<'_>, index: i8) -> PyResult<()> {
    let a = accelerator()?;
    Ok(py.detach(|| a.synchronize(at(index)))?)
}

/// Seeds the generators of all GPUs.
#[pyfunction]
fn _cuda_seed(seed: u64) {
    if let Some(a) = wiring::accelerator() {
        a.seed(seed);
    }
}

/// The generator that draws of a GPU without one go to.
#[pyfunction]
fn _cuda_generator(index: i8) -> PyResult<PyGenerator> {
    Ok(PyGenerator(accelerator()?.generator(at(index))?))
}

/// The number of the GPU that this thread means when it names none.
#[pyfunction]
fn _cuda_current() -> i8 {
    device::current()
}

/// Makes a GPU the one that this thread means when it names none.
#[pyfunction]
fn _cuda_set_current(index: i8) -> PyResult<()> {
    let device = at(index);
    accelerator()?.check(device)?;
    device::set_current(device.index);
    Ok(())
}

/// The number in a CUDA device, -1 if it has none; `None` for other devices.
#[pyfunction]
fn _cuda_index(device: &PyDevice) -> Option<i8> {
    let device = device.known().ok()?;
    (device.kind == crate::DeviceKind::Cuda).then_some(device.index)
}

/// Whether products (or convolutions) of single precision may be rounded to fewer bits on GPUs; sets it first, if it is given.
#[pyfunction]
#[pyo3(signature = (convolutions, allow=None))]
fn _cuda_tf32(convolutions: bool, allow: Option<bool>) -> bool {
    match (convolutions, allow) {
        (true, Some(allow)) => single_precision::keep_in_convolutions(!allow),
        (false, Some(allow)) => single_precision::keep_in_products(!allow),
        _ => {}
    }
    if convolutions {
        !single_precision::convolutions()
    } else {
        !single_precision::products()
    }
}

/// Every kernel that can be asked for, as `(name, CUDA text)`: for checks without a GPU.
#[pyfunction]
fn _cuda_sources() -> Vec<(String, String)> {
    wiring::kernel_sources()
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_cuda_built _cuda_device_count _cuda_check _cuda_is_initialized _cuda_properties _cuda_memory _cuda_memory_stats _cuda_empty_cache
        _cuda_synchronize _cuda_seed _cuda_generator _cuda_current _cuda_set_current _cuda_index _cuda_tf32 _cuda_sources);
    Ok(())
}
