//! The sum of windows: what gathering takes apart.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::{Geometry, Phase, inside};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, fill, pool, slice};
use crate::{DType, Device, Result, Scalar, Tensor};

/// The type that windows are summed in.
#[must_use]
pub fn summed_in(d: DType) -> DType {
    match d {
        DType::Bool => DType::U8,
        d if d.is_reduced_float() => DType::F32,
        d => d,
    }
}

/// Adds gathered windows `[batch, channels * taps, positions]` back into planes (`fold`); `out` is zero beforehand.
///
/// # Errors
/// If memory cannot be had.
pub fn fold(out: &Tensor, columns: &Tensor, g: &Geometry) -> Result<()> {
    let d = out.dtype();
    let wide = summed_in(d);
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
            let each = (rows * positions).max(1);
            pool::parallel_for(g.batch * g.inputs, (16384 / each).max(1), |r| {
                for i in r {
                    // SAFETY: one plane a task.
                    let out = unsafe {
                        std::slice::from_raw_parts_mut(to.get().cast::<$t>().add(i * plane), plane)
                    };
                    add_windows(out, &from[i * each..], g, phase);
                }
            });
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

/// What is summed; truth values that overlap stay true.
trait Sum: Copy {
    fn sum(self, v: Self) -> Self;
}
macro_rules! sum {
    ($($t:ty),+ => $op:tt) => { $(
        impl Sum for $t {
            #[inline(always)]
            fn sum(self, v: Self) -> Self { self $op v }
        }
    )+ };
}
sum! { f32, f64, num_complex::Complex32, num_complex::Complex64 => + }
sum! { u8 => | }

simd_fn! { wide
    /// Adds a line to elements that are `step` apart.
    fn add_line<T: Sum>(to: &mut [T], from: &[T], step: usize) {
        if step == 1 {
            for (to, &v) in to.iter_mut().zip(from) {
                *to = to.sum(v);
            }
        } else {
            for (to, &v) in to.iter_mut().step_by(step).zip(from) {
                *to = to.sum(v);
            }
        }
    }
}

/// Adds the windows of a plane, `[taps, positions]`.
fn add_windows<T: Sum>(out: &mut [T], from: &[T], g: &Geometry, phase: &Phase) {
    let [_, lines, width] = g.out;
    let advance = phase.advance;
    for (tap, row) in phase.taps.iter().zip(from.chunks(g.positions().max(1))) {
        let [d, h, w]: [_; 3] = std::array::from_fn(|i| {
            let (lo, hi) = inside(g.out[i], advance[i], tap.at[i], g.size[i]);
            lo..hi
        });
        if w.is_empty() {
            continue;
        }
        let place = |i: usize, t: usize| (t as i64 * advance[i] + tap.at[i]) as usize;
        for (d, h) in d.flat_map(|d| h.clone().map(move |h| (d, h))) {
            let line = (place(0, d) * g.size[1] + place(1, h)) * g.size[2];
            let row = &row[(d * lines + h) * width..][w.clone()];
            add_line(
                &mut out[line + place(2, w.start)..],
                row,
                advance[2] as usize,
            );
        }
    }
}
