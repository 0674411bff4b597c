//! Padding.

use super::{copy, index};
use crate::{Device, Dims, Result, Scalar, Tensor};

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
