//! Pointwise kernels, made from the CUDA expressions of the table.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::driver::{self, Gpu};
use super::launch::{arg, launch};
use super::source::{self, Operand};
use crate::cpu::map::Ctx;
use crate::ops::args::{Arg, Args};
use crate::ops::pointwise::rule::scalar_of;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, err};
use smallvec::SmallVec;

/// The first of `b` and `c` where `a` is not zero.
pub(super) const CHOOSE: &str = "a != T(0) ? b : c";

/// Extents and element strides of the result and three operands, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Layout {
    n: i64,
    dims: i64,
    shape: [i64; 8],
    stride: [[i64; 8]; 4],
}

/// Numbers of a call, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Numbers {
    f: [f64; 6],
    i: [i64; 6],
    re: [f64; 6],
    im: [f64; 6],
}

impl Numbers {
    fn set(&mut self, k: usize, s: Scalar) {
        let c = s.to_c64();
        (self.f[k], self.i[k], self.re[k], self.im[k]) = (s.to_f64(), s.to_i64(), c.re, c.im);
    }

    fn of(ctx: &Ctx) -> Self {
        let mut n = Self::default();
        n.f[..3].copy_from_slice(&ctx.f);
        n.i[..3].copy_from_slice(&ctx.i);
        for (k, c) in ctx.c.iter().enumerate() {
            (n.re[k], n.im[k]) = (c.re, c.im);
        }
        n
    }
}

/// An operand of [`apply`].
pub(super) enum Input<'a> {
    Number(Scalar),
    Tensor(&'a Tensor),
}

/// Runs the expression of a pointwise row.
///
/// # Errors
/// If it cannot be compiled or started.
pub fn run(
    expression: &str,
    operands: &[Arg],
    compute: DType,
    ctx: Ctx,
    out: &Tensor,
) -> Result<()> {
    let inputs: SmallVec<[Input; 3]> = operands
        .iter()
        .map(|v| input(v, out))
        .collect::<Result<_>>()?;
    apply(expression, compute, out, &inputs, &ctx)
}

/// An argument as an operand: a host tensor without dimensions counts as a number.
fn input<'a>(operand: &Arg<'a>, out: &Tensor) -> Result<Input<'a>> {
    Ok(match operand {
        Arg::Tensor(t) if t.device() == out.device() => Input::Tensor(t),
        Arg::Tensor(t) => Input::Number(t.item()?),
        other => Input::Number(scalar_of(other).unwrap_or(Scalar::Int(0))),
    })
}

/// One of two operands by a condition: the positions of the condition, of the first and of the second.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn choose(a: &Args, outs: &[Tensor], at: [usize; 3]) -> Result<()> {
    let inputs: SmallVec<[Input; 3]> = at
        .iter()
        .map(|&i| input(&a.values[i], &outs[0]))
        .collect::<Result<_>>()?;
    apply(CHOOSE, outs[0].dtype(), &outs[0], &inputs, &Ctx::default())
}

/// Fills the result with a number: the last scalar among the arguments before the options.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn fill(a: &Args, outs: &[Tensor]) -> Result<()> {
    let value = a.values.iter().find_map(|v| {
        if matches!(v, Arg::Tensor(_)) {
            None
        } else {
            scalar_of(v)
        }
    });
    fill_with(
        &outs[0],
        value.ok_or_else(|| err!(Runtime, "{}() has no number", a.name()))?,
    )
}

/// Fills the result with zeros.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn zero(_: &Args, outs: &[Tensor]) -> Result<()> {
    fill_with(&outs[0], Scalar::Int(0))
}

/// Fills the result with ones.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn one(_: &Args, outs: &[Tensor]) -> Result<()> {
    fill_with(&outs[0], Scalar::Int(1))
}

/// Fills a tensor on a GPU.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn fill_with(t: &Tensor, value: Scalar) -> Result<()> {
    if source::storage_type(t.dtype()).is_none() {
        let host = Tensor::empty(t.shape(), t.dtype(), crate::Device::CPU)?;
        crate::cpu::fill(&host, value)?;
        return super::copy::copy_into(t, &host);
    }
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.i[0], ctx.c[0]) = (value.to_f64(), value.to_i64(), value.to_c64());
    apply("f0", t.dtype(), t, &[], &ctx)
}

