//! Padding.

use super::adjoint::Adjoint;
use super::{copy, index, lines};
use crate::{DType, Dims, Result, Scalar, Tensor, dims};
use smallvec::SmallVec;

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

/// The order of dimensions in which a tensor lies, the outermost first.
fn order(t: &Tensor) -> SmallVec<[usize; 8]> {
    let mut order: SmallVec<[usize; 8]> = (0..t.ndim()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(t.strides()[d]));
    order
}

/// Tables in another order of dimensions.
fn ordered(tables: &[Option<Vec<usize>>], order: &[usize]) -> Vec<Option<Vec<usize>>> {
    order.iter().map(|&d| tables[d].clone()).collect()
}

/// Fills `out` from `t`: along each dimension with a table, element `i` comes from `table[i]`.
///
/// # Errors
/// If memory cannot be had.
pub fn from_tables(out: &Tensor, t: &Tensor, tables: &[Option<Vec<usize>>]) -> Result<()> {
    let order = order(out);
    let (moved, tables) = (out.permuted(&order), ordered(tables, &order));
    let src = copy::dense(&t.permuted(&order), t.dtype())?;
    let dst = lines::results(&moved, out.dtype())?;
    index::pick_grid(&dst, &src, &tables);
    lines::put(&moved, &dst)
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
    let order = order(out);
    let out = out.permuted(&order);
    let mut sum = lines::reals(&copy::dense(&grad.permuted(&order), dtype)?);
    for (d, table) in ordered(tables, &order).iter().enumerate() {
        if let Some(table) = table {
            let size = out.shape()[d] as usize;
            sum = Adjoint::of_places(table, size).along(&sum, d)?;
        }
    }
    let (shape, strides) = (out.shape().clone(), dims::contiguous_strides(out.shape()));
    let offset = sum.offset() / if dtype.is_complex() { 2 } else { 1 };
    copy::copy(&out, &sum.reinterpret(dtype, shape, strides, offset))
}
