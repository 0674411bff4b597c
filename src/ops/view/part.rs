//! Views of a part of a tensor: select, slice, split, diagonals, windows.

use crate::dims::wrap_dim;
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, FM, Hidden, I, J, M, OpDef, compose, view};
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::rules;
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    view(
        "select",
        "(Tensor self, int dim, int index)",
        FM,
        |a| Ok(index(a.input, a.dim, a.index)?.plan(a.input)),
        "One index along a dimension.",
    )
    .samples("f32[3, 4], 1, 2; b8[3, 4], 1, 2")
    .grad("self: _grad.select_backward(grad, self.sizes, dim, index); jvp: linear"),
    view(
        "slice",
        "(Tensor self, int dim=0, int? start=None, int? end=None, int step=1)",
        0,
        |a| Ok(range(a.input, a.dim, a.start, a.end, a.step)?.plan(a.input)),
        "A range of indices along a dimension.",
    )
    .samples("f32[5, 3], 0, 1, 4, 2; i64[4], 0, -2")
    .grad("self: _grad.slice_backward(grad, self.sizes, dim, start if start.given else 0, end if end.given else 9223372036854775807, step); jvp: linear"),
    compose(
        "narrow#tensor",
        "(Tensor self, int dim, Tensor start, int length)",
        FM,
        narrow_tensor,
        "`length` indices from a tensor's value along a dimension.",
    )
    .samples("f32[5, 3], 0, i64(1), 2"),
    compose(
        "narrow",
        "(Tensor self, int dim, int start, int length)",
        FM,
        |a| narrow(a.input, a.dim, a.start, a.length),
        "`length` indices from `start` along a dimension.",
    )
    .samples("f32[3, 4], 1, 2, 2; b8[3, 4], 1, 2, 2"),
    view(
        "diagonal",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        FM,
        |a| Ok(diagonal(a.input, a.offset, a.dim1, a.dim2)?.plan(a.input)),
        "A diagonal of two dimensions, as the last dimension.",
    )
    .samples("f32[3, 4]; b8[3, 4]; f32[2, 3, 4], offset=1, dim1=1, dim2=2")
    .grad("self: _grad.diagonal_backward(grad, self.sizes, offset, dim1, dim2); jvp: linear"),
    view(
        "as_strided",
        "(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
        FM | I | J,
        |a| Ok(strided(a.input, a.size, a.stride, a.storage_offset)?.plan(a.input)),
        "Any layout of the tensor's storage.",
    )
    .samples(
        "f32[3, 4], (2, 2), (1, 2), storage_offset=0; \
         b8[3, 4], (2, 2), (1, 2); \
         f32[3, 4], (2, 2, 2, 2), (1, 1, 1, 1), storage_offset=0",
    )
    .grad("in place AsStridedBackward1 | self: _grad.as_strided_back(grad, self.sizes, self.strides, size, stride, storage_offset, self.offset, 0); jvp: twice")
    .batch(Batch::As(typed!(batch::as_strided, Hidden))),
    view(
        "unfold",
        "(Tensor self, int dimension, int size, int step)",
        M,
        unfold,
        "Sliding windows along a dimension, as a new last dimension.",
    )
    .samples("f32[3, 4], 0, 3, 1; b8[2, 3, 4], 2, 3, 2")
    .grad("self: _grad.unfold_backward(grad, self.sizes, dimension, size, step); jvp: linear"),
    view(
        "split",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        FM,
        split,
        "Pieces of one size along a dimension.",
    )
    .samples("f64[3, 4], 5, 1; c64[3, 4], 5, 1")
    .grad("self: _grad.split_back(grads, self.sizes, split_size, dim)"),
    compose(
        "split#sizes",
        "(Tensor self, int[] split_size, int dim=0) -> Tensor[]",
        FM,
        |a| {
            f::SplitWithSizes::new(a.input, a.split_size)
                .dim(a.dim)
                .call()
        },
        "Pieces of given sizes along a dimension.",
    )
    .samples("f32[5, 5, 5], (2, 1, 2), 2; b8[5, 5, 5], (1, 3, 1)"),
    view(
        "split_with_sizes",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        FM,
        split_with_sizes,
        "Pieces of given sizes along a dimension.",
    )
    .samples("f32[5, 5, 5], (1, 3, 1); c64[5, 5, 5], (1, 3, 1); f32[5, 5, 5], (1, 3, 1), 2")
    .grad("self: _grad.split_sizes_back(grads, self.sizes, split_sizes, dim)"),
    compose(
        "chunk",
        "(Tensor self, int chunks, int dim=0) -> Tensor[]",
        FM,
        chunk,
        "At most `chunks` pieces along a dimension.",
    )
    .samples("f32[3, 4], 2; c64[3, 4], 5, 1; f32[3, 4], 5, 1"),
    view(
        "unbind",
        "(Tensor self, int dim=0) -> Tensor[]",
        FM,
        unbind,
        "One tensor for each index along a dimension.",
    )
    .samples("f32[3, 4], -1; b8[3, 4], 1")
    .grad("self: _grad.unbind_back(grads, self.sizes, dim)"),
];

