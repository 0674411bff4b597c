//! Reducing writes on devices beside the host, of the kernels that those have.

use crate::cpu::index::Reduce;
use crate::ops::core::helpers;
use crate::ops::f;
use crate::ops::index::scatter::How;
use crate::{DType, Result, Scalar, Tensor, kernels};

/// As [`super::scatter::reduce_into`] on a device beside the host; `write` brings a number, or the source, to the places with a merge.
pub(in crate::ops) fn reduce_beside(
    out: &Tensor,
    how: How,
    include_self: bool,
    write: impl Fn(&Tensor, Option<Tensor>, Option<Reduce>) -> Result<()>,
) -> Result<()> {
    let number = |i: i64, like: &Tensor| kernels::number(Scalar::Int(i), like).map(Some);
    if !include_self {
        let first = match how {
            How::Max | How::Min => None,
            _ => number(i64::from(how == How::Prod), out)?,
        };
        write(out, first, None)?;
    }
    write(out, None, Some(how.merge()))?;
    if how != How::Mean {
        return Ok(());
    }
    let counts = Tensor::empty(out.shape(), DType::I64, out.device())?;
    kernels::fill(&counts, Scalar::Int(i64::from(include_self)))?;
    write(&counts, number(1, &counts)?, Some(Reduce::Add))?;
    let quotient = helpers::inside(|| {
        let counts = f::clamp_min(&counts, 1i64)?;
        if out.dtype().is_integral(true) {
            f::floor_divide(out, &counts)
        } else {
            f::div(out, &counts)
        }
    })?;
    kernels::copy(out, &quotient)
}
