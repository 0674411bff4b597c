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

/// All elements that the storage holds, in one dimension.
#[must_use]
pub fn whole(t: &Tensor) -> Tensor {
    let n = (t.storage().nbytes() / t.dtype().size()) as i64;
    t.reinterpret(t.dtype(), [n].into(), [1].into(), 0)
}