/// A part of a tensor, in numbers that were checked for its shape: they hold for every layout of it.
#[derive(Clone, Debug)]
pub enum Part {
    /// One index of a dimension, which disappears.
    Index {
        /// The dimension.
        dim: usize,
        /// The index, not negative.
        index: i64,
    },
    /// Indices of a dimension.
    Range {
        /// The dimension.
        dim: usize,
        /// The first index.
        start: i64,
        /// How many.
        len: i64,
        /// From one to the next.
        step: i64,
    },
    /// A diagonal of two dimensions, which becomes the last one.
    Diagonal {
        /// How far from the main diagonal, towards larger indices of the second dimension.
        offset: i64,
        /// The first dimension.
        dim1: usize,
        /// The second dimension.
        dim2: usize,
    },
    /// A layout of the storage.
    Strided {
        /// Sizes.
        shape: Dims,
        /// Strides.
        strides: Dims,
        /// Position of the first element in the storage.
        offset: i64,
    },
}

impl Part {
    /// The part of a tensor of that shape.
    #[must_use]
    pub fn plan(&self, t: &Tensor) -> ViewPlan {
        match *self {
            Self::Index { dim, index } => ViewPlan::of(t).selected(dim, index),
            Self::Range {
                dim,
                start,
                len,
                step,
            } => {
                let mut plan = ViewPlan::of(t).narrowed(dim, start, len);
                plan.strides[dim] = plan.strides[dim].wrapping_mul(step);
                plan
            }
            Self::Diagonal { offset, dim1, dim2 } => diagonal_plan(t, offset, dim1, dim2),
            Self::Strided {
                ref shape,
                ref strides,
                offset,
            } => ViewPlan::with(t, shape.clone(), strides.clone(), offset),
        }
    }
}

/// The part that `select` shows.
///
/// # Errors
/// If the dimension or index is out of range.
pub fn index(t: &Tensor, dim: i64, index: i64) -> Result<Part> {
    ensure!(
        t.ndim() > 0,
        Index,
        "select() cannot be applied to a 0-dim tensor."
    );
    let d = wrap_dim(dim, t.ndim())?;
    let size = t.shape()[d];
    if index < -size || index >= size {
        bail!(
            Index,
            "select(): index {index} out of range for tensor of size {} at dimension {d}",
            t.shape()
        );
    }
    Ok(Part::Index {
        dim: d,
        index: if index < 0 { index + size } else { index },
    })
}

/// The part that `slice` shows: Python's slice along a dimension, with positive steps.
///
/// # Errors
/// If the dimension is out of range or the step not positive.
pub fn range(
    t: &Tensor,
    dim: i64,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<Part> {
    ensure!(
        t.ndim() > 0,
        Index,
        "slice() cannot be applied to a 0-dim tensor."
    );
    let dim = wrap_dim(dim, t.ndim())?;
    ensure!(step > 0, Runtime, "slice step must be positive");
    let size = t.shape()[dim];
    let clamp = |v: i64| {
        if v < 0 {
            (v + size).max(0)
        } else {
            v.min(size)
        }
    };
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(i64::MAX)));
    let len = if end > start {
        (end - start - 1) / step + 1
    } else {
        0
    };
    Ok(Part::Range {
        dim,
        start,
        len,
        step,
    })
}

