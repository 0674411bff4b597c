//! Other looks at a tensor, for kernels: what they write and read part by part.

use crate::plan::ViewPlan;
use crate::{Result, Tensor, ensure};

/// The tensor as a plan shows it.
///
/// # Errors
/// If it reaches outside of the storage.
pub fn of(t: &Tensor, plan: ViewPlan) -> Result<Tensor> {
    ensure!(
        plan.bytes()? <= t.storage().nbytes(),
        Runtime,
        "a view of {} bytes does not fit a storage of {}",
        plan.bytes()?,
        t.storage().nbytes()
    );
    Ok(t.raw_view(&plan))
}

/// The tensor with a dimension of size 1 if it has none.
#[must_use]
pub fn at_least_1d(t: &Tensor) -> Tensor {
    if t.ndim() == 0 {
        t.view_with([1].into(), [1].into(), t.offset())
    } else {
        t.clone()
    }
}

/// Where matrix `i` of those that the last two dimensions are begins, its sizes and its strides, in elements.
///
/// # Panics
/// If the tensor does not have it.
#[must_use]
pub fn place_of_matrix(t: &Tensor, i: usize) -> (i64, [usize; 2], [i64; 2]) {
    let n = t.ndim() - 2;
    let (shape, strides) = (t.shape(), t.strides());
    let (mut start, mut rest) = (0, i as i64);
    for d in (0..n).rev() {
        start += rest % shape[d] * strides[d];
        rest /= shape[d];
    }
    assert!(rest == 0, "matrix {i} of a tensor of shape {shape}");
    let sizes = [shape[n] as usize, shape[n + 1] as usize];
    (start, sizes, [strides[n], strides[n + 1]])
}

/// Matrix `i` of those that the last two dimensions are.
///
/// # Panics
/// If the tensor does not have it.
#[must_use]
pub fn matrix(t: &Tensor, i: usize) -> Tensor {
    let (start, sizes, strides) = place_of_matrix(t, i);
    let shape = sizes.map(|n| n as i64);
    t.view_with(shape.into(), strides.into(), t.offset() + start)
}

/// All elements that the storage holds, in one dimension.
#[must_use]
pub fn whole(t: &Tensor) -> Tensor {
    let n = (t.storage().nbytes() / t.dtype().size()) as i64;
    t.reinterpret(t.dtype(), [n].into(), [1].into(), 0)
}
