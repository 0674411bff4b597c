//! Discrete Fourier transforms: single lines by `rustfft` and `realfft`, several by vectors of one number of each.

mod blocks;
mod plans;
mod side;
#[cfg(test)]
mod tests;
mod vector;

use super::lines::{self, Shared};
use super::room::Room;
use super::{copy, pool};
use crate::{DType, Device, Dims, Element, Result, Tensor, bail};
use blocks::{Places, grain};
use num_complex::Complex;
use plans::Real;

/// A direction and a factor.
#[derive(Clone, Copy)]
pub struct How {
    /// The exponent is negative.
    pub forward: bool,
    /// What all results are multiplied by.
    pub scale: f64,
}

/// Transforms along a dimension what is in `t`, which is dense in some order of its dimensions, or what is in `from`, into `t`.
fn along<T: Real>(t: &Tensor, from: Option<&Tensor>, dim: usize, how: How) -> Result<()>
where
    Complex<T>: Element,
{
    let n = t.shape()[dim] as usize;
    // What lies as the results do is read where it is.
    let lies_alike = |f: &&Tensor| {
        let memory = f.strides() == t.strides() && !f.shares_storage(t);
        memory && f.dtype() == t.dtype() && !f.is_lazy() && (n > 1 || how.scale != 1.0)
    };
    let alike = from.filter(lies_alike);
    if let (Some(from), None) = (from, alike) {
        copy::copy(t, from)?;
    }
    if n == 1 && how.scale == 1.0 {
        return Ok(());
    }
    let as_laid = |memory: &Tensor, f: &Tensor| {
        f.view_with(memory.shape().clone(), memory.strides().clone(), f.offset())
    };
    if let Some((places, memory)) = Places::across(t, dim) {
        let from = alike.map(|f| as_laid(&memory, f));
        let from = from.as_ref().map(super::slice::<Complex<T>>);
        blocks::complex(from, super::slice_mut(&memory), &places, how);
        return Ok(());
    }
    let written = lines::target(t, dim, t.dtype())?;
    let straight = written.shares_storage(t);
    if !straight {
        let order = lines::order(t.ndim(), &[dim]);
        copy::copy(&written, &alike.unwrap_or(t).permuted(&order))?;
    }
    let from = alike.filter(|_| straight).map(|f| as_laid(&written, f));
    let data = super::slice_mut::<Complex<T>>(&written);
    let places = Places::dense(data.len() / n.max(1), n);
    let from = from.as_ref().map(super::slice::<Complex<T>>);
    blocks::complex(from, data, &places, how);
    lines::finish(t, dim, &written)
}

/// Complex transforms along some dimensions; `out` is dense in some order of its dimensions.
///
/// # Errors
/// If memory cannot be had.
pub fn complex(out: &Tensor, input: &Tensor, dims: &[usize], how: How) -> Result<()> {
    if out.numel() == 0 || dims.is_empty() {
        return copy::copy(out, input);
    }
    // The last dimension first, as it lies best.
    for (i, &dim) in dims.iter().rev().enumerate() {
        let (scale, from) = match i {
            0 => (how.scale, Some(input)),
            _ => (1.0, None),
        };
        let how = How { scale, ..how };
        match out.dtype() {
            DType::C64 => along::<f32>(out, from, dim, how)?,
            DType::C128 => along::<f64>(out, from, dim, how)?,
            d => return Err(no_type(d)),
        }
    }
    Ok(())
}

/// What [`along`] takes.
fn along_room(room: &mut Room, t: &Tensor, dim: usize, scaled: bool) -> Result<()> {
    if t.shape()[dim] == 1 && !scaled || Places::across(t, dim).is_some() {
        return Ok(());
    }
    room.within(|room| room.lines(t, &[dim], t.dtype()).map(drop))
}

/// What [`complex`] takes.
///
/// # Errors
/// If a size overflows.
pub fn complex_room(room: &mut Room, out: &Tensor, dims: &[usize], how: How) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let mut dims = dims.iter().rev().enumerate();
    dims.try_for_each(|(i, &dim)| along_room(room, out, dim, i == 0 && how.scale != 1.0))
}

/// What [`real`] takes.
///
/// # Errors
/// If a size overflows.
pub fn real_room(room: &mut Room, out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        return Ok(());
    };
    if out.numel() == 0 {
        return Ok(());
    }
    room.within(|room| {
        room.lines(input, &[last], out.dtype().to_real())?;
        room.lines(out, &[last], out.dtype()).map(drop)
    })?;
    let mut others = others.iter().rev();
    others.try_for_each(|&dim| along_room(room, out, dim, false))
}

/// What [`inverse`] takes.
///
/// # Errors
/// If a size overflows.
pub fn inverse_room(room: &mut Room, out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        return Ok(());
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let how = How {
        forward: false,
        scale: 1.0,
    };
    let narrow = input.shape().with(last, out.shape()[last] / 2 + 1);
    let work = halves(&narrow, last, |shape| {
        room.empty(shape, out.dtype().to_complex())
    })?;
    complex_room(room, &work, others, how)?;
    room.lines(out, &[last], out.dtype()).map(drop)
}

