//! Activations that draw random numbers.

use super::{slice, slice_mut};
use crate::random::SharedGenerator;
use crate::{DType, Device, Result, Tensor};

/// Leaky relu whose slope is drawn for every element that is not positive.
///
/// # Errors
/// If memory cannot be had.
pub fn rrelu(out: &Tensor, x: &Tensor, lower: f64, upper: f64, g: &SharedGenerator) -> Result<()> {
    let x = super::copy::dense(x, DType::F64)?;
    let result = Tensor::empty(x.shape(), DType::F64, Device::CPU)?;
    // Bounds and slopes are rounded to the precision of the arithmetic.
    let round = |v: f64| {
        if out.dtype() == DType::F64 {
            v
        } else {
            f64::from(v as f32)
        }
    };
    let (lower, upper) = (round(lower), round(upper));
    let mut g = g.lock();
    for (o, &v) in slice_mut::<f64>(&result).iter_mut().zip(slice::<f64>(&x)) {
        *o = if v <= 0.0 {
            let slope = g.d53() * (upper - lower) + lower;
            v * round(slope)
        } else {
            v
        };
    }
    super::copy::copy(out, &result)
}
