//! How many elements means are of.

use crate::cpu::index::{Lay, Reduce};
use crate::ops::index::along::size_at;
use crate::ops::index::scatter::reduce_rows;
use crate::{DType, Dims, Result, Scalar, Tensor, cpu};

/// How many elements each of the result is the mean of, at least 1. Where the indices are alike all along a dimension of the result,
/// so are these, and it has size 1.
pub(super) fn counts(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    include_self: bool,
) -> Result<Tensor> {
    let alike =
        |d: usize| d != dim && index.strides[d] == 0 && shape[d] > 0 && shape[d] == size_at(out, d);
    let of = |sizes: &[i64]| -> Dims {
        let one = |(d, &size): (usize, &i64)| if alike(d) { 1 } else { size };
        sizes.iter().enumerate().map(one).collect()
    };
    let counts = Tensor::empty(&of(out.shape()), DType::I64, crate::Device::CPU)?;
    cpu::fill(&counts, Scalar::Int(i64::from(include_self)))?;
    let one = Tensor::scalar(Scalar::Int(1), DType::I64)?;
    reduce_rows(&counts, dim, &of(shape), index, &one, true, Reduce::Add)?;
    cpu::slice_mut::<i64>(&counts)
        .iter_mut()
        .for_each(|c| *c = (*c).max(1));
    Ok(counts)
}
