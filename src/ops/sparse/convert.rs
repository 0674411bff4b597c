//! Sparse tensors made of parts and of strided ones, and back.

use super::coo::Coo;
use super::pressed::{Pressed, kind_of};
use super::{Sparse, is_sparse};
use crate::ops::core::helpers::has_no_values;
use crate::ops::core::op::{F, M, O, OpDef, Ret, compose};
use crate::ops::f;
use crate::parts::{Compressed, Layout};
use crate::{DType, Dims, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_sparse_coo_tensor_unsafe",
        "(Tensor indices, Tensor values, int[] size, *, bool? is_coalesced=None)",
        F,
        |a| {
            Coo {
                indices: a.indices.clone(),
                values: a.values.clone(),
                shape: Dims::new(a.size),
                coalesced: a.is_coalesced.unwrap_or(a.indices.shape().last().is_some_and(|&n| n < 2)),
            }
            .build()
        },
        "A sparse tensor by coordinates, which are checked all the same.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseCooTensorWithDimsAndTensorsBackward0 | values: _grad.sparse_values(grad, indices)"),
    compose(
        "_sparse_compressed",
        "(Tensor compressed, Tensor plain, Tensor values, int[] size, str layout)",
        F,
        |a| {
            Pressed {
                kind: kind_of(a.layout)?,
                compressed: a.compressed.clone(),
                plain: a.plain.clone(),
                values: a.values.clone(),
                shape: Dims::new(a.size),
            }
            .build()
        },
        "A sparse tensor of compressed rows or columns.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseCompressedTensorBackward0 | values: _grad.compressed_values(grad, compressed, plain, values, size, layout)"),
    compose(
        "_to_sparse",
        "(Tensor self, str layout, int[]? blocksize=None, int? dense_dim=None, str way='layout')",
        F,
        to_sparse,
        "A tensor in a sparse layout.",
    )
    .samples("see tests/test_sparse.py")
    .grad("ToSparse{way sparse_dim=Backward0 layout=Backward1 csr=CsrBackward0 csc=CscBackward0 bsr=BsrBackward0 bsc=BscBackward0} | self: _grad.strided(grad, self); complex: never('{way sparse_dim=_to_sparse layout=_to_sparse csr=_to_sparse_csr csc=_to_sparse_csc bsr=_to_sparse_bsr bsc=_to_sparse_bsc}')"),
    compose(
        "_convert_indices_from_coo_to_csr",
        "(Tensor self, int size, *, bool out_int32=False)",
        F | O,
        starts,
        "Where the entries of each of `size` rows begin, of sorted rows.",
    )
    .samples("i64([0, 1, 1]), 3; i32([0, 2]), 4, out_int32=True")
    .no_grad(),
    compose(
        "_convert_indices_from_csr_to_coo",
        "(Tensor crow_indices, Tensor col_indices, *, bool out_int32=False, bool transpose=False)",
        F | O,
        coordinates,
        "The rows and columns of entries of compressed rows.",
    )
    .samples("i64([0, 1, 3]), i64([0, 1, 2]); i64([0, 1, 3]), i64([0, 1, 2]), out_int32=True, transpose=True")
    .no_grad(),
    compose(
        "_to_dense",
        "(Tensor self, dtype? dtype=None, bool? masked_grad=None)",
        F,
        |a| {
            let made = match Sparse::of(a.input) {
                Some(Sparse::Coo(c)) => c.dense()?,
                Some(Sparse::Pressed(p)) => p.dense()?,
                None if a.input.has_parts() => bail!(
                    Runtime,
                    "to_dense(): a tensor that is neither strided nor sparse"
                ),
                None => match a.dtype {
                    Some(d) if d != a.input.dtype() => a.input.clone(),
                    _ => return Ok(Ret::Same(0)),
                },
            };
            match a.dtype {
                Some(d) => f::to_dtype(&made, d),
                None => Ok(made),
            }
            .map(Ret::One)
        },
        "A strided tensor with the same values.",
    )
    .samples("f32[2, 3]; f32[2, 3], f64")
    .grad("ToDenseBackward0 | self: _grad.masked_by(grad, self)"),
    compose(
        "_coalesce",
        "(Tensor self)",
        F,
        |a| match Sparse::of(a.input) {
            Some(Sparse::Coo(c)) if c.coalesced => Ok(Ret::Same(0)),
            Some(Sparse::Coo(c)) => c.coalesce()?.build().map(Ret::One),
            _ => bail!(
                Runtime,
                "coalesce expected sparse coordinate tensor layout but got {}",
                layout_name(a.input)
            ),
        },
        "A sparse tensor with sorted coordinates, each once.",
    )
    .samples("see tests/test_sparse.py")
    .grad("CoalesceBackward0 | self: grad"),
    compose(
        "_sparse_values",
        "(Tensor self)",
        F,
        |a| match Sparse::of(a.input) {
            Some(s) => Ok(s.values().clone()),
            None => bail!(
                Runtime,
                "values expected sparse tensor layout but got {}",
                layout_name(a.input)
            ),
        },
        "The values of a sparse tensor's entries.",
    )
    .samples("see tests/test_sparse.py")
    .grad("ValuesBackward0 | self: _grad.with_values(grad, self)"),
    compose(
        "sparse_mask",
        "(Tensor self, Tensor mask)",
        M,
        sparse_mask,
        "The elements at the places that a sparse tensor has.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseMaskBackward0 | self: _grad.strided(grad, self)"),
];

