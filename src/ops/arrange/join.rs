//! Joining tensors: cat, stack and their kin, block_diag.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, FM, Hidden, O, OpDef, Plan, Ret, compose, kernel};
use crate::ops::core::typed::Tensors;
use crate::ops::f;
use crate::ops::pointwise::rule::result_type;
use crate::ops::view::part::chunk_size;
use crate::{DType, Dims, Result, Tensor, bail, dtype, ensure, err, kernels};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "cat",
        "(Tensor[] tensors, int dim=0)",
        F | O,
        body!(cat, anywhere: |a, dim, outs| kernels::arrange::cat(&outs[0], a.tensors.iter(), *dim)),
        "Tensors one after another along a dimension.",
    )
    .apart(1)
    .samples("[f32[3, 4]], 1; [b8[5, 5], b8[5, 5]], dim=-1; [f32[0], f32[5, 5]], dim=1")
    .grad("tensors: _grad.cat_back(grad, tensors.sizes, dim)")
    .batch(Batch::As(typed!(batch::cat, Hidden)))
    .amp(Cast::Widest, Cast::Kept),
    kernel(
        "stack",
        "(Tensor[] tensors, int dim=0)",
        F | O,
        body!(stack, anywhere: |a, dim, outs| {
            kernels::arrange::stack(&outs[0], a.tensors.iter(), *dim)
        }),
        "Tensors side by side along a new dimension.",
    )
    .apart(1)
    .samples(
        "[f32[1, 2, 1, 4], f32[1, 2, 1, 4], f32[1, 2, 1, 4]], 0; \
         [c64[1, 2, 1, 4], c64[1, 2, 1, 4], c64[1, 2, 1, 4]], 1",
    )
    .grad("tensors: _grad.stack_back(grad, dim)")
    .batch(Batch::Inserting)
    .amp(Cast::Widest, Cast::Kept),
    compose(
        "_chunk_cat",
        "(Tensor[] tensors, int dim, int num_chunks)",
        F | O,
        chunk_cat,
        "Each tensor cut along `dim` into chunks of one size, filled up with zeros, and the chunks side by side.",
    )
    .samples("[f32[5, 2], f32[3, 2]], 0, 2")
    .refused(),
    compose(
        "hstack",
        "(Tensor[] tensors)",
        F | O,
        |a| {
            let list = f::atleast_1d_list(some(a.tensors, "hstack")?)?;
            let dim = if list[0].ndim() == 1 { 0 } else { 1 };
            f::Cat::new(&list).dim(dim).call()
        },
        "Tensors side by side along the second dimension (the first of 1-dimensional ones).",
    )
    .apart(1)
    .samples("(f32[5, 5], f32[5, 5], f32[5, 5]); (b8[5, 5], b8[5, 5], b8[5, 5])"),
    compose(
        "vstack",
        "(Tensor[] tensors)",
        F | O,
        |a| {
            let list = f::atleast_2d_list(some(a.tensors, "vstack")?)?;
            f::cat(&list)
        },
        "Tensors one below another as rows.",
    )
    .apart(1)
    .samples("(f32[5], f32[5], f32[5]); (b8[5, 5], b8[5, 5], b8[5, 5])"),
    compose(
        "dstack",
        "(Tensor[] tensors)",
        F | O,
        |a| {
            let list = f::atleast_3d_list(some(a.tensors, "dstack")?)?;
            f::Cat::new(&list).dim(2).call()
        },
        "Tensors one behind another along the third dimension.",
    )
    .apart(1)
    .samples("(f32[5], f32[5], f32[5])"),
    compose(
        "column_stack",
        "(Tensor[] tensors)",
        F | O,
        column_stack,
        "Tensors side by side as columns.",
    )
    .apart(1)
    .samples("[f64[5], f64[5, 5]]; [b8[5, 2, 1], b8[5, 3, 1]]"),
    compose(
        "atleast_1d",
        "(Tensor self)",
        F,
        |a| at_least(a.input, 1),
        "A tensor with at least one dimension.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "atleast_1d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| {
            a.tensors
                .iter()
                .map(f::atleast_1d)
                .collect::<Result<Vec<_>>>()
        },
        "Tensors with at least one dimension.",
    )
    .samples(
        "[c64[5, 5, 5, 5], c64[5, 5, 5], c64[5, 5], c64[5], c64[()]]; \
         [b8[5, 5, 5, 5], b8[5, 5, 5], b8[5, 5], b8([False, True, False, True, True]), b8(True)]",
    ),
    compose(
        "atleast_2d",
        "(Tensor self)",
        F,
        |a| at_least(a.input, 2),
        "A tensor with at least two dimensions.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "atleast_2d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| {
            a.tensors
                .iter()
                .map(f::atleast_2d)
                .collect::<Result<Vec<_>>>()
        },
        "Tensors with at least two dimensions.",
    )
    .samples(
        "[c64[5, 5, 5, 5], c64[5, 5, 5], c64[5, 5], c64[5], c64[()]]; \
         [b8[5, 5, 5, 5], b8[5, 5, 5], b8[5, 5], b8([False, True, False, True, True]), b8(True)]",
    ),
    compose(
        "atleast_3d",
        "(Tensor self)",
        F,
        |a| at_least(a.input, 3),
        "A tensor with at least three dimensions.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "atleast_3d#list",
        "(Tensor[*] tensors) -> Tensor[]",
        F,
        |a| {
            a.tensors
                .iter()
                .map(f::atleast_3d)
                .collect::<Result<Vec<_>>>()
        },
        "Tensors with at least three dimensions.",
    )
    .samples("[i8[5, 5, 5, 5], i8[5, 5, 5], i8[5, 5], i8([-9, -6, -3, -2, -9]), i8(8)]"),
    compose(
        "block_diag",
        "(Tensor[*] tensors=())",
        F,
        |a| block_diag(a.tensors, 0),
        "A matrix with the tensors along its diagonal.",
    )
    .samples("f32[2, 5], f32[5]; c64[1], c64[2], c64[3]; f32[1], f32[2], f32[3]")
    .grad("tensors: _grad.block_diag_back(grad, tensors.sizes)")
    .batch(Batch::As(typed!(|a, h| batch::one(block_diag(a.tensors, h.k)), Hidden))),
    compose(
        "unsafe_split",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        FM,
        |a| Ok(apart(f::Split::new(a.input, a.split_size).dim(a.dim).call()?)),
        "As `split`; the parts count their changes apart.",
    )
    .samples("f32[3, 4], 5, 1; b8[3, 4], 2")
    .grad("UnsafeSplitBackward0 | self: _grad.split_back(grads, self.sizes, split_size, dim)"),
    compose(
        "unsafe_split_with_sizes",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        FM,
        |a| {
            let parts = f::SplitWithSizes::new(a.input, a.split_sizes).dim(a.dim);
            Ok(apart(parts.call()?))
        },
        "As `split_with_sizes`; the parts count their changes apart.",
    )
    .samples("f32[5, 2], [2, 3]")
    .grad("UnsafeSplitWithSizesBackward0 | self: _grad.split_sizes_back(grads, self.sizes, split_sizes, dim)"),
    compose(
        "unsafe_chunk",
        "(Tensor self, int chunks, int dim=0) -> Tensor[]",
        FM,
        unsafe_chunk,
        "As `chunk`.",
    )
    .samples("f32[3, 4], 2; c64[3, 4], 2; f32[3, 4], 5, 1"),
];

