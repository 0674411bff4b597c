//! Magnitudes of complex numbers.

use super::room::Room;
use crate::{DType, Result, Tensor};
use num_complex::{Complex32, Complex64};

/// What [`of`] takes but its result, which it returns.
///
/// # Errors
/// If a size overflows.
pub fn room(room: &mut Room, t: &Tensor) -> Result<Tensor> {
    room.keep(|room| {
        let wide = room.dense(t, wide_complex(t))?;
        room.empty(t.shape(), wide.dtype().to_real())
    })
}

fn wide_complex(t: &Tensor) -> DType {
    if t.dtype() == DType::C128 {
        DType::C128
    } else {
        DType::C64
    }
}

/// The magnitudes of complex elements.
///
/// # Errors
/// If memory cannot be had.
pub fn of(t: &Tensor) -> Result<Tensor> {
    let wide = super::copy::dense(t, wide_complex(t))?;
    let out = Tensor::empty(t.shape(), wide.dtype().to_real(), crate::Device::CPU)?;
    if wide.dtype() == DType::C128 {
        let from = super::slice::<Complex64>(&wide);
        super::slice_mut::<f64>(&out)
            .iter_mut()
            .zip(from)
            .for_each(|(o, z)| *o = z.norm());
    } else {
        let from = super::slice::<Complex32>(&wide);
        super::slice_mut::<f32>(&out)
            .iter_mut()
            .zip(from)
            .for_each(|(o, z)| *o = z.norm());
    }
    Ok(out)
}