fn narrow(t: &Tensor, dim: i64, start: i64, length: i64) -> Result<Tensor> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "narrow() cannot be applied to a 0-dim tensor."
    );
    ensure!(
        length >= 0,
        Runtime,
        "narrow(): length must be non-negative."
    );
    let d = wrap_dim(dim, t.ndim())?;
    let size = t.shape()[d];
    ensure!(
        start >= -size && start <= size,
        Index,
        "start out of range (expected to be in range of [{}, {size}], but got {start})",
        -size
    );
    let start = if start < 0 { start + size } else { start };
    ensure!(
        start <= size - length,
        Runtime,
        "start ({start}) + length ({length}) exceeds dimension size ({size})."
    );
    f::Slice::new(t)
        .dim(d as i64)
        .start(start)
        .end(start + length)
        .call()
}

fn narrow_tensor(a: &calls::NarrowTensor) -> Result<Tensor> {
    ensure!(
        a.start.ndim() == 0 && a.start.dtype().is_integral(false),
        Runtime,
        "start must be an 0-dim integral Tensor."
    );
    narrow(a.input, a.dim, helpers::item(a.start)?.to_i64(), a.length)
}

/// The part that `diagonal` shows.
///
/// # Errors
/// If the dimensions are the same or out of range.
pub fn diagonal(t: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Part> {
    let (d1, d2) = (wrap_dim(dim1, t.ndim())?, wrap_dim(dim2, t.ndim())?);
    ensure!(
        d1 != d2,
        Runtime,
        "diagonal dimensions cannot be identical {dim1}, {dim2}"
    );
    Ok(Part::Diagonal {
        offset,
        dim1: d1,
        dim2: d2,
    })
}

fn diagonal_plan(t: &Tensor, offset: i64, d1: usize, d2: usize) -> ViewPlan {
    let (s1, s2) = (t.shape()[d1], t.shape()[d2]);
    let (len, shift) = if offset >= 0 {
        (
            s1.min(s2.saturating_sub(offset)).max(0),
            offset.saturating_mul(t.strides()[d2]),
        )
    } else {
        (
            s1.saturating_add(offset).min(s2).max(0),
            offset.saturating_neg().saturating_mul(t.strides()[d1]),
        )
    };
    let keep = |v: &Dims, last: i64| {
        v.iter()
            .enumerate()
            .filter(|(i, _)| *i != d1 && *i != d2)
            .map(|(_, &x)| x)
            .chain([last])
            .collect::<Dims>()
    };
    let at = if len == 0 {
        t.offset()
    } else {
        t.offset() + shift
    };
    let strides = keep(t.strides(), t.strides()[d1] + t.strides()[d2]);
    ViewPlan::with(t, keep(t.shape(), len), strides, at)
}

/// The part that `as_strided` shows.
///
/// # Errors
/// If the layout reaches outside of the storage.
pub fn strided(t: &Tensor, size: &[i64], stride: &[i64], offset: Option<i64>) -> Result<Part> {
    let (shape, strides) = (Dims::new(size), Dims::new(stride));
    let offset = offset.unwrap_or(t.offset());
    Tensor::checked(
        t.storage().clone(),
        shape.clone(),
        strides.clone(),
        offset,
        t.dtype(),
    )?;
    Ok(Part::Strided {
        shape,
        strides,
        offset,
    })
}

fn unfold(a: &calls::Unfold) -> Result<ViewPlan> {
    let (t, size, step) = (a.input, a.size, a.step);
    let d = wrap_dim(a.dimension, t.ndim())?;
    let have = if t.ndim() == 0 { 1 } else { t.shape()[d] };
    ensure!(
        size <= have,
        Runtime,
        "maximum size for tensor at dimension {d} is {have} but size is {size}"
    );
    ensure!(size >= 0, Runtime, "size is {size} but must be >= 0");
    ensure!(step > 0, Runtime, "step is {step} but must be > 0");
    if t.ndim() == 0 {
        let (shape, strides) = (Dims::new(&[size]), Dims::new(&[1]));
        return Ok(ViewPlan::with(t, shape, strides, t.offset()));
    }
    let stride = t.strides()[d];
    let Some(wide) = stride.checked_mul(step) else {
        bail!(Runtime, "Stride calculation overflowed");
    };
    let shape = t.shape().with(d, (have - size) / step + 1).concat(&[size]);
    let strides = t.strides().with(d, wide).concat(&[stride]);
    Ok(ViewPlan::with(t, shape, strides, t.offset()))
}

fn split(a: &calls::Split) -> Result<Vec<ViewPlan>> {
    let (t, size) = (a.input, a.split_size);
    ensure!(
        t.ndim() > 0,
        Runtime,
        "split expects at least a 1-dimensional tensor"
    );
    ensure!(
        size >= 0,
        Runtime,
        "split expects split_size be non-negative, but got split_size={size}"
    );
    let d = wrap_dim(a.dim, t.ndim())?;
    let total = t.shape()[d];
    ensure!(
        size > 0 || total == 0,
        Runtime,
        "split_size can only be 0 if dimension size is 0, but got dimension size of {total}"
    );
    let n = if size == 0 {
        1
    } else {
        (total / size + i64::from(total % size != 0)).max(1)
    };
    helpers::check_many(n)?;
    let piece = |i: i64| ViewPlan::of(t).narrowed(d, i * size, size.min(total - i * size));
    Ok((0..n).map(piece).collect())
}

fn split_with_sizes(a: &calls::SplitWithSizes) -> Result<Vec<ViewPlan>> {
    let (t, sizes) = (a.input, a.split_sizes);
    ensure!(
        t.ndim() > 0,
        Runtime,
        "split expects at least a 1-dimensional tensor"
    );
    let d = wrap_dim(a.dim, t.ndim())?;
    let total = t.shape()[d];
    let mut at = 0i64;
    let mut out = Vec::with_capacity(sizes.len());
    for &s in sizes {
        ensure!(
            s >= 0,
            Runtime,
            "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={}",
            Dims::new(sizes)
        );
        if at.saturating_add(s) <= total {
            out.push(ViewPlan::of(t).narrowed(d, at, s));
        }
        at = at.saturating_add(s);
    }
    ensure!(
        at == total,
        Runtime,
        "split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {}), but got split_sizes={}",
        a.dim,
        Dims::new(sizes)
    );
    Ok(out)
}

/// The size of chunks, and the dimension they lie along.
pub(in crate::ops) fn chunk_size(t: &Tensor, chunks: i64, dim: i64) -> Result<(i64, i64)> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "chunk expects at least a 1-dimensional tensor"
    );
    ensure!(
        chunks > 0,
        Runtime,
        "chunk expects `chunks` to be greater than 0, got: {chunks}"
    );
    let d = wrap_dim(dim, t.ndim())?;
    Ok((t.shape()[d].saturating_add(chunks - 1) / chunks, d as i64))
}

fn chunk(a: &calls::Chunk) -> Result<Vec<Tensor>> {
    match chunk_size(a.input, a.chunks, a.dim)? {
        // Nothing to divide: as many empty pieces as were asked for.
        (0, d) => {
            helpers::check_many(a.chunks)?;
            let none = vec![0; a.chunks as usize];
            f::SplitWithSizes::new(a.input, &none).dim(d).call()
        }
        (size, d) => f::Split::new(a.input, size).dim(d).call(),
    }
}

fn unbind(a: &calls::Unbind) -> Result<Vec<ViewPlan>> {
    let t = a.input;
    ensure!(
        t.ndim() > 0,
        Index,
        "Dimension specified as {} but tensor has no dimensions",
        a.dim
    );
    let d = rules::dim(t, a.dim)?;
    helpers::check_many(t.shape()[d])?;
    Ok((0..t.shape()[d])
        .map(|i| ViewPlan::of(t).selected(d, i))
        .collect())
}
