//! Taking a scale out of gradients, and looking for those that overflowed with it.

use super::number::{Number, Stored};
use super::{ALONE, TASK, line};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, memory, pool, slice_mut};
use crate::{DType, Result, Tensor, dims};
use half::{bf16, f16};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Divides gradients by a scale, in place.
pub(crate) fn unscale(grads: &[&Tensor], scale: f64) {
    fn each<S: Stored>(t: &Tensor, scale: f64) {
        let by = S::In::of(scale);
        memory::for_each_mut::<S>(t, |x| *x = S::store(x.load() / by));
    }
    for g in grads {
        match g.dtype() {
            DType::F32 => each::<f32>(g, scale),
            DType::F64 => each::<f64>(g, scale),
            DType::BF16 => each::<bf16>(g, scale),
            _ => each::<f16>(g, scale),
        }
    }
}

/// Multiplies gradients by the inverse of a scale, in place; true if an element was not finite before.
///
/// # Errors
/// If memory cannot be had.
pub(crate) fn unscale_checked(grads: &[&Tensor], inverse: f64) -> Result<bool> {
    let mut found = false;
    for g in grads {
        if !g.is_contiguous() && !dims::is_dense(g.shape(), g.strides()) {
            let made = copy::dense(g, g.dtype())?;
            found |= checked(&made, inverse);
            copy::copy(g, &made)?;
        } else {
            found |= checked(&line(g), inverse);
        }
    }
    Ok(found)
}

fn checked(t: &Tensor, inverse: f64) -> bool {
    match t.dtype() {
        DType::F32 => in_parts::<f32>(t, inverse),
        DType::F64 => in_parts::<f64>(t, inverse),
        DType::BF16 => in_parts::<bf16>(t, inverse),
        _ => in_parts::<f16>(t, inverse),
    }
}

fn in_parts<S: Stored>(t: &Tensor, inverse: f64) -> bool {
    let by = S::In::of(inverse);
    let all = slice_mut::<S>(t);
    if all.len() < ALONE {
        return sweep::<S>(all, by);
    }
    let found = AtomicBool::new(false);
    let parts: Vec<_> = all.chunks_mut(TASK).map(Mutex::new).collect();
    pool::parallel_for(parts.len(), 1, |range| {
        for part in &parts[range] {
            // Nobody else has this part: the lock only says so.
            if sweep::<S>(&mut part.lock().unwrap_or_else(PoisonError::into_inner), by) {
                found.store(true, Relaxed);
            }
        }
    });
    found.into_inner()
}

simd_fn! { stream
    /// One part; what is not finite differs from itself by something else than nothing.
    fn sweep<S: Stored>(part: &mut [S], by: S::In) -> bool {
        let zero = S::In::of(0.0);
        let mut found = false;
        for x in part.iter_mut() {
            let v = x.load();
            #[allow(clippy::eq_op, reason = "it is not zero for infinities and what is no number")]
            let rest = v - v;
            found |= rest != zero;
            *x = S::store(v * by);
        }
        found
    }
}
