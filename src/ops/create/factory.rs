//! Factories: tensors from sizes and numbers.

use crate::dims::{self, MemoryFormat};
use crate::ops::copy::strides_in;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, M, O, OpDef, Plan, kernel};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure, mode};
use torchlike_macros::operators;

/// The schema of a factory: its own arguments, then the options that all factories share.
#[macro_export]
#[doc(hidden)]
macro_rules! factory_schema {
    ($args:literal) => {
        concat!($args, ", dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)")
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "empty",
        factory_schema!("(int[*] size, *, format? memory_format=None"),
        F | O,
        KernelBody::new(infer_empty, nothing).cuda(nothing),
        "An uninitialised tensor.",
    ),
    kernel(
        "zeros",
        factory_schema!("(int[*] size, *"),
        F | O,
        KernelBody::new(infer_zeros, zeros).cuda(crate::cuda::map::zero),
        "A tensor of zeros.",
    ),
    kernel(
        "ones",
        factory_schema!("(int[*] size, *"),
        F | O,
        KernelBody::new(|a| sized(a, a.ints(0)?, 1), ones).cuda(crate::cuda::map::one),
        "A tensor of ones.",
    ),
    kernel(
        "full",
        factory_schema!("(int[] size, Scalar fill_value, *"),
        F | O,
        KernelBody::new(infer_full, fill_second).cuda(crate::cuda::map::fill),
        "A tensor of one number.",
    ),
    kernel(
        "empty_strided",
        factory_schema!("(int[] size, int[] stride, *"),
        F,
        KernelBody::new(infer_strided, nothing).cuda(nothing),
        "An uninitialised tensor with given strides.",
    ),
    kernel(
        "empty_permuted",
        factory_schema!("(int[] size, int[] physical_layout, *"),
        F,
        KernelBody::new(infer_permuted, nothing).cuda(nothing),
        "An uninitialised dense tensor with dimensions in a given order in memory.",
    ),
    kernel(
        "empty_like",
        LIKE,
        F,
        KernelBody::new(|a| like(a, 1), nothing).cuda(nothing),
        "An uninitialised tensor like another.",
    ),
    kernel(
        "zeros_like",
        LIKE,
        F,
        KernelBody::new(|a| like(a, 1), zeros).cuda(crate::cuda::map::zero),
        "Zeros like another tensor.",
    ),
    kernel(
        "ones_like",
        LIKE,
        F,
        KernelBody::new(|a| like(a, 1), ones).cuda(crate::cuda::map::one),
        "Ones like another tensor.",
    ),
    kernel(
        "full_like",
        "(Tensor self, Scalar fill_value, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        KernelBody::new(|a| like(a, 2), fill_second).cuda(crate::cuda::map::fill),
        "One number in the shape of another tensor.",
    ),
    kernel(
        "new_empty",
        factory_schema!("(Tensor self, int[*] size, *"),
        M,
        KernelBody::new(|a| new_sized(a, 2), nothing).cuda(nothing),
        "An uninitialised tensor of the same dtype and device.",
    ),
    kernel(
        "new_zeros",
        factory_schema!("(Tensor self, int[*] size, *"),
        M,
        KernelBody::new(|a| new_sized(a, 2), zeros).cuda(crate::cuda::map::zero),
        "Zeros of the same dtype and device.",
    ),
    kernel(
        "new_ones",
        factory_schema!("(Tensor self, int[*] size, *"),
        M,
        KernelBody::new(|a| new_sized(a, 2), ones).cuda(crate::cuda::map::one),
        "Ones of the same dtype and device.",
    ),
    kernel(
        "new_full",
        factory_schema!("(Tensor self, int[] size, Scalar fill_value, *"),
        M,
        KernelBody::new(|a| new_sized(a, 3), |a, o| cpu::fill(&o[0], a.scalar(2)?))
            .cuda(crate::cuda::map::fill),
        "One number in a tensor of the same dtype and device.",
    ),
    kernel(
        "new_empty_strided",
        factory_schema!("(Tensor self, int[] size, int[] stride, *"),
        M,
        KernelBody::new(infer_new_strided, nothing).cuda(nothing),
        "An uninitialised tensor with given strides, of the same dtype and device.",
    ),
    kernel(
        "scalar_tensor",
        factory_schema!("(Scalar s, *"),
        F,
        KernelBody::new(infer_scalar, |a, o| cpu::fill(&o[0], a.scalar(0)?))
            .cuda(crate::cuda::map::fill),
        "A 0-dimensional tensor.",
    ),
    kernel(
        "eye",
        factory_schema!("(int n, *"),
        F | O,
        KernelBody::new(|a| eye_rule(a, a.int(0)?, None, 1), eye).cuda(via_host),
        "The identity matrix.",
    ),
    kernel(
        "eye#m",
        factory_schema!("(int n, int m, *"),
        F | O,
        KernelBody::new(|a| eye_rule(a, a.int(0)?, Some(a.int(1)?), 2), eye).cuda(via_host),
        "A matrix with ones on the diagonal.",
    ),
    kernel(
        "tril_indices",
        factory_schema!("(int row, int col, int offset=0, *"),
        F,
        KernelBody::new(|a| infer_tri(a, true), |a, o| tri_fill(a, o, true)).cuda(via_host),
        "Row and column numbers of a matrix's lower triangle.",
    ),
    kernel(
        "triu_indices",
        factory_schema!("(int row, int col, int offset=0, *"),
        F,
        KernelBody::new(|a| infer_tri(a, false), |a, o| tri_fill(a, o, false)).cuda(via_host),
        "Row and column numbers of a matrix's upper triangle.",
    ),
];

