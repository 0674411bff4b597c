//! Layout rules that several families share.

use crate::dims::wrap_dim;
use crate::{DType, Result, Tensor, bail};
use smallvec::SmallVec;

/// Wraps a dimension number of a tensor.
///
/// # Errors
/// If it is out of range.
pub fn dim(t: &Tensor, d: i64) -> Result<usize> {
    wrap_dim(d, t.ndim())
}

/// Wraps a list of dimensions; an empty or absent list means all of them.
///
/// # Errors
/// If one is out of range or named twice.
pub fn dim_list(dims: Option<&[i64]>, ndim: usize) -> Result<SmallVec<[usize; 6]>> {
    let Some(dims) = dims.filter(|d| !d.is_empty()) else {
        return Ok((0..ndim).collect());
    };
    crate::ensure!(
        ndim <= crate::dims::MAX_NDIM,
        Runtime,
        "only tensors with up to 64 dims are supported"
    );
    let mut out: SmallVec<[usize; 6]> = SmallVec::new();
    for &d in dims {
        let d = wrap_dim(d, ndim)?;
        if out.contains(&d) {
            bail!(
                Runtime,
                "dim {d} appears multiple times in the list of dims"
            );
        }
        out.push(d);
    }
    Ok(out)
}

/// The dtype that sums of integers are taken in, unless one is asked for.
#[must_use]
pub fn sum_dtype(input: DType, asked: Option<DType>) -> DType {
    asked.unwrap_or(if input.is_integral(true) {
        DType::I64
    } else {
        input
    })
}
