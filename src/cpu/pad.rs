//! Padding.

use super::adjoint::Adjoint;
use super::{copy, index, lines};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, dims};

/// Copies `t`, cut where pads are negative, into the middle of `out`, and `value` around it. Pads come in pairs from the
/// last dimension.
///
/// # Errors
/// If there is no conversion.
pub fn constant(out: &Tensor, t: &Tensor, pad: &[i64], value: Scalar) -> Result<()> {
    if pad.iter().any(|&p| p > 0) {
        super::fill(out, value)?;
    }
    let inverse: Dims = pad.iter().map(|p| -p).collect();
    let (inner, rest) = (cut(out, &inverse), cut(t, pad));
    if inner.numel() == 0 {
        return Ok(());
    }
    copy::copy(&inner, &rest)
}

/// What negative pads leave.
fn cut(t: &Tensor, pad: &[i64]) -> Tensor {
    let mut out = t.clone();
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        let (left, right) = (-pair[0].min(0), -pair[1].min(0));
        out = out.narrowed(d, left, out.shape()[d] - left - right);
    }
    out
}

/// Fills `out` from `t`: along each dimension with a table, element `i` comes from `table[i]`.
///
/// # Errors
/// If memory cannot be had.
pub fn from_tables(out: &Tensor, t: &Tensor, tables: &[Option<Vec<usize>>]) -> Result<()> {
    let src = copy::dense(t, t.dtype())?;
    if out.is_contiguous() {
        index::pick_grid(out, &src, tables);
        return Ok(());
    }
    let dst = Tensor::empty(out.shape(), out.dtype(), Device::CPU)?;
    index::pick_grid(&dst, &src, tables);
    copy::copy(out, &dst)
}

/// The gradient of [`from_tables`]: each element of `out` is the sum of those of `grad` that it went to.
///
/// # Errors
/// If memory cannot be had.
pub fn back_from_tables(out: &Tensor, grad: &Tensor, tables: &[Option<Vec<usize>>]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let dtype = match out.dtype() {
        d if d.is_complex() && d != DType::C32 => d,
        DType::C32 => DType::C64,
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let mut sum = lines::reals(&copy::dense(grad, dtype)?);
    for (d, table) in tables.iter().enumerate() {
        if let Some(table) = table {
            let size = out.shape()[d] as usize;
            sum = Adjoint::of_places(table, size).along(&sum, d)?;
        }
    }
    let (shape, strides) = (out.shape().clone(), dims::contiguous_strides(out.shape()));
    let offset = sum.offset() / if dtype.is_complex() { 2 } else { 1 };
    copy::copy(out, &sum.reinterpret(dtype, shape, strides, offset))
}