const LIKE: &str = "(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)";

fn nothing(_: &Args, _: &[Tensor]) -> Result<()> {
    Ok(())
}

/// Runs a factory's host kernel and moves the result to the GPU.
pub(in crate::ops) fn via_host(a: &Args, outs: &[Tensor]) -> Result<()> {
    let crate::ops::core::op::Body::Kernel(k) = a.op.def.body else {
        return Ok(());
    };
    let host: Vec<Tensor> = outs
        .iter()
        .map(|o| {
            Tensor::empty_strided(
                o.shape().clone(),
                o.strides().clone(),
                o.dtype(),
                Device::CPU,
            )
        })
        .collect::<Result<_>>()?;
    let Some((_, cpu)) = k.old else { return Ok(()) };
    cpu(a, &host)?;
    outs.iter()
        .zip(&host)
        .try_for_each(|(o, h)| crate::ops::core::helpers::copy_(o, h))
}

/// The device option at `i`, resolved.
pub(in crate::ops) fn device_at(a: &Args, i: usize) -> Result<Device> {
    let d = a.device(i).unwrap_or_else(mode::default_device);
    if d.kind == crate::DeviceKind::Cuda {
        crate::cuda::check(d)?;
    }
    Ok(d)
}

/// Refuses negative sizes.
///
/// # Errors
/// PyTorch's text.
pub fn check_size(size: &[i64]) -> Result<()> {
    if let Some(&d) = size.iter().find(|&&d| d < 0) {
        bail!(
            Runtime,
            "Trying to create tensor with negative dimension {d}: {}",
            Dims::new(size)
        );
    }
    Ok(())
}

/// Rule of factories with a size; options start at position `first`.
///
/// # Errors
/// If the size is negative or too large.
pub fn sized(a: &Args, size: &[i64], first: usize) -> Result<Plan> {
    check_size(size)?;
    Ok(
        Plan::contiguous(size, a.dtype(first).unwrap_or_else(mode::default_dtype))
            .on(device_at(a, first + 2)?),
    )
}

