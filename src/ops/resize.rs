//! What becomes of a tensor in place: another size, another storage, a leaf of its own.

use crate::dims;
use crate::ops::copy::strides_in;
use crate::ops::core::op::{I, OpDef, becomes};
use crate::ops::core::{place, writable};
use crate::ops::create::factory::mark_unwritten;
use crate::ops::sparse::is_sparse;
use crate::ops::sparse::resize::resize_as as resize_as_sparse;
use crate::{Dims, Result, Storage, Tensor, ensure, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    becomes(
        "detach#inplace",
        "(Tensor self)",
        I,
        typed!(detach_),
        "The tensor itself without gradient history.",
    )
    .samples("f32[2, 3]")
    .no_grad(),
    becomes(
        "resize",
        "(Tensor self, int[*] size, *, format? memory_format=None)",
        I,
        typed!(resize),
        "Another shape on the tensor's own storage, which grows if it has to.",
    )
    .samples("f32[2, 3], [3, 2]; i64[6], [2]")
    .no_grad(),
    becomes(
        "resize_as",
        "(Tensor self, Tensor the_template, *, format? memory_format=None)",
        I,
        typed!(resize_as),
        "The shape of another tensor on the tensor's own storage.",
    )
    .samples("f32[2, 3], f32[6]")
    .no_grad(),
    becomes(
        "set",
        "(Tensor self)",
        0,
        typed!(set_empty),
        "The tensor without elements, on an empty storage.",
    )
    .samples("f32[2, 3]")
    .no_grad(),
    becomes(
        "set#tensor",
        "(Tensor self, Tensor source)",
        0,
        typed!(set_tensor),
        "The storage and layout of another tensor.",
    )
    .samples("f32[2, 3], f32[4]")
    .no_grad(),
    becomes(
        "set#tensor_layout",
        "(Tensor self, Tensor source, int storage_offset, int[] size, int[]? stride=None)",
        0,
        typed!(set_tensor_layout),
        "A layout of the storage of another tensor.",
    )
    .samples("f32[2], f32[6], 1, [2, 2], [2, 1]")
    .no_grad(),
    becomes(
        "set#storage",
        "(Tensor self, *, Tensor storage)",
        0,
        typed!(set_storage),
        "All elements of the storage of a tensor of any dtype, in one dimension.",
    )
    .samples("f32[2, 3], storage=f32[4]")
    .no_grad(),
    becomes(
        "set#storage_layout",
        "(Tensor self, int storage_offset, int[] size, int[]? stride=None, *, Tensor storage)",
        0,
        typed!(set_storage_layout),
        "A layout of the storage of a tensor of any dtype.",
    )
    .samples("f32[2, 3], 1, [2], storage=f32[4]")
    .no_grad(),
];

fn detach_(a: &calls::DetachInplace) -> Result<Tensor> {
    ensure!(
        !a.input.is_view(),
        Runtime,
        "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and \
         gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on these \
         gradients. To fix this error, please refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
    );
    a.input.forget_head();
    let t = a.input.clone().with_requires_grad(false);
    Ok(if a.input.node().is_some() {
        t.unlinked()
    } else {
        t
    })
}

/// Refuses to resize what requires gradients, or shows a part of it, where they are recorded at all.
/// Refuses to change the size of what wants gradients, or has a tangent.
///
/// # Errors
/// PyTorch's text.
pub fn check_resizable(t: &Tensor) -> Result<()> {
    ensure!(
        mode::inference() || !t.requires_grad() && !t.is_view_of_leaf(),
        Runtime,
        "cannot resize variables that require grad"
    );
    ensure!(
        mode::layers() & mode::FORWARD == 0 || t.tangents().is_empty(),
        Runtime,
        "cannot resize variables that has a forward grad"
    );
    Ok(())
}

fn resized(t: &Tensor, shape: &[i64], strides: Option<&Dims>) -> Result<Tensor> {
    let mut t = t.clone();
    let elements = |t: &Tensor| (t.storage().nbytes() / t.dtype().size()) as i64;
    let before = elements(&t);
    place::resize(&mut t, shape, strides)?;
    let more = elements(&t) - before;
    if mode::fills_blanks() && more > 0 {
        let (shape, strides) = (Dims::from([more]), Dims::from([1]));
        let new = Tensor::checked(t.storage().clone(), shape, strides, before, t.dtype())?;
        mark_unwritten(&new)?;
    }
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
    if is_sparse(t) {
        return resize_as_sparse(t, template);
    }
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
    let storage = a.input.storage().another(0)?;
    on_storage(a.input, &storage, (Dims::new(&[0]), Dims::new(&[1]), 0))
}

fn check_source(t: &Tensor, source: &Tensor) -> Result<()> {
    ensure!(
        source.dtype() == t.dtype(),
        Runtime,
        "Could not set tensor of type {} to a tensor of type {}",
        source.dtype().cpp_name(),
        t.dtype().cpp_name()
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
    use crate::ops::f;

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
