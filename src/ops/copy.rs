//! Copies, casts and fills.

use crate::dims::{self, MemoryFormat};
use crate::ops::core::args::Args;
use crate::ops::core::op::{
    F, FM, FMIO, I, KernelBody, M, OpDef, Plan, Ret, kernel, old_compose, old_view,
};
use crate::{DType, Device, Dims, Result, Tensor, bail, cpu, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "copy",
        "(Tensor self, Tensor src, bool non_blocking=False)",
        M | I,
        KernelBody::new(infer_copy, copy_cpu)
            .cuda(crate::cuda::copy::copy)
            .any_device(2)
            .pointwise()
            .lazy_aware(),
        "The values of `src`, broadcast and converted, in the layout of `self`.",
    ),
    kernel(
        "clone",
        "(Tensor self, *, format? memory_format=None)",
        FM,
        KernelBody::new(infer_clone, copy_first)
            .cuda(crate::cuda::copy::copy)
            .lazy_aware(),
        "A copy with memory of its own.",
    ),
    kernel(
        "_to_copy",
        "(Tensor self, dtype? dtype=None, device? device=None, format? memory_format=None)",
        F,
        KernelBody::new(infer_to_copy, copy_first)
            .cuda(crate::cuda::copy::copy)
            .any_device(1)
            .lazy_aware(),
        "A copy in another dtype or on another device.",
    ),
    kernel(
        "fill",
        "(Tensor self, Scalar value)",
        F | I,
        KernelBody::new(infer_fill, fill_cpu)
            .cuda(crate::cuda::map::fill)
            .pointwise()
            .lazy_aware(),
        "A tensor like `self` with every element set to a number.",
    ),
    old_compose(
        "fill#tensor",
        "(Tensor self, Tensor value)",
        F | I,
        fill_tensor,
        "A tensor like `self` filled with the value of a 0-dimensional tensor.",
    ),
    kernel(
        "zero",
        "(Tensor self)",
        F | I,
        KernelBody::new(infer_like, zero_cpu)
            .cuda(crate::cuda::map::zero)
            .pointwise()
            .lazy_aware(),
        "A tensor like `self` of zeros.",
    ),
    old_compose(
        "contiguous",
        "(Tensor self, *, format memory_format=contiguous_format)",
        M,
        contiguous,
        "The same values in a contiguous layout; itself if it has that.",
    ),
    old_view(
        "alias",
        "(Tensor self)",
        0,
        |a| Ok(a.tensor(0)?.detach().into()),
        "Another tensor on the same memory.",
    ),
    old_view(
        "detach",
        "(Tensor self)",
        FM,
        |a| Ok(a.tensor(0)?.detach().into()),
        "The same memory without gradient history.",
    ),
    old_compose(
        "resolve_conj",
        "(Tensor self)",
        FM,
        |a| crate::ops::core::helpers::resolve(a.tensor(0)?).map(Ret::from),
        "The tensor with a lazy conjugation carried out.",
    ),
    old_compose(
        "resolve_neg",
        "(Tensor self)",
        FM,
        |a| crate::ops::core::helpers::resolve(a.tensor(0)?).map(Ret::from),
        "The tensor with a lazy negation carried out.",
    ),
    old_compose(
        "to#dtype",
        "(Tensor self, dtype dtype, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        |a| to(a.tensor(0)?, a.dtype(1), None, a.bool(3), a.format(4)),
        "The tensor in another dtype.",
    ),
    old_compose(
        "to#device",
        "(Tensor self, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        |a| {
            to(
                a.tensor(0)?,
                a.dtype(2),
                a.device(1),
                a.bool(4),
                a.format(5),
            )
        },
        "The tensor on another device.",
    ),
    old_compose(
        "to#other",
        "(Tensor self, Tensor tensor, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        to_other,
        "The tensor in the dtype and on the device of another.",
    ),
    old_compose(
        "type_as",
        "(Tensor self, Tensor other)",
        M,
        |a| {
            to(
                a.tensor(0)?,
                Some(a.tensor(1)?.dtype()),
                Some(a.tensor(1)?.device()),
                false,
                None,
            )
        },
        "The tensor in the dtype of another.",
    ),
    old_compose(
        "cpu",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| to(a.tensor(0)?, None, Some(Device::CPU), false, a.format(1)),
        "The tensor on the host.",
    ),
    old_compose(
        "cuda",
        "(Tensor self, device? device=None, bool non_blocking=False, *, format? memory_format=None)",
        M,
        to_cuda,
        "The tensor on a GPU.",
    ),
    old_compose(
        "conj_physical",
        "(Tensor self)",
        FMIO,
        |a| {
            let t = a.tensor(0)?;
            if !t.dtype().is_complex() {
                return Ok(t.clone().into());
            }
            // Of a lazy view this is what lies in memory, but never the memory itself.
            run1!("clone", &t.clone().with_conj(!t.is_conj())).map(Ret::from)
        },
        "The complex conjugate, computed at once; real tensors are returned as they are.",
    ),
];

