//! Where the parts meet. The core and the door name no device and no layer; what they need of them they ask here, and nowhere else.

use crate::cuda::listing;
use crate::kernels::{self, Accelerator};
use crate::ops::core::survey::Seen;
use crate::ops::op::{Body, KernelBody, Row};
use crate::ops::{self, Call, Ret};
use crate::source::Source;
use crate::{DType, Device, Result, Scalar, Storage, Tensor, layers};

/// Host memory, as the CPU's allocator gives it.
pub(crate) use crate::cpu::alloc::Block;

/// The devices that are plugged in beside the host, if there are any in this build.
pub(crate) fn accelerator() -> Option<&'static dyn Accelerator> {
    #[cfg(feature = "cuda")]
    return Some(&crate::cuda::Gpus);
    #[cfg(not(feature = "cuda"))]
    None
}

/// Uninitialised memory on a device that is not the host.
///
/// # Errors
/// If memory cannot be had, or the device is not there.
pub(crate) fn device_memory(nbytes: usize, device: Device) -> Result<Storage> {
    kernels::accelerator()?.allocate(nbytes, device)
}

/// Copies elements on one device that is not the host.
///
/// # Errors
/// If the device reports one.
pub(crate) fn device_copy(to: &Tensor, from: &Tensor) -> Result<()> {
    kernels::accelerator()?.copy(to, from)
}

/// Zeros, by a call that whoever watches sees.
///
/// # Errors
/// If memory cannot be had.
pub(crate) fn zeros(shape: &[i64], dtype: DType, device: Device) -> Result<Tensor> {
    ops::f::Zeros::new(shape).dtype(dtype).device(device).call()
}

/// Takes a call that a layer wants to see.
///
/// # Errors
/// What the layers and the call report.
#[cold]
pub(crate) fn watched(c: Call, seen: Seen) -> Result<Ret> {
    layers::enter(c, seen)
}

/// That a call would write to what the function that is differentiated captured.
#[cold]
pub(crate) fn captured(c: &Call) -> crate::Error {
    let name = layers::modes::named(c);
    crate::err!(
        Runtime,
        "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation ({name}) that \
         would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to explicitly \
         accept the mutated Tensor(s) as inputs."
    )
}

/// The values that a meta tensor would have; it stays on meta.
///
/// # Errors
/// If they cannot be read or replayed.
pub(crate) fn peek(t: &Tensor, source: &Source) -> Result<Tensor> {
    layers::record::peek(t, source)
}

/// The only element of a tensor that has no memory, from its class.
///
/// # Errors
/// If its class does not handle calls, and what it reports.
#[cold]
pub(crate) fn element(t: &Tensor) -> Result<Scalar> {
    layers::modes::element(t)
}

/// The only element of a tensor from a dispatch mode, if one is on.
///
/// # Errors
/// What the mode reports.
pub(crate) fn shown_element(t: &Tensor) -> Result<Option<Scalar>> {
    layers::modes::shown_element(t)
}

/// Tells dispatch modes that all elements of a tensor are read.
///
/// # Errors
/// If a mode must not miss that.
pub(crate) fn reading(t: &Tensor) -> Result<()> {
    layers::modes::reading(t)
}

/// A tensor as a recipe that gives it again.
///
/// # Errors
/// If memory cannot be had.
pub(crate) fn recorded(t: &Tensor) -> Result<Tensor> {
    layers::record::constant(t)
}

/// Tells who records a program of a tensor that no call made.
pub(crate) fn made(t: &Tensor) {
    layers::program::made(t);
}

/// The elements of a fake tensor, where they are known all the same.
///
/// # Errors
/// That they depend on data.
#[cold]
pub(crate) fn known(t: &Tensor) -> Result<Tensor> {
    layers::fake::known(t)
}

/// Every GPU kernel that can be asked for, as name and CUDA text: for checks without a GPU.
#[must_use]
pub fn kernel_sources() -> Vec<(String, String)> {
    let rows = ops::table().iter().filter_map(|op| match op.def.body {
        Body::Kernel(KernelBody {
            row: Row::Map(row), ..
        }) if !row.cuda.is_empty() => Some(listing::Row {
            name: op.def.name,
            expression: row.cuda,
            arity: row.arity,
            types: row.types,
            computes: Box::new(|d| (row.kernel)(d).is_some()),
        }),
        _ => None,
    });
    listing::all(rows)
}