/// Joins neighbouring dimensions that all operands step through as one; innermost first.
fn collapse(shape: &[i64], strides: &[Dims]) -> Result<Layout> {
    let mut l = Layout {
        n: shape.iter().product(),
        dims: 0,
        shape: [1; 8],
        stride: [[0; 8]; 4],
    };
    let mut at = 0usize;
    for d in (0..shape.len()).rev() {
        if shape[d] == 1 {
            continue;
        }
        let joins = at > 0
            && strides
                .iter()
                .enumerate()
                .all(|(k, s)| s[d] == l.stride[k][at - 1] * l.shape[at - 1]);
        if joins {
            l.shape[at - 1] *= shape[d];
            continue;
        }
        ensure!(
            at < 8,
            NotImplemented,
            "CUDA kernels take tensors of up to 8 dimensions"
        );
        l.shape[at] = shape[d];
        for (k, s) in strides.iter().enumerate() {
            l.stride[k][at] = s[d];
        }
        at += 1;
    }
    l.dims = at as i64;
    Ok(l)
}

/// Writes an expression of up to three operands, broadcast and converted to `compute`, into `out`.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(super) fn apply(
    expression: &str,
    compute: DType,
    out: &Tensor,
    inputs: &[Input],
    ctx: &Ctx,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let gpu: &'static Gpu = driver::gpu(out.device())?;
    let mut numbers = Numbers::of(ctx);
    let mut kinds: SmallVec<[Operand; 3]> = SmallVec::new();
    let mut ptrs = [out.data_ptr() as usize as u64, 0, 0, 0];
    let mut strides: SmallVec<[Dims; 4]> = SmallVec::new();
    strides.push(out.strides().clone());
    for (k, input) in inputs.iter().enumerate() {
        match input {
            Input::Number(s) => {
                numbers.set(3 + k, *s);
                kinds.push(Operand::Number);
                strides.push(out.strides().clone());
            }
            Input::Tensor(t) => {
                kinds.push(Operand::Tensor(t.dtype()));
                ptrs[k + 1] = t.data_ptr() as usize as u64;
                strides.push(t.strides_for(out.shape()));
            }
        }
    }
    let mut layout = collapse(out.shape(), &strides)?;
    let flat = layout.dims == 0
        || layout.dims == 1 && (0..strides.len()).all(|k| layout.stride[k][0] == 1);
    let wide = layout.n > i64::from(i32::MAX);
    let Some(text) = source::map(expression, compute, out.dtype(), &kinds, flat, wide) else {
        bail!(
            NotImplemented,
            "no CUDA kernel for dtype '{}'",
            compute.scalar_type()
        )
    };
    let f = super::module::function(gpu, &text, "kernel")?;
    let blocks = u32::try_from((layout.n + 1023) / 1024)
        .map_err(|_| err!(Runtime, "too many elements for one launch"))?;
    let [mut p0, mut p1, mut p2, mut p3] = ptrs;
    let mut args = [
        arg(&mut p0),
        arg(&mut p1),
        arg(&mut p2),
        arg(&mut p3),
        arg(&mut layout),
        arg(&mut numbers),
    ];
    // SAFETY: the values are the kernel's parameters in order; the layouts lie within the tensors' storages, which the
    // stream's order keeps until the kernel is done.
    unsafe { launch(gpu, f, (blocks, 1), &mut args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_continue_each_other_are_joined() {
        let l = collapse(&[2, 3, 4], &[[12, 4, 1].into(), [12, 4, 1].into()]).unwrap();
        assert_eq!((l.n, l.dims, l.shape[0]), (24, 1, 24));
        let l = collapse(&[2, 3, 4], &[[12, 4, 1].into(), [0, 4, 1].into()]).unwrap();
        assert_eq!(
            (l.dims, &l.shape[..2], &l.stride[1][..2]),
            (2, &[12, 2][..], &[1, 0][..])
        );
    }
}