/// Parts whose writes are not counted as the whole's, and have histories of their own.
fn apart(parts: Vec<Tensor>) -> Vec<Tensor> {
    let apart = |t: Tensor| {
        let t = t.silent(true);
        // One with a history was made above the tape, which `split` is on then.
        match t.link() {
            Some(_) => t.of_new_family(),
            None => t.of_its_own(),
        }
    };
    parts.into_iter().map(apart).collect()
}

fn unsafe_chunk(a: &calls::UnsafeChunk) -> Result<Vec<Tensor>> {
    match chunk_size(a.input, a.chunks, a.dim)? {
        (0, d) => {
            let none = vec![0; a.chunks as usize];
            f::UnsafeSplitWithSizes::new(a.input, &none).dim(d).call()
        }
        (size, d) => f::UnsafeSplit::new(a.input, size).dim(d).call(),
    }
}

/// A tensor that PyTorch's cat skips whatever its dimension: one of shape `[0]`.
fn skipped(t: &Tensor) -> bool {
    t.ndim() == 1 && t.shape()[0] == 0
}

/// The common dtype of a list, 0-dimensional tensors counting less.
fn common_dtype(list: Tensors) -> Result<DType> {
    if let Some(first) = list.get(0)
        && list.iter().all(|t| t.dtype() == first.dtype())
    {
        return Ok(first.dtype());
    }
    let args: SmallVec<[crate::ops::Arg; 8]> = list.iter().map(Into::into).collect();
    result_type(&args)
}