macro_rules! cast_methods {
    ($($name:literal $d:ident;)+) => {
        /// `x.float()`, `x.half()`, ...: a method for each dtype with a short name.
        pub static CASTS: &[OpDef] = &[$(
            old_compose($name, "(Tensor self, format? memory_format=None)", M, |a| to(a.tensor(0)?, Some(DType::$d), None, false, a.format(1)), concat!("The tensor as ", $name, "."))
        ),+];
    };
}
cast_methods! {
    "bool" Bool; "byte" U8; "char" I8; "short" I16; "int" I32; "long" I64; "half" F16; "bfloat16" BF16;
    "float" F32; "double" F64; "chalf" C32; "cfloat" C64; "cdouble" C128;
}

/// Rule: like the first argument, dense in its order.
///
/// # Errors
/// Never.
pub fn infer_like(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    Ok(Plan::one(
        t.shape().clone(),
        dims::preserved_strides(t.shape(), t.strides()),
        t.dtype(),
    ))
}

fn infer_fill(a: &Args) -> Result<Plan> {
    crate::ops::index::mask::check_fits(a.scalar(1)?, a.tensor(0)?.dtype())?;
    infer_like(a)
}

fn infer_copy(a: &Args) -> Result<Plan> {
    let (dst, src) = (a.tensor(0)?, a.tensor(1)?);
    let fits = dims::broadcast(dst.shape(), src.shape());
    match fits {
        Ok(s) if s == *dst.shape() => {}
        Ok(s) => bail!(
            Runtime,
            "output with shape {} doesn't match the broadcast shape {s}",
            dst.shape()
        ),
        Err(e) => return Err(e),
    }
    if src.is_meta() && !dst.is_meta() {
        return Err(no_data(src));
    }
    let device = dst.device();
    Ok(Plan::one(
        dst.shape().clone(),
        dims::preserved_strides(dst.shape(), dst.strides()),
        dst.dtype(),
    )
    .on(device))
}

/// The error for reading a meta tensor, with the way out.
#[cold]
#[must_use]
pub fn no_data(t: &Tensor) -> crate::Error {
    let mut e = crate::err!(NotImplemented, "Cannot copy out of meta tensor; no data!");
    if let Some(source) = t.storage().source() {
        e = e.with_note(&format!(
            " Its source is {source}: torchlike.materialize() makes it real."
        ));
    }
    e
}

fn copy_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let src = a.tensor(1)?;
    if src.device().kind == crate::DeviceKind::Cuda {
        return crate::cuda::copy::copy(a, outs);
    }
    if overlaps(&outs[0], src) {
        let aside = cpu::copy::dense(src, src.dtype())?;
        return cpu::copy::copy(&outs[0], &aside);
    }
    cpu::copy::copy(&outs[0], src)
}

/// Same storage but another layout: the source has to be read out before it is overwritten.
fn overlaps(dst: &Tensor, src: &Tensor) -> bool {
    dst.shares_storage(src)
        && (dst.offset() != src.offset()
            || dst.strides() != src.strides()
            || dst.shape() != src.shape())
}

