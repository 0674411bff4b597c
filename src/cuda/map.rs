//! Pointwise kernels, made from the CUDA expressions of the table.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::driver::{self, Gpu};
use super::launch::{arg, launch};
use super::source::{self, Read};
use crate::cpu::map::Ctx;
use crate::cpu::rows::Operand;
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

/// Runs the expression of a pointwise row; a host tensor without dimensions counts as a number.
///
/// # Errors
/// If it cannot be compiled or started.
pub fn run(
    expression: &str,
    operands: &[Operand],
    compute: DType,
    ctx: &Ctx,
    out: &Tensor,
) -> Result<()> {
    let mut inputs: SmallVec<[Operand; 3]> = SmallVec::new();
    for operand in operands {
        inputs.push(match *operand {
            Operand::Tensor(t) if t.device() == out.device() => Operand::Tensor(t),
            Operand::Tensor(t) => Operand::Number(t.item()?),
            Operand::Number(s) => Operand::Number(s),
        });
    }
    apply(expression, compute, out, &inputs, ctx)
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
    inputs: &[Operand],
    ctx: &Ctx,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let gpu: &'static Gpu = driver::gpu(out.device())?;
    let mut numbers = Numbers::of(ctx);
    let mut kinds: SmallVec<[Read; 3]> = SmallVec::new();
    let mut ptrs = [out.data_ptr() as usize as u64, 0, 0, 0];
    let mut strides: SmallVec<[Dims; 4]> = SmallVec::new();
    strides.push(out.strides().clone());
    for (k, input) in inputs.iter().enumerate() {
        match input {
            Operand::Number(s) => {
                numbers.set(3 + k, *s);
                kinds.push(Read::Number);
                strides.push(out.strides().clone());
            }
            Operand::Tensor(t) => {
                kinds.push(Read::Tensor(t.dtype()));
                ptrs[k + 1] = t.data_ptr() as usize as u64;
                strides.push(t.strides_for(out.shape()));
            }
        }
    }
    let mut layout = collapse(out.shape(), &strides)?;
    let flat = layout.dims == 0
        || layout.dims == 1 && (0..strides.len()).all(|k| layout.stride[k][0] == 1);
    let wide = layout.n > i64::from(i32::MAX);
    // Sixteen bytes of the widest operand at once, where all of them begin at such places.
    let widest = inputs.iter().filter_map(|i| match i {
        Operand::Tensor(t) => Some(t.dtype().size()),
        Operand::Number(_) => None,
    });
    let widest = widest.chain([out.dtype().size()]).max().unwrap_or(16);
    let together = (16 / widest).max(1);
    let aligned = ptrs.iter().all(|p| p % 16 == 0);
    let flat = flat.then_some(if aligned { together } else { 1 });
    let Some(text) = source::map(expression, compute, out.dtype(), &kinds, flat, wide) else {
        bail!(
            NotImplemented,
            "no CUDA kernel for dtype '{}'",
            compute.scalar_type()
        )
    };
    let f = super::module::function(gpu, &text.head, text.file, "kernel")?;
    let each = 256 * flat.map_or(4, |n| n as i64);
    let blocks = u32::try_from((layout.n + each - 1) / each)
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