/// Memory for halves of a last dimension: as the input, with the last of the dimensions last in memory.
fn halves(
    shape: &Dims,
    last: usize,
    make: impl FnOnce(&[i64]) -> Result<Tensor>,
) -> Result<Tensor> {
    let order = lines::order(shape.len(), &[last]);
    let moved: Dims = order.iter().map(|&d| shape[d]).collect();
    Ok(make(&moved)?.permuted(&lines::undone(&order)))
}

/// PyTorch's text for types that transforms on the host do not have.
fn no_type(d: DType) -> crate::Error {
    let name = d.to_real().scalar_type();
    crate::err!(Runtime, "MKL FFT doesn't support tensors of type: {name}")
}

/// Transforms of real numbers along some dimensions, the last of them first. `out` has the half of the last dimension that
/// says all if `onesided`.
///
/// # Errors
/// If memory cannot be had.
pub fn real(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    match out.dtype() {
        DType::C64 => real_lines::<f32>(out, input, last, scale)?,
        DType::C128 => real_lines::<f64>(out, input, last, scale)?,
        d => return Err(no_type(d)),
    }
    let how = How {
        forward: true,
        scale: 1.0,
    };
    for &dim in others.iter().rev() {
        match out.dtype() {
            DType::C64 => along::<f32>(out, None, dim, how)?,
            _ => along::<f64>(out, None, dim, how)?,
        }
    }
    Ok(())
}

fn real_lines<T: Real>(out: &Tensor, input: &Tensor, dim: usize, scale: f64) -> Result<()>
where
    Complex<T>: Element,
{
    let n = input.shape()[dim] as usize;
    let m = out.shape()[dim] as usize;
    let from = lines::read(input, &[dim], T::DTYPE)?;
    let from = super::slice::<T>(&from);
    let written = lines::target(out, dim, out.dtype())?;
    let to = super::slice_mut::<Complex<T>>(&written);
    if blocks::from_real(from, n, to, m, scale) {
        return lines::finish(out, dim, &written);
    }
    let plan = T::forward(n);
    let factor = T::of(scale);
    let count = to.len() / m;
    let to = Shared::new(to);
    pool::parallel_for(count, grain(n), |range| {
        let mut scratch = plan.make_scratch_vec();
        // Plans write over what they read.
        let mut line = plan.make_input_vec();
        for i in range {
            // SAFETY: every line is one task's.
            #[allow(unsafe_code, reason = "lines are disjoint parts")]
            let to = unsafe { to.part(i * m, m) };
            line.copy_from_slice(&from[i * n..(i + 1) * n]);
            let half = n / 2 + 1;
            // The lengths are the plan's own, all that it checks.
            let _ = plan.process_with_scratch(&mut line, &mut to[..half], &mut scratch);
            if scale != 1.0 {
                to[..half].iter_mut().for_each(|x| *x = *x * factor);
            }
            for k in half..m {
                to[k] = to[n - k].conj();
            }
        }
    });
    lines::finish(out, dim, &written)
}

/// Transforms to real numbers: backwards along all dimensions, the last of which holds the half that says all.
///
/// # Errors
/// If memory cannot be had.
pub fn inverse(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let how = How {
        forward: false,
        scale: 1.0,
    };
    let dtype = out.dtype().to_complex();
    let half = out.shape()[last] / 2 + 1;
    let narrow = input.shape().with(last, half);
    let input = input.view_with(narrow, input.strides().clone(), input.offset());
    let work = halves(input.shape(), last, |shape| {
        Tensor::empty(shape, dtype, Device::CPU)
    })?;
    complex(&work, &input, others, how)?;
    match out.dtype() {
        DType::F32 => inverse_lines::<f32>(out, &work, last, scale),
        DType::F64 => inverse_lines::<f64>(out, &work, last, scale),
        d => Err(no_type(d)),
    }
}

fn inverse_lines<T: Real>(out: &Tensor, work: &Tensor, dim: usize, scale: f64) -> Result<()>
where
    Complex<T>: Element,
{
    let n = out.shape()[dim] as usize;
    let m = work.shape()[dim] as usize;
    let written = lines::target(out, dim, out.dtype())?;
    let from = work.permuted(&lines::order(work.ndim(), &[dim]));
    let from = super::slice_mut::<Complex<T>>(&from);
    let to = super::slice_mut::<T>(&written);
    if blocks::to_real(from, to, n, scale) {
        return lines::finish(out, dim, &written);
    }
    let plan = T::inverse(n);
    let factor = T::of(scale);
    let from = Shared::new(from);
    let count = to.len() / n;
    let to = Shared::new(to);
    pool::parallel_for(count, grain(n), |range| {
        let mut scratch = plan.make_scratch_vec();
        for i in range {
            // SAFETY: every line is one task's.
            #[allow(unsafe_code, reason = "lines are disjoint parts")]
            let (line, to) = unsafe { (from.part(i * m, m), to.part(i * n, n)) };
            // What is real of real signals' spectra; what is there beside is not looked at.
            line[0].im = T::of(0.0);
            if n % 2 == 0 {
                line[m - 1].im = T::of(0.0);
            }
            let _ = plan.process_with_scratch(line, to, &mut scratch);
            if scale != 1.0 {
                to.iter_mut().for_each(|x| *x = *x * factor);
            }
        }
    });
    lines::finish(out, dim, &written)
}
