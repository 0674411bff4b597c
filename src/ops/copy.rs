//! Copies, fills, and what becomes of a tensor in place; conversions are in `cast`.

use crate::dims::{self, MemoryFormat};
use crate::ops::core::helpers;
use crate::ops::core::op::{
    F, FM, FMIO, I, J, M, OpDef, Plan, Ret, X, becomes, compose, kernel, view,
};
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::{place, writable};
use crate::ops::f;
use crate::ops::index::mask::check_fits;
use crate::{DeviceKind, Dims, Result, Scalar, Storage, Tensor, bail, cpu, cuda, ensure};
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
            cuda: |a, _, outs| cuda::copy::copy_into(&outs[0], a.src),
        )
        .any_device(2)
        .pointwise()
        .lazy_aware(),
        "The values of `src`, broadcast and converted, in the layout of `self`.",
    )
    .samples("f32[2, 3], f64[3]; i64[4], i64(2)"),
    kernel(
        "clone",
        "(Tensor self, *, format? memory_format=None)",
        FM,
        body!(
            clone_rule,
            |a, _, outs| cpu::copy::copy(&outs[0], a.input),
            cuda: |a, _, outs| cuda::copy::copy_into(&outs[0], a.input),
        )
        .lazy_aware(),
        "A copy with memory of its own.",
    )
    .samples("f32[3, 4]; b8[3, 4]; f32[3, 4], memory_format=contiguous_format"),
    kernel(
        "_to_copy",
        "(Tensor self, dtype? dtype=None, device? device=None, format? memory_format=None)",
        0,
        body!(
            to_copy_rule,
            |a, _, outs| fetch(a.input, &outs[0]),
            cuda: |a, _, outs| cuda::copy::copy_into(&outs[0], a.input),
        )
        .any_device(1)
        .lazy_aware(),
        "A copy in another dtype or on another device.",
    )
    .samples("f32[2, 3], dtype=f64; i64[3], dtype=b8"),
    kernel(
        "fill",
        "(Tensor self, Scalar value)",
        F | I | J,
        body!(
            |a| {
                check_fits(a.value, a.input.dtype())?;
                Ok(like(a.input))
            },
            |a, _, outs| cpu::fill(&outs[0], a.value),
            cuda: |a, _, outs| cuda::map::fill_with(&outs[0], a.value),
        )
        .pointwise()
        .lazy_aware(),
        "A tensor like `self` with every element set to a number.",
    )
    .samples("f32[3, 4], value=3; b8[3, 4], value=True")
    .overlaps(),
    compose(
        "fill#tensor",
        "(Tensor self, Tensor value)",
        F | I | J,
        fill_tensor,
        "A tensor like `self` filled with the value of a 0-dimensional tensor.",
    )
    .samples("f32[2, 3], f32(2.5); i64[3], i64(7)"),
    kernel(
        "zero",
        "(Tensor self)",
        I | J,
        body!(
            |a| Ok(like(a.input)),
            |_, _, outs| cpu::fill(&outs[0], Scalar::Int(0)),
            cuda: |_, _, outs| cuda::map::fill_with(&outs[0], Scalar::Int(0)),
        )
        .pointwise()
        .lazy_aware(),
        "A tensor like `self` of zeros.",
    )
    .samples("f32[2, 3]; b8[3]")
    .overlaps(),
    compose(
        "contiguous",
        "(Tensor self, *, format memory_format=contiguous_format)",
        M,
        contiguous,
        "The same values in a contiguous layout; itself if it has that.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    view(
        "alias",
        "(Tensor self)",
        0,
        |a| Ok(ViewPlan::of(a.input)),
        "Another tensor on the same memory.",
    )
    .samples("f32[2, 3]"),
    view(
        "detach",
        "(Tensor self)",
        FM,
        |a| {
            Ok(ViewPlan {
                detached: true,
                ..ViewPlan::of(a.input)
            })
        },
        "The same memory without gradient history.",
    )
    .samples("f32[2, 3]"),
    becomes(
        "detach#inplace",
        "(Tensor self)",
        I,
        typed!(detach_),
        "The tensor itself without gradient history.",
    )
    .samples("f32[2, 3]"),
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
        "conj_physical",
        "(Tensor self)",
        FMIO | X | J,
        conj_physical,
        "The complex conjugate, computed at once; real tensors are returned as they are.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    becomes(
        "resize",
        "(Tensor self, int[*] size, *, format? memory_format=None)",
        I,
        typed!(resize),
        "Another shape on the tensor's own storage, which grows if it has to.",
    )
    .samples("f32[2, 3], [3, 2]; i64[6], [2]"),
    becomes(
        "resize_as",
        "(Tensor self, Tensor the_template, *, format? memory_format=None)",
        I,
        typed!(resize_as),
        "The shape of another tensor on the tensor's own storage.",
    )
    .samples("f32[2, 3], f32[6]"),
    becomes(
        "set",
        "(Tensor self)",
        0,
        typed!(set_empty),
        "The tensor without elements, on an empty storage.",
    )
    .samples("f32[2, 3]"),
    becomes(
        "set#tensor",
        "(Tensor self, Tensor source)",
        0,
        typed!(set_tensor),
        "The storage and layout of another tensor.",
    )
    .samples("f32[2, 3], f32[4]"),
    becomes(
        "set#tensor_layout",
        "(Tensor self, Tensor source, int storage_offset, int[] size, int[]? stride=None)",
        0,
        typed!(set_tensor_layout),
        "A layout of the storage of another tensor.",
    )
    .samples("f32[2], f32[6], 1, [2, 2], [2, 1]"),
    becomes(
        "set#storage",
        "(Tensor self, *, Tensor storage)",
        0,
        typed!(set_storage),
        "All elements of the storage of a tensor of any dtype, in one dimension.",
    )
    .samples("f32[2, 3], storage=f32[4]"),
    becomes(
        "set#storage_layout",
        "(Tensor self, int storage_offset, int[] size, int[]? stride=None, *, Tensor storage)",
        0,
        typed!(set_storage_layout),
        "A layout of the storage of a tensor of any dtype.",
    )
    .samples("f32[2, 3], 1, [2], storage=f32[4]"),
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
    if src.is_meta() && !dst.is_meta() {
        return Err(no_data(src));
    }
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