/// Rule of `cat`; finds the dimension.
fn cat(a: &calls::Cat) -> Result<(Plan, usize)> {
    let list = a.tensors;
    ensure!(
        !list.is_empty(),
        Value,
        "torch.cat(): expected a non-empty list of Tensors"
    );
    if let Some(i) = list.iter().position(|t| t.ndim() == 0) {
        bail!(
            Runtime,
            "zero-dimensional tensor (at position {i}) cannot be concatenated"
        );
    }
    let dtype = common_dtype(list)?;
    let Some(first) = list.iter().find(|t| !skipped(t)) else {
        // Only empty vectors: the dimension does not matter to PyTorch beyond being one of a vector or more.
        return Ok((Plan::contiguous(&[0], dtype), 0));
    };
    let dim = wrap_dim(a.dim, first.ndim())?;
    let mut total = 0i64;
    for (i, t) in list.iter().enumerate().filter(|(_, t)| !skipped(t)) {
        ensure!(
            t.ndim() == first.ndim(),
            Runtime,
            "Tensors must have same number of dimensions: got {} and {}",
            first.ndim(),
            t.ndim()
        );
        for d in (0..t.ndim()).filter(|&d| d != dim) {
            let (want, got) = (first.shape()[d], t.shape()[d]);
            ensure!(
                want == got,
                Runtime,
                "Sizes of tensors must match except in dimension {dim}. Expected size {want} but got size {got} for tensor number {i} in \
                 the list."
            );
        }
        total = total
            .checked_add(t.shape()[dim])
            .ok_or_else(|| err!(Runtime, "cat(): the size of the result overflows"))?;
    }
    let shape = first.shape().with(dim, total);
    let strides = dims::format_strides(&shape, common_format(list))?;
    Ok((Plan::one(shape, strides, dtype), dim))
}

/// The memory format that all tensors suggest, row-major if they differ.
fn common_format(list: Tensors) -> MemoryFormat {
    let mut formats = list.iter().map(suggested_format);
    let first = formats.next().unwrap_or(MemoryFormat::Contiguous);
    if formats.all(|f| f == first) {
        first
    } else {
        MemoryFormat::Contiguous
    }
}

/// PyTorch's `suggest_memory_format`.
#[must_use]
pub fn suggested_format(t: &Tensor) -> MemoryFormat {
    if !dims::strides_like_channels_last(t.shape(), t.strides()) {
        return MemoryFormat::Contiguous;
    }
    if t.ndim() == 4 {
        MemoryFormat::ChannelsLast
    } else {
        MemoryFormat::ChannelsLast3d
    }
}

/// Rule of `stack`; finds the new dimension.
fn stack(a: &calls::Stack) -> Result<(Plan, usize)> {
    let Some(first) = a.tensors.get(0) else {
        bail!(Runtime, "stack expects a non-empty TensorList")
    };
    let dim = wrap_dim(a.dim, first.ndim() + 1)?;
    for (i, t) in a.tensors.iter().enumerate() {
        ensure!(
            t.shape() == first.shape(),
            Runtime,
            "stack expects each tensor to be equal size, but got {} at entry 0 and {} at entry {i}",
            first.shape(),
            t.shape()
        );
    }
    let dtype = common_dtype(a.tensors)?;
    let shape = first.shape().inserted(dim, a.tensors.len() as i64);
    if dim == first.ndim() || first.numel() == 0 {
        return Ok((Plan::contiguous(&shape, dtype), dim));
    }
    // It lies as what is joined along that dimension, which is then cut.
    let (many, size) = (a.tensors.len() as i64, first.shape()[dim]);
    let joined = first.shape().with(dim, many.saturating_mul(size));
    let strides = dims::format_strides(&joined, common_format(a.tensors))?;
    let strides = strides.inserted(dim, strides[dim].saturating_mul(size));
    Ok((Plan::one(shape, strides, dtype), dim))
}

/// A list that is not empty.
pub(super) fn some<'a>(list: Tensors<'a>, name: &str) -> Result<Tensors<'a>> {
    ensure!(
        !list.is_empty(),
        Runtime,
        "{name} expects a non-empty TensorList"
    );
    Ok(list)
}

fn at_least(t: &Tensor, n: usize) -> Result<Ret> {
    let made = match (t.ndim(), n) {
        (0, n) => f::reshape(t, &Dims::filled(n, 1))?,
        (1, 2) => f::unsqueeze(t, 0)?,
        (1, 3) => f::unsqueeze(&f::unsqueeze(t, 0)?, -1)?,
        (2, 3) => f::unsqueeze(t, -1)?,
        _ => return Ok(Ret::Same(0)),
    };
    Ok(made.into())
}