fn infer_zeros(a: &Args) -> Result<Plan> {
    let size = a.ints(0)?;
    ensure!(
        size.iter().all(|&d| d >= 0),
        Runtime,
        "zeros: Dimension size must be non-negative."
    );
    sized(a, size, 1)
}

fn infer_empty(a: &Args) -> Result<Plan> {
    let mut plan = sized(a, a.ints(0)?, 2)?;
    if let Some(format) = a.format(1) {
        ensure!(
            format != MemoryFormat::Preserve,
            Runtime,
            "unsupported memory format option Preserve"
        );
        plan.outs[0].strides = dims::format_strides(a.ints(0)?, format)?;
    }
    Ok(plan)
}

fn infer_full(a: &Args) -> Result<Plan> {
    let mut plan = sized(a, a.ints(0)?, 2)?;
    if a.dtype(2).is_none() {
        plan.outs[0].dtype = a.scalar(1)?.dtype(mode::default_dtype());
    }
    crate::ops::index::mask::check_fits(a.scalar(1)?, plan.outs[0].dtype)?;
    Ok(plan)
}

fn infer_scalar(a: &Args) -> Result<Plan> {
    let mut plan = sized(a, &[], 1)?;
    plan.outs[0].dtype = a.dtype(1).unwrap_or_else(mode::default_dtype);
    Ok(plan)
}

fn strided(a: &Args, size: usize, dtype: DType, device: Device) -> Result<Plan> {
    let (shape, strides) = (a.ints(size)?, a.ints(size + 1)?);
    check_size(shape)?;
    ensure!(
        shape.len() == strides.len(),
        Runtime,
        "dimensionality of sizes ({}) must match dimensionality of strides ({})",
        shape.len(),
        strides.len()
    );
    if strides.iter().any(|&s| s < 0) {
        bail!(
            Runtime,
            "Storage size calculation overflowed with sizes={shape} and strides={strides}"
        );
    }
    Ok(Plan::one(shape.clone(), strides.clone(), dtype).on(device))
}

fn infer_strided(a: &Args) -> Result<Plan> {
    strided(
        a,
        0,
        a.dtype(2).unwrap_or_else(mode::default_dtype),
        device_at(a, 4)?,
    )
}

fn infer_new_strided(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    strided(
        a,
        1,
        a.dtype(3).unwrap_or(t.dtype()),
        a.device(5).unwrap_or(t.device()),
    )
}

fn infer_permuted(a: &Args) -> Result<Plan> {
    let (shape, order) = (a.ints(0)?, a.ints(1)?);
    check_size(shape)?;
    ensure!(
        order.len() == shape.len(),
        Runtime,
        "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {} is not equal to \
         len(physical_layout) = {}",
        shape.len(),
        order.len()
    );
    let mut seen = vec![false; shape.len()];
    let mut perm = Vec::new();
    for (i, &d) in order.iter().enumerate() {
        ensure!(
            d >= 0 && (d as usize) < shape.len(),
            Runtime,
            "Dimension out of range (expected to be between 0 and {}, but got {d} at index {i}).  NB: negative dims not currently \
             supported; file an issue if you want it.",
            shape.len() as i64 - 1
        );
        ensure!(
            !std::mem::replace(&mut seen[d as usize], true),
            Runtime,
            "Duplicate dim not allowed"
        );
        perm.push(d as usize);
    }
    Ok(Plan::one(
        shape.clone(),
        dims::strides_in_order(shape, &perm),
        a.dtype(2).unwrap_or_else(mode::default_dtype),
    )
    .on(device_at(a, 4)?))
}

/// Rule of `*_like`: options start at `first`, the memory format comes after them.
///
/// # Errors
/// If the format does not fit.
pub fn like(a: &Args, first: usize) -> Result<Plan> {
    let t = a.tensor(0)?;
    let strides = strides_in(t, a.format(first + 5).unwrap_or(MemoryFormat::Preserve))?;
    let device = a.device(first + 2).unwrap_or(t.device());
    Ok(Plan::one(
        t.shape().clone(),
        strides,
        a.dtype(first).unwrap_or(t.dtype()),
    )
    .on(device))
}

