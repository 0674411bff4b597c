//! Factories: tensors from sizes and numbers.

use super::args::{Arg, Args};
use super::copy::strides_in;
use super::op::{F, KernelBody, M, O, OpDef, Plan, kernel};
use crate::dims::{self, MemoryFormat};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure, mode};

/// The schema of a factory: its own arguments, then the options that all factories share.
#[macro_export]
#[doc(hidden)]
macro_rules! factory_schema {
    ($args:literal) => {
        concat!($args, ", dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)")
    };
}

/// The family's rows.
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
        "arange",
        factory_schema!("(Scalar end, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, Scalar::Int(0), a.scalar(0)?, Scalar::Int(1), 1, true),
            |a, o| range(o, Scalar::Int(0), Scalar::Int(1), a.scalar(0)?),
        )
        .cuda(via_host),
        "Numbers from 0 up to `end`.",
    ),
    kernel(
        "arange#start",
        factory_schema!("(Scalar start, Scalar end, Scalar step=1, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, a.scalar(0)?, a.scalar(1)?, a.scalar(2)?, 3, true),
            |a, o| range(o, a.scalar(0)?, a.scalar(2)?, a.scalar(1)?),
        )
        .cuda(via_host),
        "Numbers from `start` up to `end`.",
    ),
    kernel(
        "range",
        factory_schema!("(Scalar start, Scalar end, Scalar step=1, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, a.scalar(0)?, a.scalar(1)?, a.scalar(2)?, 3, false),
            |a, o| range(o, a.scalar(0)?, a.scalar(2)?, a.scalar(1)?),
        )
        .cuda(via_host),
        "Numbers from `start` to `end` inclusive.",
    ),
    kernel(
        "linspace",
        factory_schema!("(Operand start, Operand end, int steps, *"),
        F | O,
        KernelBody::new(|a| infer_space(a, 3), |a, o| space(a, o, None)).cuda(via_host),
        "Evenly spaced numbers.",
    ),
    kernel(
        "logspace",
        factory_schema!("(Operand start, Operand end, int steps, float base=10.0, *"),
        F | O,
        KernelBody::new(|a| infer_space(a, 4), |a, o| space(a, o, Some(a.float(3)?)))
            .cuda(via_host),
        "Powers of a base at evenly spaced exponents.",
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
pub(super) fn via_host(a: &Args, outs: &[Tensor]) -> Result<()> {
    let super::op::Body::Kernel(k) = a.op.def.body else {
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
    (k.cpu)(a, &host)?;
    outs.iter()
        .zip(&host)
        .try_for_each(|(o, h)| super::call::copy_(o, h))
}

/// The device option at `i`, resolved.
fn device_at(a: &Args, i: usize) -> Result<Device> {
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
    super::mask::check_fits(a.scalar(1)?, plan.outs[0].dtype)?;
    Ok(plan)
}

fn infer_scalar(a: &Args) -> Result<Plan> {
    let mut plan = sized(a, &[], 1)?;
    plan.outs[0].dtype = a.dtype(1).unwrap_or_else(mode::default_dtype);
    Ok(plan)
}

fn strided(a: &Args, size: usize, first: usize, dtype: DType, device: Device) -> Result<Plan> {
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
    let _ = first;
    Ok(Plan::one(shape.clone(), strides.clone(), dtype).on(device))
}

fn infer_strided(a: &Args) -> Result<Plan> {
    strided(
        a,
        0,
        2,
        a.dtype(2).unwrap_or_else(mode::default_dtype),
        device_at(a, 4)?,
    )
}

fn infer_new_strided(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    strided(
        a,
        1,
        3,
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

fn show(s: Scalar) -> String {
    match s {
        Scalar::Float(f) if f.is_infinite() => {
            if f > 0.0 {
                "inf".into()
            } else {
                "-inf".into()
            }
        }
        Scalar::Float(f) => format!("{f}"),
        other => format!("{}", other.to_i64()),
    }
}

fn infer_range(
    a: &Args,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    first: usize,
    half_open: bool,
) -> Result<Plan> {
    let floating = [start, end, step].iter().any(|s| s.is_floating());
    let dtype = a.dtype(first).unwrap_or(if !half_open || floating {
        mode::default_dtype()
    } else {
        DType::I64
    });
    let (s, e, d) = (start.to_f64(), end.to_f64(), step.to_f64());
    ensure!(!d.is_nan() && d != 0.0, Runtime, "step must be nonzero");
    if dtype.is_integral(false) && step.is_floating() && step.to_i64() == 0 {
        bail!(Value, "step must be nonzero");
    }
    ensure!(
        s.is_finite() && e.is_finite(),
        Runtime,
        "unsupported range: {} -> {}",
        show(start),
        show(end)
    );
    ensure!(
        (d > 0.0 && e >= s) || (d < 0.0 && e <= s),
        Runtime,
        "upper bound and lower bound inconsistent with step sign"
    );
    let n = if dtype == DType::I64 && !floating {
        // Exact for integers beyond 2^53.
        let (s, e, d) = (
            i128::from(start.to_i64()),
            i128::from(end.to_i64()),
            i128::from(step.to_i64()),
        );
        if half_open {
            (e - s + d - d.signum()) / d
        } else {
            (e - s) / d + 1
        }
    } else if half_open {
        ((e - s) / d).ceil() as i128
    } else {
        ((e - s) / d + 1.0).floor() as i128
    };
    let n =
        i64::try_from(n).map_err(|_| crate::err!(Runtime, "invalid size, possible overflow?"))?;
    Ok(Plan::contiguous(&[n], dtype).on(device_at(a, first + 2)?))
}

fn range(outs: &[Tensor], start: Scalar, step: Scalar, _end: Scalar) -> Result<()> {
    let out = &outs[0];
    if out.dtype().is_integral(true) {
        let (s, d) = (start.to_i64(), step.to_i64());
        return write_with(out, |i| Scalar::Int(s.wrapping_add(d.wrapping_mul(i))));
    }
    let (s, d) = (start.to_f64(), step.to_f64());
    if out.dtype() == DType::F32 {
        let (s, d) = (s as f32 as f64, d);
        // The vector kernel computes start + step * i in double and rounds once.
        return write_with(out, |i| Scalar::Float(s + d * i as f64));
    }
    write_with(out, |i| Scalar::Float(s + d * i as f64))
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
    bail!(
        NotImplemented,
        "\"arange_cpu\" not implemented for '{}'",
        out.dtype().scalar_type()
    )
}

fn space_end(v: &Arg) -> Result<Scalar> {
    match v {
        Arg::Tensor(t) => t.item(),
        other => super::pointwise::scalar_of(other)
            .ok_or_else(|| crate::err!(Type, "linspace() needs numbers")),
    }
}

fn infer_space(a: &Args, first: usize) -> Result<Plan> {
    let steps = a.int(2)?;
    ensure!(steps >= 0, Runtime, "number of steps must be non-negative");
    let mut complex = false;
    for v in &a.values[..2] {
        match v {
            Arg::Tensor(t) => {
                ensure!(
                    t.ndim() == 0,
                    Runtime,
                    "linspace only supports 0-dimensional start and end tensors"
                );
                complex |= t.dtype().is_complex();
            }
            other => {
                complex |= matches!(super::pointwise::scalar_of(other), Some(Scalar::Complex(_)))
            }
        }
    }
    let default = if complex {
        mode::default_dtype().to_complex()
    } else {
        mode::default_dtype()
    };
    let device = match &a.values[0] {
        Arg::Tensor(t) if a.device(first + 2).is_none() => t.device(),
        _ => device_at(a, first + 2)?,
    };
    Ok(Plan::contiguous(&[steps], a.dtype(first).unwrap_or(default)).on(device))
}

fn space(a: &Args, outs: &[Tensor], base: Option<f64>) -> Result<()> {
    let (start, end) = (space_end(&a.values[0])?, space_end(&a.values[1])?);
    let out = &outs[0];
    let n = out.numel();
    let power = |v: Scalar| match (base, v) {
        (None, v) => v,
        (Some(b), Scalar::Complex(c)) => {
            Scalar::Complex(num_complex::Complex64::new(b, 0.0).powc(c))
        }
        (Some(b), v) => Scalar::Float(b.powf(v.to_f64())),
    };
    if n == 1 {
        return write_with(out, |_| power(start));
    }
    if out.dtype().is_complex() {
        let (s, e) = (start.to_c64(), end.to_c64());
        let step = if n > 1 {
            (e - s) / (n - 1) as f64
        } else {
            s * 0.0
        };
        return write_with(out, |i| {
            power(Scalar::Complex(if i < n / 2 {
                s + step * i as f64
            } else {
                e - step * (n - 1 - i) as f64
            }))
        });
    }
    if out.dtype().is_integral(true) && base.is_none() {
        let (s, e) = (start.to_i64(), end.to_i64());
        let step = if n > 1 {
            (e as f32 - s as f32) / (n - 1) as f32
        } else {
            0.0
        };
        return write_with(out, |i| {
            Scalar::Int(if i < n / 2 {
                (s as f32 + step * i as f32) as i64
            } else {
                (e as f32 - step * (n - 1 - i) as f32) as i64
            })
        });
    }
    if out.dtype() == DType::F64 {
        let (s, e) = (start.to_f64(), end.to_f64());
        let step = if n > 1 { (e - s) / (n - 1) as f64 } else { 0.0 };
        return write_with(out, |i| {
            power(Scalar::Float(if i < n / 2 {
                step.mul_add(i as f64, s)
            } else {
                (-step).mul_add((n - 1 - i) as f64, e)
            }))
        });
    }
    if out.dtype().is_reduced_float() && base.is_none() {
        return space_16bit(out, start.to_f64() as f32, end.to_f64() as f32);
    }
    // Symmetric about the middle, in single precision with fused steps as the vector kernel has it.
    let (s, e) = (start.to_f64() as f32, end.to_f64() as f32);
    let step = if n > 1 { (e - s) / (n - 1) as f32 } else { 0.0 };
    write_with(out, |i| {
        let v = if i < n / 2 {
            step.mul_add(i as f32, s)
        } else {
            (-step).mul_add((n - 1 - i) as f32, e)
        };
        match base {
            None => Scalar::Float(f64::from(v)),
            Some(b) => Scalar::Float(f64::from((b as f32).powf(v))),
        }
    })
}

/// Evenly spaced 16-bit numbers: every intermediate value is rounded to the type, as PyTorch's scalar arithmetic does.
fn space_16bit(out: &Tensor, start: f32, end: f32) -> Result<()> {
    let bf16 = out.dtype() == DType::BF16;
    let r = |v: f32| {
        if bf16 {
            half::bf16::from_f32(v).to_f32()
        } else {
            half::f16::from_f32(v).to_f32()
        }
    };
    let n = out.numel();
    let (start, end) = (r(start), r(end));
    let step = if n > 1 {
        r(r(end - start) / r((n - 1) as f32))
    } else {
        0.0
    };
    write_with(out, |i| {
        let v = if n == 1 || i < n / 2 {
            start + r(step * r(i as f32))
        } else {
            end - r(step * r((n - 1 - i) as f32))
        };
        Scalar::Float(f64::from(r(v)))
    })
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
