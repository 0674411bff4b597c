//! Kernels that exist on the host and on a GPU, chosen by where the data is.

use crate::cpu::reduce::{Kind, Post};
use crate::{DType, DeviceKind, Result, Scalar, Tensor, cpu, cuda};

#[inline]
fn on_gpu(t: &Tensor) -> bool {
    t.device().kind == DeviceKind::Cuda
}

/// Sets every element.
///
/// # Errors
/// If a kernel cannot be had.
pub fn fill(t: &Tensor, value: Scalar) -> Result<()> {
    if on_gpu(t) {
        cuda::map::fill_with(t, value)
    } else {
        cpu::fill(t, value)
    }
}

/// Copies `src` (broadcast, converted) into `dst` on the same device.
///
/// # Errors
/// If there is no conversion.
pub fn copy(dst: &Tensor, src: &Tensor) -> Result<()> {
    if on_gpu(dst) || on_gpu(src) {
        cuda::copy::copy_into(dst, src)
    } else {
        cpu::copy::copy(dst, src)
    }
}

/// A copy in another dtype.
///
/// # Errors
/// If there is no conversion.
pub fn converted(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if on_gpu(t) {
        cuda::copy::dense(t, dtype)
    } else {
        cpu::copy::converted(t, dtype)
    }
}

/// Magnitudes for a norm: GPU folds take complex elements as they are.
///
/// # Errors
/// If memory cannot be had.
pub fn magnitudes(t: &Tensor) -> Result<Tensor> {
    if on_gpu(t) {
        Ok(t.clone())
    } else {
        cpu::reduce::magnitudes(t)
    }
}

/// Folds dimensions; see [`cpu::reduce::run_kind`].
///
/// # Errors
/// If there is no fold of the dtype.
pub fn run_kind(
    kind: Kind,
    out: &Tensor,
    input: &Tensor,
    dims: &[usize],
    p: f64,
    post: Post,
) -> Result<()> {
    let run = if on_gpu(input) {
        cuda::reduce::run_kind
    } else {
        cpu::reduce::run_kind
    };
    run(kind, out, input, dims, p, post)
}

/// Extremes and their positions; see [`cpu::extreme::arg_extreme`].
///
/// # Errors
/// If memory cannot be had.
pub fn arg_extreme(
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dims: &[usize],
    max: bool,
) -> Result<()> {
    let run = if on_gpu(input) {
        cuda::reduce::arg_extreme
    } else {
        cpu::extreme::arg_extreme
    };
    run(values, indices, input, dims, max)
}
