//! Copies, fills, and what becomes of a tensor in place; conversions are in `cast`.

use crate::dims::{self, MemoryFormat};
use crate::ops::batch;
use crate::ops::core::fits::check_filling;
use crate::ops::core::helpers;
use crate::ops::core::op::{
    Batch, F, FM, FMIO, Hidden, I, J, M, OpDef, Plan, Ret, X, compose, forward, kernel, view,
};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::source::{Provider, Source};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure, kernels};
use std::sync::Arc;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "copy",
        "(Tensor self, Tensor src, bool non_blocking=False)",
        I,
        body!(
            |a| copy_rule(a.input, a.src),
            |a, _, outs| write(a.src, &outs[0]),
            cuda: |a, _, outs| kernels::copy(&outs[0], a.src),
        )
        .any_device(2)
        .pointwise()
        .lazy_aware(),
        "The values of `src`, broadcast and converted, in the layout of `self`.",
    )
    .samples("f32[2, 3], f64[3]; i64[4], i64(2)")
    .grad(
        "CopyBackwards | self: zeros_like(grad); src: _grad.converted_back(grad, src.dtype, src.device)",
    )
    .batch(Batch::Pointwise),
    forward(
        "copy#number",
        "(Tensor self, Scalar src, bool non_blocking=False)",
        I,
        |a| {
            let number = f::ScalarTensor::new(a.src)
                .dtype(a.src.dtype(DType::F64))
                .device(Device::CPU)
                .call()?;
            let call = f::Copy::new(a.input, &number).non_blocking(a.non_blocking);
            Ok(call.args()?.to_owned())
        },
        "One number, converted, for every element of `self`.",
    )
    .samples("f32[2, 3], 2.5; i64[4], 3"),
    kernel(
        "clone",
        "(Tensor self, *, format? memory_format=None)",
        FM,
        body!(
            clone_rule,
            |a, _, outs| cpu::copy::copy(&outs[0], a.input),
            cuda: |a, _, outs| kernels::copy(&outs[0], a.input),
        )
        .lazy_aware(),
        "A copy with memory of its own.",
    )
    .samples("f32[3, 4]; b8[3, 4]; f32[3, 4], memory_format=contiguous_format")
    .grad("self: grad; jvp: linear")
    .batch(Batch::As(typed!(|a, _h| batch::clone(a), Hidden))),
    kernel(
        "_to_copy",
        "(Tensor self, dtype? dtype=None, device? device=None, format? memory_format=None)",
        0,
        body!(
            to_copy_rule,
            |a, _, outs| kernels::copy(&outs[0], a.input),
            cuda: |a, _, outs| kernels::copy(&outs[0], a.input),
        )
        .any_device(1)
        .lazy_aware(),
        "A copy in another dtype or on another device.",
    )
    .samples("f32[2, 3], dtype=f64; i64[3], dtype=b8")
    .grad(
        "ToCopyBackward0 | self: _grad.converted_back(grad, self.dtype, self.device); jvp: linear",
    )
    .batch(Batch::Lead),
    compose(
        "fill#tensor",
        "(Tensor self, Tensor value)",
        F | I | J,
        fill_tensor,
        "A tensor like `self` filled with the value of a 0-dimensional tensor.",
    )
    .samples("f32[2, 3], f32(2.5); i64[3], i64(7)")
    .grad("FillBackward1 in place FillBackward3 | self: zeros_like(grad); value: grad.sum(); jvp: linear"),
    kernel(
        "fill",
        "(Tensor self, Scalar value)",
        F | I | J,
        body!(
            |a| {
                check_filling(a.value, a.input.dtype(), a.input.numel())?;
                Ok(like(a.input))
            },
            |a, _, outs| cpu::fill(&outs[0], a.value),
            cuda: |a, _, outs| kernels::fill(&outs[0], a.value),
        )
        .pointwise()
        .lazy_aware(),
        "A tensor like `self` with every element set to a number.",
    )
    .samples("f32[3, 4], value=3; b8[3, 4], value=True")
    .overlaps()
    .grad("FillBackward0 in place FillBackward2 | self: zeros_like(grad)")
    .batch(Batch::Lead),
    kernel(
        "zero",
        "(Tensor self)",
        I | J,
        body!(
            |a| Ok(like(a.input)),
            |_, _, outs| cpu::fill(&outs[0], Scalar::Int(0)),
            cuda: |_, _, outs| kernels::fill(&outs[0], Scalar::Int(0)),
        )
        .pointwise()
        .lazy_aware(),
        "A tensor like `self` of zeros.",
    )
    .samples("f32[2, 3]; b8[3]")
    .overlaps()
    .grad("self: zeros_like(grad)")
    .batch(Batch::Lead),
    compose(
        "contiguous",
        "(Tensor self, *, format memory_format=contiguous_format)",
        M,
        contiguous,
        "The same values in a contiguous layout; itself if it has that.",
    )
    .samples("f32[3, 4]; b8[3, 4]")
    .batch(Batch::As(typed!(|a, _h| batch::contiguous(a), Hidden))),
    view(
        "alias",
        "(Tensor self)",
        0,
        |a| Ok(ViewPlan::of(a.input)),
        "Another tensor on the same memory.",
    )
    .samples("f32[2, 3]")
    .grad("self: grad; jvp: linear")
    .batch(Batch::Lead),
    view(
        "detach",
        "(Tensor self)",
        FM,
        |a| Ok(ViewPlan::of(a.input).detached()),
        "The same memory without gradient history.",
    )
    .samples("f32[2, 3]")
    .no_grad()
    .batch(Batch::Lead),
    compose(
        "resolve_conj",
        "(Tensor self)",
        FM,
        |a| resolved(a.input),
        "The tensor with a lazy conjugation carried out.",
    )
    .samples("f64[3, 4]; b8[3, 4]"),
    compose(
        "resolve_neg",
        "(Tensor self)",
        FM,
        |a| resolved(a.input),
        "The tensor with a lazy negation carried out.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "_conj_physical",
        "(Tensor self)",
        FM,
        |a| f::conj_physical(&f::alias(a.input)?).map(Ret::from),
        "The complex conjugate, computed at once.",
    )
    .samples("f32[3, 4]; c64[3]"),
    compose(
        "conj_physical",
        "(Tensor self)",
        FMIO | X | J,
        conj_physical,
        "The complex conjugate, computed at once; real tensors are returned as they are.",
    )
    .samples("f32[3, 4]; b8[3, 4]")
    .grad("in place ConjPhysicalBackward1 | self: grad.conj_physical(); jvp: self_t.conj_physical()"),
];