/// `Strided`, `SparseCsr`: as messages say it.
pub(crate) fn layout_name(t: &Tensor) -> String {
    let layout = t.storage().parts().map(|p| p.stored());
    layout.unwrap_or(Layout::Strided).word().to_owned()
}

fn to_sparse(a: &calls::_ToSparse) -> Result<Ret> {
    let t = a.input;
    let parts = t.storage().parts();
    ensure!(
        !t.has_parts() || is_sparse(t),
        Runtime,
        "to_sparse(): a {} tensor cannot be sparse",
        parts.as_ref().map_or("strided", |p| p.describe())
    );
    if parts.as_ref().is_some_and(|p| p.layout() == a.layout) && a.blocksize.is_none() {
        return Ok(Ret::Same(0));
    }
    let dense = usize::try_from(a.dense_dim.unwrap_or(0)).unwrap_or(usize::MAX);
    ensure!(
        dense <= t.ndim(),
        Runtime,
        "to_sparse: argument sparse_dim must be in [0,{}] range, but {} is given",
        t.ndim(),
        (t.ndim() as i64).saturating_sub(a.dense_dim.unwrap_or(0))
    );
    if a.layout == "sparse_coo" {
        let made = match Sparse::of(t) {
            Some(s) => s.coo()?,
            None => Coo::of_dense(t, dense)?,
        };
        return made.build().map(Ret::One);
    }
    let kind = kind_of(a.layout)?;
    let block = match (kind.blocks(), a.blocksize) {
        (true, Some(&[r, c])) => Some([r, c]),
        (false, None) => None,
        (true, _) => bail!(
            Runtime,
            "to_sparse: for {} the blocksize has to be given as two sizes",
            a.layout
        ),
        (false, Some(_)) => bail!(
            Runtime,
            "to_sparse: conversion to {} does not use specified blocksize",
            a.layout
        ),
    };
    let made = match (Sparse::of(t), block) {
        (None, _) => Pressed::of_dense(t, kind, block, dense)?,
        (Some(Sparse::Coo(c)), None) if c.sparse_dims() == 2 => Pressed::of_coo(c, kind)?,
        (Some(Sparse::Pressed(p)), None) if p.batch() == 0 && p.block().is_none() => {
            Pressed::of_coo(p.coo()?, kind)?
        }
        (Some(s), _) => Pressed::of_dense(&s.coo()?.dense()?, kind, block, dense)?,
    };
    let made = match Sparse::of(t) {
        Some(Sparse::Pressed(p)) => made.indexed_by(p.plain.dtype())?,
        _ => made,
    };
    made.build().map(Ret::One)
}

/// The dtype of indices that a call asks for.
fn index_dtype(out_int32: bool) -> DType {
    if out_int32 { DType::I32 } else { DType::I64 }
}

/// Where the entries of each row begin, of rows in ascending order.
fn starts(a: &calls::_ConvertIndicesFromCooToCsr) -> Result<Tensor> {
    let rows = f::Arange::new(a.size.saturating_add(1))
        .dtype(a.input.dtype())
        .device(a.input.device())
        .call()?;
    f::Searchsorted::new(a.input, &rows)
        .out_int32(a.out_int32)
        .call()
}

/// The coordinates of entries, whose rows are told by where these begin.
fn coordinates(a: &calls::_ConvertIndicesFromCsrToCoo) -> Result<Tensor> {
    let (starts, plain) = (a.crow_indices, a.col_indices);
    let batch = starts.ndim().saturating_sub(1);
    ensure!(
        starts.ndim() == plain.ndim()
            && starts.ndim() > 0
            && starts.shape()[..batch] == plain.shape()[..batch],
        Runtime,
        "crow_indices and col_indices are supposed to have the same dimensionality, but got {} and {}",
        starts.ndim(),
        plain.ndim()
    );
    let pressed = Pressed {
        kind: if a.transpose {
            Compressed::Csc
        } else {
            Compressed::Csr
        },
        compressed: starts.clone(),
        plain: plain.clone(),
        values: plain.clone(),
        shape: Dims::new(starts.shape()),
    };
    f::to_dtype(&pressed.coordinates()?, index_dtype(a.out_int32))
}

fn sparse_mask(a: &calls::SparseMask) -> Result<Tensor> {
    let t = a.input;
    let Some(mask) = Sparse::of(a.mask) else {
        bail!(
            Runtime,
            "sparse_mask(): the mask has to be a sparse tensor, but its layout is {}",
            layout_name(a.mask)
        );
    };
    ensure!(
        t.shape() == a.mask.shape(),
        Runtime,
        "sparse_mask(): operands have incompatible sizes; self has size {} but mask has size {}",
        t.shape(),
        a.mask.shape()
    );
    let from = match Sparse::of(t) {
        Some(s) => s.coo()?.dense()?,
        None => t.clone(),
    };
    match mask {
        // What comes twice in a mask is one place.
        Sparse::Coo(c) if has_no_values(&c.indices) => c.filled_from(&from)?.build(),
        Sparse::Coo(c) => c.coalesce()?.filled_from(&from)?.build(),
        Sparse::Pressed(p) => {
            let picked = p.clone().coo()?.filled_from(&from)?.values;
            // Blocks have an entry for each element, in its order.
            let values = f::reshape(&picked, p.values.shape())?;
            Pressed { values, ..p }.build()
        }
    }
}
