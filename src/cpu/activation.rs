//! Activations that draw random numbers.

use super::{slice, slice_mut};
use crate::random::SharedGenerator;
use crate::{DType, Device, Result, Tensor};

/// Leaky relu whose slope is drawn for every element that is not positive; and what each element is multiplied by, if that is asked for.
///
/// # Errors
/// If memory cannot be had.
pub fn rrelu(
    outs: &[Tensor],
    x: &Tensor,
    lower: f64,
    upper: f64,
    g: &SharedGenerator,
) -> Result<()> {
    let x = super::copy::dense(x, DType::F64)?;
    let result = Tensor::empty(x.shape(), DType::F64, Device::CPU)?;
    let factors = Tensor::empty(x.shape(), DType::F64, Device::CPU)?;
    // Bounds and slopes are rounded to the precision of the arithmetic.
    let round = |v: f64| {
        if outs[0].dtype() == DType::F64 {
            v
        } else {
            f64::from(v as f32)
        }
    };
    let (lower, upper) = (round(lower), round(upper));
    let mut g = g.host()?;
    let places = slice_mut::<f64>(&result)
        .iter_mut()
        .zip(slice_mut::<f64>(&factors));
    for ((o, factor), &v) in places.zip(slice::<f64>(&x)) {
        *factor = if v <= 0.0 {
            round(g.d53() * (upper - lower) + lower)
        } else {
            1.0
        };
        *o = v * *factor;
    }
    for (out, made) in outs.iter().zip([&result, &factors]) {
        super::copy::copy(out, made)?;
    }
    Ok(())
}
