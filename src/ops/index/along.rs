//! Reading and writing along one dimension at indices: gather, index_select, index_add and their kin.

use crate::cpu::index::{self as cpu_index, Axis, Lay};
use crate::cpu::view::at_least_1d;
use crate::dims::{self, wrap_dim};
use crate::ops::core::op::{Batch, FMO, OpDef, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::index::room;
use crate::{DType, Dims, Error, Result, Tensor, ensure, err, kernels};

pub use crate::ops::index::getitem::{Index, Put, get_item, get_only, set_item};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "gather",
        "(Tensor self, int dim, Tensor index, *, bool sparse_grad=False)",
        FMO | X,
        body!(|a| gather_rule(a.input, a.dim, a.index), |a, dim, outs| {
            gather(a.input, *dim, a.index, false, &outs[0])
        }, cuda: |a, dim, outs| kernels::index::gather(&outs[0], a.input, *dim, &whole_numbers(a.index)?, false), scratch: |a, _, _, room| room::long(room, a.index).map(drop))
        .index_args(4),
        "The elements at `index` along a dimension.",
    )
    .apart(1).alike(4)
    .samples("f32[10, 5], 0, i64[5, 5].below(10); b8[10, 5], 0, i64[5, 5].below(10)")
    .grad("self: _grad.gather_backward(grad, self, dim, index, sparse_grad); jvp: linear"),
    kernel(
        "_gather_wrapped",
        "(Tensor self, int dim, Tensor index)",
        0,
        body!(|a| gather_rule(a.input, a.dim, a.index), |a, dim, outs| {
            gather(a.input, *dim, a.index, true, &outs[0])
        }, cuda: |a, dim, outs| kernels::index::gather(&outs[0], a.input, *dim, &whole_numbers(a.index)?, true), scratch: |a, _, _, room| room::long(room, a.index).map(drop))
        .index_args(4),
        "",
    )
    .samples("f32[3, 4], 1, i64([[0, -1], [3, 2], [1, 1]])")
    .grad("GatherBackward0 | self: _grad.gather_wrapped(grad, self, dim, index)"),
    kernel(
        "index_select",
        "(Tensor self, int dim, Tensor index)",
        FMO | X,
        body!(index_select_rule, index_select, cuda: |a, dim, outs| kernels::index::select(&outs[0], a.input, *dim, a.index), scratch: |a, _, _, room| room::long(room, a.index).map(drop)).index_args(4),
        "The slices at `index` along a dimension.",
    )
    .apart(0b101)
    .samples("f32[3, 4], -1, i64([0, 0, 0, 0, 0]); c64[3, 4], 0, i64([0])")
    .grad("self: _grad.index_select_backward(grad, self.sizes, dim, index); jvp: linear")
    .batch(Batch::Shared(4)),
    compose(
        "take_along_dim",
        "(Tensor self, Tensor indices, int? dim=None)",
        FMO | X,
        take_along_dim,
        "The elements at `indices` along a dimension, broadcast.",
    )
    .apart(1)
    .samples(
        "f32[5, 5], i64[5, 2].below(5); \
         b8[5, 5], i64[5, 5].below(5), 0; \
         f32[1, 5], i64[5, 2].below(5), 1",
    ),
];

/// Indices as 64-bit integers in any layout.
///
/// # Errors
/// If memory cannot be had.
pub fn long(t: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::I64 {
        Ok(t.clone())
    } else {
        kernels::converted(t, DType::I64)
    }
}

/// Indices as integers that kernels of other devices read.
pub(in crate::ops) fn whole_numbers(t: &Tensor) -> Result<Tensor> {
    if is_index(t.dtype()) {
        Ok(t.clone())
    } else {
        kernels::converted(t, DType::I64)
    }
}

/// Makes the result start as `self`, unless it is that very memory.
///
/// # Errors
/// If memory cannot be had.
pub fn start(out: &Tensor, t: &Tensor) -> Result<()> {
    let same = out.shares_storage(t)
        && out.data_ptr() == t.data_ptr()
        && out.strides() == t.strides()
        && out.dtype() == t.dtype();
    if same { Ok(()) } else { kernels::copy(out, t) }
}

/// A source that shares no memory with the result.
///
/// # Errors
/// If memory cannot be had.
pub fn apart(src: &Tensor, out: &Tensor) -> Result<Tensor> {
    if src.dtype() == out.dtype() && !src.shares_storage(out) {
        Ok(src.clone())
    } else {
        kernels::converted(src, out.dtype())
    }
}

/// The indexed dimension of a tensor; 0-dimensional tensors count as having one of size 1.
pub(in crate::ops) fn axis(t: &Tensor, dim: usize, wrap: bool) -> Axis {
    let (size, stride) = if t.ndim() == 0 {
        (1, 0)
    } else {
        (t.shape()[dim], t.strides()[dim])
    };
    Axis {
        step: stride as isize * t.dtype().size() as isize,
        size,
        wrap,
    }
}

pub(in crate::ops) fn size_at(t: &Tensor, dim: usize) -> i64 {
    if t.ndim() == 0 { 1 } else { t.shape()[dim] }
}