/// Copies from any device into host memory.
fn fetch(src: &Tensor, out: &Tensor) -> Result<()> {
    if src.device().kind == DeviceKind::Cuda {
        return cuda::copy::copy_into(out, src);
    }
    cpu::copy::copy(out, src)
}

/// Copies into memory that may be the source's own.
fn write(src: &Tensor, out: &Tensor) -> Result<()> {
    if src.device().is_cpu() && overlaps(out, src) {
        let aside = cpu::copy::dense(src, src.dtype())?;
        return cpu::copy::copy(out, &aside);
    }
    fetch(src, out)
}

/// Same storage but another layout: the source has to be read out before it is overwritten.
fn overlaps(dst: &Tensor, src: &Tensor) -> bool {
    dst.shares_storage(src)
        && (dst.offset() != src.offset()
            || dst.strides() != src.strides()
            || dst.shape() != src.shape())
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
    if t.is_meta() && !device.is_meta() {
        return Err(no_data(t));
    }
    if device.kind == DeviceKind::Cuda {
        cuda::check(device)?;
    }
    let strides = strides_in(t, a.memory_format.unwrap_or(MemoryFormat::Preserve))?;
    Ok(Plan::one(t.shape().clone(), strides, a.dtype.unwrap_or(t.dtype())).on(device))
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
    if a.memory_format == MemoryFormat::Preserve {
        bail!(
            Runtime,
            "preserve memory format is unsupported by the contiguous operator"
        );
    }
    if a.input.is_contiguous_in(a.memory_format) {
        return Ok(Ret::Same(0));
    }
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

fn detach_(a: &calls::DetachInplace) -> Result<Tensor> {
    ensure!(
        !a.input.is_view(),
        Runtime,
        "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and \
         gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on these \
         gradients. To fix this error, please refer to the Optimizer.zero_grad() function in torch/nn/modules/module.py as a solution."
    );
    Ok(a.input.clone().with_requires_grad(false))
}

/// Refuses to resize what requires gradients, or shows a part of it.
fn check_resizable(t: &Tensor) -> Result<()> {
    ensure!(
        !t.requires_grad() && !t.is_view_of_leaf(),
        Runtime,
        "cannot resize variables that require grad"
    );
    Ok(())
}

fn resized(t: &Tensor, shape: &[i64], strides: Option<&Dims>) -> Result<Tensor> {
    let mut t = t.clone();
    place::resize(&mut t, shape, strides)?;
    Ok(t)
}

fn resize(a: &calls::Resize) -> Result<Tensor> {
    check_resizable(a.input)?;
    let strides = a
        .memory_format
        .map(|format| dims::format_strides(a.size, format))
        .transpose()?;
    ensure!(
        a.size.iter().all(|&d| d >= 0),
        Runtime,
        "numel: integer multiplication overflow"
    );
    resized(a.input, a.size, strides.as_ref())
}

fn resize_as(a: &calls::ResizeAs) -> Result<Tensor> {
    let (t, template) = (a.input, a.the_template);
    check_resizable(t)?;
    let strides = a
        .memory_format
        .map(|format| strides_in(template, format))
        .transpose()?;
    if t.shape() == template.shape() && strides.is_none() {
        return Ok(t.clone());
    }
    resized(t, template.shape(), strides.as_ref())
}

/// `t` as another layout of a storage, which grows if it has to.
fn on_storage(t: &Tensor, storage: &Storage, plan: (Dims, Dims, i64)) -> Result<Tensor> {
    writable::check_leaf(t)?;
    ensure!(
        storage.device() == t.device(),
        Runtime,
        "Attempted to set the storage of a tensor on device \"{}\" to a storage on different device \"{}\".  This is no longer \
         allowed; the devices must match.",
        t.device(),
        storage.device()
    );
    let (shape, strides, offset) = plan;
    let need = dims::storage_bytes(&shape, &strides, offset, t.dtype().size())?;
    if need > storage.nbytes() {
        storage.resize(need)?;
    }
    Ok(
        Tensor::checked(storage.clone(), shape, strides, offset, t.dtype())?
            .with_requires_grad(t.requires_grad()),
    )
}

fn set_empty(a: &calls::Set) -> Result<Tensor> {
    let storage = Storage::empty(0, a.input.device())?;
    on_storage(a.input, &storage, (Dims::new(&[0]), Dims::new(&[1]), 0))
}

fn check_source(t: &Tensor, source: &Tensor) -> Result<()> {
    ensure!(
        source.dtype() == t.dtype(),
        Runtime,
        "Could not set tensor of type {} to a tensor of type {}",
        source.dtype().scalar_type().to_lowercase(),
        t.dtype().scalar_type().to_lowercase()
    );
    Ok(())
}

fn set_tensor(a: &calls::SetTensor) -> Result<Tensor> {
    let (t, source) = (a.input, a.source);
    check_source(t, source)?;
    let layout = (
        source.shape().clone(),
        source.strides().clone(),
        source.offset(),
    );
    on_storage(t, source.storage(), layout)
}

/// Sizes, strides (row-major unless given) and offset.
fn layout(size: &[i64], stride: Option<&[i64]>, offset: i64) -> (Dims, Dims, i64) {
    let strides = stride.map_or_else(|| dims::contiguous_strides(size), Dims::new);
    (Dims::new(size), strides, offset)
}

fn set_tensor_layout(a: &calls::SetTensorLayout) -> Result<Tensor> {
    check_source(a.input, a.source)?;
    on_storage(
        a.input,
        a.source.storage(),
        layout(a.size, a.stride, a.storage_offset),
    )
}

fn set_storage(a: &calls::SetStorage) -> Result<Tensor> {
    let storage = a.storage.storage();
    let whole = (storage.nbytes() / a.input.dtype().size()) as i64;
    on_storage(a.input, storage, layout(&[whole], None, 0))
}

fn set_storage_layout(a: &calls::SetStorageLayout) -> Result<Tensor> {
    on_storage(
        a.input,
        a.storage.storage(),
        layout(a.size, a.stride, a.storage_offset),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::core::call::Call;
    use crate::ops::core::dispatch;
    use crate::ops::core::op::Ret;

    fn made(args: &crate::ops::Args) -> Result<Tensor> {
        dispatch::call(Call::in_place(args)?).and_then(Ret::one)
    }

    #[test]
    fn a_tensor_gets_another_size_or_storage() {
        let x = Tensor::from_slice(&[1f32, 2., 3.], &[3]).unwrap();
        let small = made(&f::Resize::new(&x, &[2]).args().unwrap()).unwrap();
        assert_eq!(small.to_vec::<f32>().unwrap(), [1., 2.]);
        let other = Tensor::from_slice(&[5f32, 6.], &[2]).unwrap();
        let set = made(&f::SetTensor::new(&x, &other).args().unwrap()).unwrap();
        assert!(set.shares_storage(&other));
        let leaf = x.clone().with_requires_grad(true);
        let e = made(&f::Resize::new(&leaf, &[2]).args().unwrap()).unwrap_err();
        assert_eq!(e.message(), "cannot resize variables that require grad");
        assert!(made(&f::SetTensor::new(&leaf, &other).args().unwrap()).is_err());
        let free = made(&f::DetachInplace::new(&leaf).args().unwrap()).unwrap();
        assert!(!free.requires_grad());
        let view = f::select(&x, 0, 0).unwrap();
        assert!(made(&f::DetachInplace::new(&view).args().unwrap()).is_err());
    }
}