/// A result like `t`, dense in its order.
#[must_use]
pub fn like(t: &Tensor) -> Plan {
    Plan::one(
        t.shape().clone(),
        dims::preserved_strides(t.shape(), t.strides()),
        t.dtype(),
    )
}

fn copy_rule(dst: &Tensor, src: &Tensor) -> Result<Plan> {
    let shape = dims::broadcast(dst.shape(), src.shape())?;
    ensure!(
        shape == *dst.shape(),
        Runtime,
        "output with shape {} doesn't match the broadcast shape {shape}",
        dst.shape()
    );
    check_way(src, dst.device())?;
    warn_of_parts(src.dtype(), dst.dtype());
    Ok(like(dst).on(dst.device()))
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

/// Copies into memory that may be the source's own.
fn write(src: &Tensor, out: &Tensor) -> Result<()> {
    if src.device().is_cpu() && overlaps(out, src) {
        let aside = cpu::copy::dense(src, src.dtype())?;
        return cpu::copy::copy(out, &aside);
    }
    kernels::copy(out, src)
}

/// Same storage but another layout: the source has to be read out before it is overwritten.
fn overlaps(dst: &Tensor, src: &Tensor) -> bool {
    dst.shares_storage(src)
        && (dst.offset() != src.offset()
            || dst.strides() != src.strides()
            || dst.shape() != src.shape())
}

/// Refuses a copy from meta, or to a device that is not there; fake tensors are copied everywhere.
///
/// # Errors
/// If the elements, or the device, cannot be had.
pub fn check_way(t: &Tensor, to: Device) -> Result<()> {
    if t.storage().is_fake() {
        return Ok(());
    }
    if t.is_meta() && !to.is_meta() {
        return Err(no_data(t));
    }
    kernels::check(to)
}

/// Says that imaginary parts are left out.
fn warn_of_parts(from: DType, to: DType) {
    if from.is_complex() && !to.is_complex() && to != DType::Bool {
        crate::warn_once!("Casting complex values to real discards the imaginary part");
    }
}

fn clone_rule(a: &calls::Clone) -> Result<Plan> {
    let t = a.input;
    let strides = strides_in(t, a.memory_format.unwrap_or(MemoryFormat::Preserve))?;
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

fn to_copy_rule(a: &calls::_ToCopy) -> Result<Plan> {
    let t = a.input;
    let device = a.device.unwrap_or(t.device()).canonical();
    check_way(t, device)?;
    warn_of_parts(t.dtype(), a.dtype.unwrap_or(t.dtype()));
    let strides = strides_in(t, a.memory_format.unwrap_or(MemoryFormat::Preserve))?;
    Ok(Plan::one(t.shape().clone(), strides, a.dtype.unwrap_or(t.dtype())).on(device))
}

/// What has the elements of a tensor that shows a part of a file, was not written and goes to meta, in the tensor's order.
#[must_use]
pub fn file_behind(t: &Tensor, to: Device) -> Option<Arc<dyn Provider>> {
    if !to.is_meta() || t.is_lazy() {
        return None;
    }
    let item = t.dtype().size() as u64;
    let (at, n) = (t.offset() as u64 * item, t.numel() as u64 * item);
    t.storage().behind(at, n)
}

/// True if both have their elements in the same order, one after the other if one of them has.
fn lies_alike(a: &Tensor, b: &Tensor) -> bool {
    let steps = a.strides().iter().zip(b.strides().iter());
    let mut dims = steps.zip(a.shape().iter());
    a.shape() == b.shape() && dims.all(|((x, y), &n)| n <= 1 || x == y)
}

/// A tensor like `t` on meta, with the file that has its elements as its source.
///
/// # Errors
/// If the call that makes it fails.
pub fn on_meta(t: &Tensor, file: Arc<dyn Provider>) -> Result<Tensor> {
    let made = f::_ToCopy::new(t).device(Device::META).call()?;
    let plain = made.is_meta() && !made.storage().is_fake() && !made.storage().is_sourced();
    if plain && lies_alike(&made, t) {
        made.storage().set_source(Some(Source::File(file)));
    }
    Ok(made)
}

fn fill_tensor(a: &calls::FillTensor) -> Result<Tensor> {
    if a.value.ndim() != 0 {
        bail!(
            Runtime,
            "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.",
            a.value.ndim()
        );
    }
    f::copy(a.input, a.value)
}

fn contiguous(a: &calls::Contiguous) -> Result<Ret> {
    if a.input.is_contiguous_in(a.memory_format) {
        return Ok(Ret::Same(0));
    }
    ensure!(
        a.memory_format != MemoryFormat::Preserve,
        Runtime,
        "preserve memory format is unsupported by the contiguous operator"
    );
    helpers::clone(a.input, a.memory_format).map(Ret::from)
}

fn resolved(t: &Tensor) -> Result<Ret> {
    if t.is_lazy() {
        helpers::clone(t, MemoryFormat::Preserve).map(Ret::from)
    } else {
        Ok(Ret::Same(0))
    }
}

fn conj_physical(a: &calls::ConjPhysical) -> Result<Ret> {
    if !a.input.dtype().is_complex() {
        return Ok(Ret::Same(0));
    }
    // Of a lazy view this is what lies in memory, but never the memory itself.
    f::clone(&f::_conj(a.input)?).map(Ret::from)
}
