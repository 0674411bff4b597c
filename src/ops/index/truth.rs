//! Masks as indices: how many elements are true, and where they are.

use crate::cpu::index as cpu_index;
use crate::ops::core::helpers;
use crate::{DType, Result, Tensor, cpu, dims, kernels};

/// True for what counts as a mask and not as positions.
#[must_use]
pub fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// The dimensions that an index looks up.
#[must_use]
pub fn covers(t: &Tensor) -> usize {
    if is_mask(t) { t.ndim() } else { 1 }
}

/// The row-major truth values of a mask on the host.
///
/// # Errors
/// If memory cannot be had.
pub fn truth(mask: &Tensor) -> Result<Tensor> {
    cpu::copy::dense(mask, DType::Bool)
}

/// How many elements of a mask are true; recorded meta masks are replayed, plain ones have no answer.
///
/// # Errors
/// If the values cannot be had.
pub fn count(mask: &Tensor) -> Result<i64> {
    if helpers::lies_beside(mask) {
        return kernels::compact::count(mask);
    }
    Ok(cpu_index::count_true(&truth(&helpers::readable(
        mask, "no data",
    )?)?))
}

/// Row-major positions of a mask's true elements.
///
/// # Errors
/// If the values cannot be had.
pub fn flat_places(mask: &Tensor) -> Result<Tensor> {
    let bits = truth(&helpers::readable(mask, "no data")?)?;
    let places = cpu_index::true_places(&bits);
    Tensor::from_slice(&places, &[places.len() as i64])
}

/// Coordinates of a mask's true elements, one list a dimension.
///
/// # Errors
/// If the values cannot be had.
pub fn coordinates(mask: &Tensor) -> Result<Vec<Tensor>> {
    if helpers::lies_beside(mask) {
        return kernels::compact::coordinates(mask);
    }
    let bits = truth(&helpers::readable(mask, "no data")?)?;
    let places = cpu_index::true_places(&bits);
    split_places(&places, mask.shape())
}

/// Row-major positions as one list of coordinates a dimension.
fn split_places(places: &[i64], shape: &[i64]) -> Result<Vec<Tensor>> {
    let n = [places.len() as i64];
    if shape.len() == 1 {
        return Ok(vec![Tensor::from_slice(places, &n)?]);
    }
    let steps = dims::contiguous_strides(shape);
    (0..shape.len())
        .map(|d| {
            let list: Vec<i64> = places.iter().map(|p| p / steps[d] % shape[d]).collect();
            Tensor::from_slice(&list, &n)
        })
        .collect()
}
