//! Discrete Fourier transforms, by where the data is. On a GPU a library does up to three dimensions at a time; without it they are
//! made on the host.

use super::job::computed;
use super::{accelerator, converted, copy, on_host};
use crate::cpu::fft::{self as host, How};
use crate::cpu::lines;
use crate::cpu::map::Ctx;
use crate::cpu::rows::Operand;
use crate::plan::ViewPlan;
use crate::{DType, Device, Dims, Result, Tensor, bail};
use num_complex::Complex64;

/// Dimensions that the library transforms at a time.
const RANK: usize = 3;

/// A tensor with its dimensions in an order.
fn permuted(t: &Tensor, order: &[usize]) -> Tensor {
    t.raw_view(&ViewPlan::of(t).permuted(order))
}

/// Transforms at most [`RANK`] dimensions; `n` is the length of the last of them in the result. None if no library does it.
fn step(t: &Tensor, dims: &[usize], n: i64, d: DType, forward: bool) -> Result<Option<Tensor>> {
    let order = lines::order(t.ndim(), dims);
    let view = permuted(t, &order);
    let mut from = converted(&view, view.dtype())?;
    // Transforms to real numbers write over what they read, and real numbers have to begin where complex ones could.
    let begins = from.data_ptr() as usize % (2 * from.dtype().to_real().size()) == 0;
    if !begins || !d.is_complex() && from.shares_storage(t) {
        let own = Tensor::empty(from.shape(), from.dtype(), from.device())?;
        copy(&own, &from)?;
        from = own;
    }
    let shape = from.shape().with(from.ndim() - 1, n);
    let made = Tensor::empty(&shape, d, t.device())?;
    let done = accelerator()?.transform(&made, &from, dims.len(), forward)?;
    Ok(done.then(|| permuted(&made, &lines::undone(&order))))
}

/// Complex transforms of all dimensions, a few at a time.
fn steps(t: &Tensor, dims: &[usize], forward: bool) -> Result<Option<Tensor>> {
    let mut now = t.clone();
    for dims in dims.rchunks(RANK) {
        let n = now.shape()[dims[dims.len() - 1]];
        match step(&now, dims, n, now.dtype(), forward)? {
            Some(made) => now = made,
            None => return Ok(None),
        }
    }
    Ok(Some(now))
}

/// Writes what a library made, times a factor; false if it made nothing.
fn scaled(out: &Tensor, made: Option<Tensor>, scale: f64) -> Result<bool> {
    let Some(made) = made else { return Ok(false) };
    if scale == 1.0 {
        return copy(out, &made).map(|()| true);
    }
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.c[0]) = (scale, Complex64::new(scale, 0.0));
    let operands = [Operand::Tensor(&made)];
    accelerator()?
        .map("a * f0", &operands, made.dtype(), &ctx, out)
        .map(|()| true)
}

/// A function of tensors on the host.
fn on_copies(
    out: &Tensor,
    input: &Tensor,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let here = |t: &Tensor| Tensor::empty(t.shape(), t.dtype(), Device::CPU);
    let (made, from) = (here(out)?, here(input)?);
    copy(&from, input)?;
    f(&made, &from)?;
    copy(out, &made)
}

/// See [`host::complex`].
///
/// # Errors
/// If memory cannot be had, or there is no such transform.
pub fn complex(out: &Tensor, input: &Tensor, dims: &[usize], how: How) -> Result<()> {
    if on_host(out) {
        return host::complex(out, input, dims, how);
    }
    if out.numel() == 0 || dims.is_empty() {
        return copy(out, input);
    }
    let made = steps(&converted(input, computed(out.dtype()))?, dims, how.forward)?;
    if scaled(out, made, how.scale)? {
        return Ok(());
    }
    on_copies(out, input, |out, input| {
        host::complex(out, input, dims, how)
    })
}

/// See [`host::real`].
///
/// # Errors
/// If memory cannot be had, or there is no such transform.
pub fn real(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    if on_host(out) {
        return host::real(out, input, dims, scale);
    }
    let Some(&end) = dims.last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let (n, m, wide) = (input.shape()[end], out.shape()[end], computed(out.dtype()));
    let made = if m == n / 2 + 1 {
        let few = dims.len().saturating_sub(RANK);
        let half = step(
            &converted(input, wide.to_real())?,
            &dims[few..],
            m,
            wide,
            true,
        )?;
        match half {
            Some(half) => steps(&half, &dims[..few], true)?,
            None => None,
        }
    } else {
        steps(&converted(input, wide)?, dims, true)?
    };
    if scaled(out, made, scale)? {
        return Ok(());
    }
    on_copies(out, input, |out, input| host::real(out, input, dims, scale))
}

/// See [`host::inverse`].
///
/// # Errors
/// If memory cannot be had, or there is no such transform.
pub fn inverse(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    if on_host(out) {
        return host::inverse(out, input, dims, scale);
    }
    let Some(&end) = dims.last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let (n, wide) = (out.shape()[end], computed(out.dtype()));
    let half: Dims = input.shape().with(end, n / 2 + 1);
    let half = input.raw_view(&ViewPlan::with(
        input,
        half,
        input.strides().clone(),
        input.offset(),
    ));
    let few = dims.len().saturating_sub(RANK);
    let first = steps(&converted(&half, wide.to_complex())?, &dims[..few], false)?;
    let made = match first {
        Some(t) => step(&t, &dims[few..], n, wide, false)?,
        None => None,
    };
    if scaled(out, made, scale)? {
        return Ok(());
    }
    on_copies(out, input, |out, input| {
        host::inverse(out, input, dims, scale)
    })
}