#[cold]
pub(in crate::ops) fn out_of_bounds(index: i64, dim: usize, size: i64) -> Error {
    err!(
        Runtime,
        "index {index} is out of bounds for dimension {dim} with size {size}"
    )
}

#[cold]
pub(in crate::ops) fn out_of_range() -> Error {
    err!(Index, "index out of range in self")
}

pub(in crate::ops) fn is_index(d: DType) -> bool {
    matches!(d, DType::I64 | DType::I32)
}

fn gather_rule(t: &Tensor, dim: i64, index: &Tensor) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    ensure!(
        is_index(index.dtype()) || index.numel() == 0,
        Runtime,
        "gather(): Expected dtype int32/int64 for index"
    );
    if index.numel() > 0 {
        ensure!(
            t.ndim().max(1) == index.ndim().max(1),
            Runtime,
            "Index tensor must have the same number of dimensions as input tensor"
        );
        for d in (0..t.ndim().max(1)).filter(|&d| d != dim) {
            ensure!(
                size_at(index, d) <= size_at(t, d),
                Runtime,
                "Size does not match at dimension {d} expected index {} to be no larger than self {} apart from dimension {dim}",
                index.shape(),
                t.shape()
            );
        }
    }
    Ok((Plan::contiguous(index.shape(), t.dtype()), dim))
}

/// `wrap`: negative indices count from the end.
fn gather(t: &Tensor, dim: usize, index: &Tensor, wrap: bool, out: &Tensor) -> Result<()> {
    let (out, index) = (at_least_1d(out), at_least_1d(&long(index)?));
    if out.numel() == 0 {
        return Ok(());
    }
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(&out, out.shape()),
        &Lay::without(t, dim),
        &Lay::of(&index, index.shape()),
        t.dtype().size(),
        axis(t, dim, wrap),
    );
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(t, dim))))
}

fn index_select_rule(a: &calls::IndexSelect) -> Result<(Plan, usize)> {
    let (t, index) = (a.input, a.index);
    let dim = wrap_dim(a.dim, t.ndim())?;
    ensure!(
        index.ndim() <= 1,
        Index,
        "index_select(): Index is supposed to be a vector"
    );
    ensure!(
        is_index(index.dtype()),
        Runtime,
        "index_select(): Expected dtype int32 or int64 for index"
    );
    let n = index.numel();
    if t.ndim() == 0 {
        ensure!(
            n == 1,
            Runtime,
            "index_select(): Index to scalar can have only 1 value, got {n} value(s)"
        );
        return Ok((Plan::contiguous(&[], t.dtype()), dim));
    }
    Ok((Plan::contiguous(&t.shape().with(dim, n), t.dtype()), dim))
}

/// Strides that read a list of indices along one dimension of a shape.
pub(in crate::ops) fn along(index: &Tensor, ndim: usize, dim: usize) -> Lay {
    let step = if index.ndim() == 0 {
        0
    } else {
        index.strides()[0]
    };
    Lay {
        ptr: index.data_ptr(),
        strides: Dims::filled(ndim.max(1), 0).with(dim, step),
    }
}

fn index_select(a: &calls::IndexSelect, &dim: &usize, outs: &[Tensor]) -> Result<()> {
    let (t, index) = (a.input, long(a.index)?);
    let (out, size) = (at_least_1d(&outs[0]), size_at(t, dim));
    ensure!(
        size > 0 || t.ndim() == 1 || index.numel() == 0,
        Runtime,
        "index_select(): self indexing axis dim should be positive"
    );
    if out.numel() == 0 {
        return Ok(());
    }
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(&out, out.shape()),
        &Lay::without(t, dim),
        &along(&index, t.ndim(), dim),
        t.dtype().size(),
        axis(t, dim, false),
    );
    // Columns are taken by a kernel of their own in PyTorch, which has other words
    let columns = dim == 1 && outs[0].is_contiguous();
    bad.map_or(Ok(()), |i| {
        Err(match columns {
            true => err!(
                Runtime,
                "INDICES element is out of DATA bounds, id={i} axis_dim={size}"
            ),
            false => out_of_range(),
        })
    })
}

fn take_along_dim(a: &calls::TakeAlongDim) -> Result<Tensor> {
    let (t, indices) = (a.input, a.indices);
    let Some(dim) = a.dim else {
        return f::_gather_wrapped(&f::reshape(t, &[-1])?, 0, &f::reshape(indices, &[-1])?);
    };
    ensure!(
        t.ndim() == indices.ndim(),
        Runtime,
        "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for input, and {} \
         dimensions for indices",
        t.ndim(),
        indices.ndim()
    );
    ensure!(
        indices.dtype() == DType::I64,
        Runtime,
        "torch.take_along_dim(): dtype of indices should be Long but got {}",
        indices.dtype().scalar_type()
    );
    let dim = wrap_dim(dim, t.ndim())?;
    if t.ndim() == 0 {
        return f::_gather_wrapped(t, 0, indices);
    }
    let both = dims::broadcast(&t.shape().with(dim, 1), &indices.shape().with(dim, 1))?;
    let spread = |t: &Tensor| f::expand(t, &both.with(dim, t.shape()[dim]));
    f::_gather_wrapped(&spread(t)?, dim as i64, &spread(indices)?)
}
