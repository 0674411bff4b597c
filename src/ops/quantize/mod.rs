//! Quantised numbers, and real ones that are as if they had been.

pub mod elements;
pub mod fake;
pub(crate) mod parts;
pub mod products;
pub mod steps;
pub mod tensors;
pub mod windows;

use crate::ops::f;
use crate::{Result, Scalar, Tensor, bail};

/// Numbers, none of them outside of an interval.
pub(crate) fn clamped(numbers: &Tensor, least: i64, most: i64) -> Result<Tensor> {
    f::Clamp::new(numbers)
        .min(Scalar::Int(least))
        .max(Scalar::Int(most))
        .call()
}

/// A vector along one dimension of a tensor.
fn along(p: &Tensor, t: &Tensor, axis: usize) -> Result<Tensor> {
    let mut shape = vec![1i64; t.ndim()];
    let Some(size) = shape.get_mut(axis) else {
        bail!(
            Index,
            "a tensor of {} dimensions has no dimension {axis}",
            t.ndim()
        );
    };
    *size = -1;
    f::reshape(p, &shape)
}