/// PyTorch's words before anything is cut; the dimension.
fn check_chunks(a: &calls::_ChunkCat) -> Result<usize> {
    ensure!(
        a.num_chunks >= 1,
        Runtime,
        "_chunk_cat expects positive num_chunks"
    );
    let Some(first) = a.tensors.get(0) else {
        bail!(Runtime, "_chunk_cat expects a non-empty input tensor list")
    };
    for t in a.tensors.iter() {
        ensure!(
            t.numel() > 0,
            Runtime,
            "_chunk_cat expects non-empty tensor"
        );
        ensure!(
            t.dtype() == first.dtype(),
            Runtime,
            "_chunk_cat expects all input tensors with the same dtype"
        );
    }
    let mut dim = a.dim;
    if a.tensors.iter().all(|t| t.ndim() == first.ndim()) {
        dim = wrap_dim(dim, first.ndim())? as i64;
    }
    ensure!(
        dim >= 0,
        Runtime,
        "_chunk_cat expects non-negative dim when input tensors have different ndims"
    );
    let dim = dim as usize;
    for t in a.tensors.iter() {
        ensure!(
            dim < t.ndim(),
            Runtime,
            "_chunk_cat expects dim < ndim for all input tensors"
        );
        ensure!(
            t.shape()[..dim] == first.shape()[..dim],
            Runtime,
            "_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors"
        );
    }
    Ok(dim)
}

fn chunk_cat(a: &calls::_ChunkCat) -> Result<Tensor> {
    let dim = check_chunks(a)?;
    let mut rows = Vec::with_capacity(a.tensors.len());
    for t in a.tensors.iter() {
        let size = t.shape()[dim];
        let chunk = size / a.num_chunks + i64::from(size % a.num_chunks != 0);
        // A number that is no size is refused as one.
        let whole = chunk.saturating_mul(a.num_chunks);
        let filled = f::new_zeros(t, &t.shape().with(dim, whole))?;
        helpers::copy_(&f::narrow(&filled, dim as i64, 0, size)?, t)?;
        let shape = Dims::from(&t.shape()[..dim]).concat(&[a.num_chunks, -1]);
        rows.push(f::reshape(&filled, &shape)?);
    }
    f::Cat::new(&rows).dim(dim as i64 + 1).call()
}

fn column_stack(a: &calls::ColumnStack) -> Result<Tensor> {
    let columns = some(a.tensors, "column_stack")?
        .iter()
        .map(|t| match t.ndim() {
            0 | 1 => f::reshape(t, &[t.numel(), 1]),
            _ => Ok(t.clone()),
        })
        .collect::<Result<Vec<_>>>()?;
    f::Cat::new(&columns).dim(1).call()
}

/// `block_diag` of matrices, or of less, behind `k` dimensions that all have.
fn block_diag(list: Tensors, k: usize) -> Result<Tensor> {
    let Some(first) = list.get(0) else {
        return f::empty(&[1, 0]);
    };
    let mut dtype = first.dtype();
    let (mut rows, mut columns) = (0, 0);
    let mut parts = Vec::with_capacity(list.len());
    for (i, t) in list.iter().enumerate() {
        ensure!(
            t.device() == first.device(),
            Devices,
            "torch.block_diag: input tensors must all be on the same device. Input 0 is on device {} and input {i} is on device {}",
            first.device(),
            t.device()
        );
        ensure!(
            t.ndim() <= k + 2,
            Runtime,
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {} dimensions",
            t.ndim() - k
        );
        dtype = dtype::promote(dtype, t.dtype())
            .ok_or_else(|| err!(Runtime, "block_diag(): no common dtype"))?;
        let t = batch::padded(t, k, 2)?;
        let sums =
            i64::checked_add(rows, t.shape()[k]).zip(i64::checked_add(columns, t.shape()[k + 1]));
        let Some(sums) = sums else {
            bail!(Runtime, "block_diag(): the size of the result overflows");
        };
        (rows, columns) = sums;
        parts.push(t);
    }
    let shape = Dims::new(&first.shape()[..k]).concat(&[rows, columns]);
    let out = f::NewZeros::new(first, &shape[..]).dtype(dtype).call()?;
    let (mut r, mut c) = (0, 0);
    for t in &parts {
        let (down, right) = (r + t.shape()[k], c + t.shape()[k + 1]);
        let rows = f::Slice::new(&out)
            .dim(k as i64)
            .start(r)
            .end(down)
            .call()?;
        let columns = f::Slice::new(&rows).dim(k as i64 + 1);
        helpers::copy_(&columns.start(c).end(right).call()?, t)?;
        (r, c) = (down, right);
    }
    Ok(out)
}
