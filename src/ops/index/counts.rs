//! How many elements means are of.

use crate::cpu::index::{Lay, Reduce};
use crate::ops::index::along::size_at;
use crate::ops::index::scatter::reduce_rows;
use crate::{DType, Dims, Result, Scalar, Tensor, cpu};

/// Sizes, 1 where the indices are alike all along a dimension of the result.
fn narrowed(sizes: &[i64], out: &Tensor, dim: usize, shape: &Dims, index: &Lay) -> Dims {
    let alike =
        |d: usize| d != dim && index.strides[d] == 0 && shape[d] > 0 && shape[d] == size_at(out, d);
    let one = |(d, &size): (usize, &i64)| if alike(d) { 1 } else { size };
    sizes.iter().enumerate().map(one).collect()
}

/// The shape of [`counts`].
pub(super) fn counts_shape(out: &Tensor, dim: usize, shape: &Dims, index: &Lay) -> Dims {
    narrowed(out.shape(), out, dim, shape, index)
}

/// How many elements each of the result is the mean of, at least 1. Where the indices are alike all along a dimension of the result,
/// so are these, and it has size 1.
pub(super) fn counts(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    include_self: bool,
) -> Result<Tensor> {
    let counted = counts_shape(out, dim, shape, index);
    let counts = Tensor::empty(&counted, DType::I64, crate::Device::CPU)?;
    cpu::fill(&counts, Scalar::Int(i64::from(include_self)))?;
    let one = Tensor::scalar(Scalar::Int(1), DType::I64)?;
    let written = narrowed(shape, out, dim, shape, index);
    reduce_rows(&counts, dim, &written, index, &one, true, Reduce::Add)?;
    cpu::slice_mut::<i64>(&counts)
        .iter_mut()
        .for_each(|c| *c = (*c).max(1));
    Ok(counts)
}