fn new_sized(a: &Args, first: usize) -> Result<Plan> {
    let t = a.tensor(0)?;
    let size = a.ints(1)?;
    check_size(size)?;
    Ok(Plan::contiguous(size, a.dtype(first).unwrap_or(t.dtype()))
        .on(a.device(first + 2).unwrap_or(t.device())))
}

fn zeros(_: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], Scalar::Int(0))
}

fn ones(_: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], Scalar::Int(1))
}

fn fill_second(a: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], a.scalar(1)?)
}

/// Fills a 1-dimensional tensor by index.
///
/// # Errors
/// If the dtype cannot be computed with.
pub fn write_with(out: &Tensor, f: impl Fn(i64) -> Scalar) -> Result<()> {
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    crate::with_dtype!(out.dtype(), [bool int uint half float complex] => T, {
        for (i, o) in cpu::slice_mut::<T>(&dense).iter_mut().enumerate() {
            *o = <T as crate::Element>::from_scalar(f(i as i64));
        }
        if !out.is_contiguous() {
            cpu::copy::copy(out, &dense)?;
        }
        return Ok(());
    }, else {});
    Err(out.dtype().no_kernel("arange_cpu"))
}

fn eye_rule(a: &Args, n: i64, m: Option<i64>, first: usize) -> Result<Plan> {
    ensure!(n >= 0, Runtime, "n must be greater or equal to 0, got {n}");
    let m = m.unwrap_or(n);
    ensure!(m >= 0, Runtime, "m must be greater or equal to 0, got {m}");
    sized(a, &[n, m], first)
}

fn eye(_: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], Scalar::Int(0))?;
    let (shape, strides) = (outs[0].shape(), outs[0].strides());
    let n = shape[0].min(shape[1]);
    cpu::fill(
        &outs[0].view_with(
            Dims::new(&[n]),
            Dims::new(&[strides[0] + strides[1]]),
            outs[0].offset(),
        ),
        Scalar::Int(1),
    )
}

fn tri_rows(a: &Args, lower: bool) -> Result<(i64, i64, i64, i64)> {
    let (rows, cols, offset) = (a.int(0)?, a.int(1)?, a.int(2)?);
    ensure!(rows >= 0, Runtime, "row must be non-negative, got{rows}");
    ensure!(cols >= 0, Runtime, "col must be non-negative, got{cols}");
    let width = |r: i64| {
        if lower {
            (r + offset + 1).clamp(0, cols)
        } else {
            (cols - (r + offset).max(0)).clamp(0, cols)
        }
    };
    Ok((rows, cols, offset, (0..rows).map(width).sum()))
}

fn infer_tri(a: &Args, lower: bool) -> Result<Plan> {
    let (.., n) = tri_rows(a, lower)?;
    Ok(Plan::contiguous(&[2, n], a.dtype(3).unwrap_or(DType::I64)).on(device_at(a, 5)?))
}

fn tri_fill(a: &Args, outs: &[Tensor], lower: bool) -> Result<()> {
    let (rows, cols, offset, n) = tri_rows(a, lower)?;
    let mut pairs = Vec::with_capacity(2 * n as usize);
    let mut columns = Vec::with_capacity(n as usize);
    for r in 0..rows {
        let range = if lower {
            0..(r + offset + 1).clamp(0, cols)
        } else {
            (r + offset).clamp(0, cols)..cols
        };
        for c in range {
            pairs.push(Scalar::Int(r));
            columns.push(Scalar::Int(c));
        }
    }
    pairs.extend(columns);
    let made = cpu::copy::from_scalars(&pairs, &[2, n], outs[0].dtype())?;
    cpu::copy::copy(&outs[0], &made)
}