fn infer_clone(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let strides = strides_in(t, a.format(1).unwrap_or(MemoryFormat::Preserve))?;
    Ok(Plan::one(t.shape().clone(), strides, t.dtype()))
}

/// Strides of a copy of `t` in a format.
///
/// # Errors
/// If the format needs another number of dimensions.
pub fn strides_in(t: &Tensor, format: MemoryFormat) -> Result<Dims> {
    match format {
        MemoryFormat::Preserve => Ok(dims::preserved_strides(t.shape(), t.strides())),
        other => dims::format_strides(t.shape(), other),
    }
}

fn infer_to_copy(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let device = a.device(2).unwrap_or(t.device()).canonical();
    if t.is_meta() && !device.is_meta() {
        return Err(no_data(t));
    }
    if device.kind == crate::DeviceKind::Cuda {
        crate::cuda::check(device)?;
    }
    let strides = strides_in(t, a.format(3).unwrap_or(MemoryFormat::Preserve))?;
    Ok(Plan::one(t.shape().clone(), strides, a.dtype(1).unwrap_or(t.dtype())).on(device))
}

fn copy_first(a: &Args, outs: &[Tensor]) -> Result<()> {
    let src = a.tensor(0)?;
    if src.device().kind == crate::DeviceKind::Cuda {
        return crate::cuda::copy::copy(a, outs);
    }
    cpu::copy::copy(&outs[0], src)
}

fn fill_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], a.scalar(1)?)
}

fn zero_cpu(_: &Args, outs: &[Tensor]) -> Result<()> {
    cpu::fill(&outs[0], crate::Scalar::Int(0))
}

fn fill_tensor(a: &Args) -> Result<Ret> {
    let (t, v) = (a.tensor(0)?, a.tensor(1)?);
    if v.ndim() != 0 {
        bail!(
            Runtime,
            "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
            v.ndim()
        );
    }
    let out = Tensor::empty_strided(
        t.shape().clone(),
        dims::preserved_strides(t.shape(), t.strides()),
        t.dtype(),
        t.device(),
    )?;
    crate::ops::core::helpers::copy_(&out, v)?;
    Ok(out.into())
}

fn contiguous(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let format = a.format(1).unwrap_or(MemoryFormat::Contiguous);
    if format == MemoryFormat::Preserve {
        bail!(
            Runtime,
            "preserve memory format is unsupported by the contiguous operator"
        );
    }
    if t.is_contiguous_in(format) {
        return Ok(t.clone().into());
    }
    run1!("clone", t, format).map(Ret::from)
}

/// `Tensor.to`: the tensor itself if nothing changes.
///
/// # Errors
/// If the data cannot be had or converted.
pub fn to(
    t: &Tensor,
    dtype: Option<DType>,
    device: Option<Device>,
    copy: bool,
    format: Option<MemoryFormat>,
) -> Result<Ret> {
    let dtype = dtype.unwrap_or(t.dtype());
    let here = crate::parts::located(t);
    let device = device.map_or(here, |d| {
        if d.kind == crate::DeviceKind::Cuda && d.index < 0 {
            Device::cuda(0)
        } else {
            d.canonical()
        }
    });
    let format_ok = match format {
        None | Some(MemoryFormat::Preserve) => true,
        // Whatever is not channels-last counts as the contiguous format here, dense or not.
        Some(f) => crate::ops::arrange::join::suggested_format(t) == f,
    };
    if dtype == t.dtype() && device == here && !copy && format_ok {
        return Ok(t.clone().into());
    }
    run1!("_to_copy", t, dtype, device, format).map(Ret::from)
}

fn to_cuda(a: &Args) -> Result<Ret> {
    let device = a.device(1).unwrap_or(Device::cuda(0));
    crate::cuda::check(device)?;
    to(a.tensor(0)?, None, Some(device), false, a.format(3))
}

fn to_other(a: &Args) -> Result<Ret> {
    let other = a.tensor(1)?;
    to(
        a.tensor(0)?,
        Some(other.dtype()),
        Some(other.device()),
        a.bool(3),
        a.format(4),
    )
}
