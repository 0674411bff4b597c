//! The sum of windows: what gathering takes apart.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::Geometry;
use crate::cpu::{copy, fill, pool, slice};
use crate::{DType, Device, Result, Scalar, Tensor};

/// Adds gathered windows `[batch, channels * taps, positions]` back into planes (`fold`); `out` is zero beforehand.
///
/// # Errors
/// If memory cannot be had.
pub fn fold(out: &Tensor, columns: &Tensor, g: &Geometry) -> Result<()> {
    let d = out.dtype();
    let wide = if d.is_reduced_float() {
        DType::F32
    } else if d == DType::Bool {
        DType::U8
    } else {
        d
    };
    let columns = copy::dense(columns, wide)?;
    let sum = if wide == d {
        out.clone()
    } else {
        Tensor::empty(out.shape(), wide, Device::CPU)?
    };
    fill(&sum, Scalar::Int(0))?;
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let (plane, rows, positions) = (
        g.size.iter().product::<usize>(),
        phase.taps.len(),
        g.positions(),
    );
    macro_rules! add {
        ($t:ty) => {{
            let from = slice::<$t>(&columns);
            let to = Shared::at(sum.data_ptr());
            pool::parallel_for(
                g.batch * g.inputs,
                (16384 / (rows * positions).max(1)).max(1),
                |r| {
                    for i in r {
                        // SAFETY: one plane a task.
                        let out = unsafe {
                            std::slice::from_raw_parts_mut(
                                to.get().cast::<$t>().add(i * plane),
                                plane,
                            )
                        };
                        for (k, tap) in phase.taps.iter().enumerate() {
                            let row = &from[(i * rows + k) * positions..][..positions];
                            for (p, &v) in row.iter().enumerate() {
                                let t = [
                                    p / (g.out[1] * g.out[2]),
                                    p / g.out[2] % g.out[1],
                                    p % g.out[2],
                                ];
                                let at: [i64; 3] = std::array::from_fn(|j| {
                                    t[j] as i64 * phase.advance[j] + tap.at[j]
                                });
                                if (0..3).all(|j| at[j] >= 0 && at[j] < g.size[j] as i64) {
                                    out[(at[0] as usize * g.size[1] + at[1] as usize)
                                        * g.size[2]
                                        + at[2] as usize] += v;
                                }
                            }
                        }
                    }
                },
            );
        }};
    }
    match wide {
        DType::F32 => add!(f32),
        DType::F64 => add!(f64),
        DType::C64 => add!(num_complex::Complex32),
        DType::C128 => add!(num_complex::Complex64),
        _ => add!(u8),
    }
    if wide == d {
        Ok(())
    } else {
        copy::copy(out, &sum)
    }
}
