//! The calls that rows become for whole batches, whose first dimensions are out of the rows' sight ([`Batch::As`]).
//!
//! [`Batch::As`]: crate::ops::core::op::Batch

mod conv;
mod nn;
mod places;

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::core::op::{Hidden, Ret};
use crate::ops::f;
use crate::{Dims, Error, Result, Scalar, Tensor, bail, err};

pub use conv::{convolution, convolution_input, convolution_weight};
pub use nn::{
    averaged, batch_norm, batch_norm_eval, bilinear, binary_cross_entropies, group_norm,
    layer_norm, nll_loss, pad_mode, rms_norm, upsample,
};
pub use places::{
    embedding, embedding_gradient, index, index_fill, index_put, masked_fill, masked_select, take,
};

/// What such a call gives; nothing if there is none, so that the row runs once an example.
type Made = Result<Option<Ret>>;

/// Of a call with one result.
pub fn one(made: Result<Tensor>) -> Made {
    made.map(|t| Some(Ret::One(t)))
}

/// The sizes out of sight.
fn hidden(t: &Tensor, k: usize) -> Dims {
    Dims::new(&t.shape()[..k])
}

/// Sizes of an example, and those out of sight before them.
pub fn sized(t: &Tensor, size: &[i64], h: Hidden) -> Dims {
    hidden(t, h.k).concat(size)
}

/// All elements of an example as one dimension, the last.
pub fn flat(x: &Tensor, h: Hidden) -> Result<Tensor> {
    f::reshape(x, &sized(x, &[-1], h)[..])
}

/// Whether a format orders the dimensions of an example, which a whole batch has more of.
fn orders(format: MemoryFormat) -> bool {
    matches!(
        format,
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d
    )
}

/// `clone`.
pub fn clone(a: &f::Clone) -> Made {
    if let Some(format) = a.memory_format.filter(|m| orders(*m)) {
        bail!(
            Runtime,
            "NYI: Tensor.clone(memory_format) inside vmap is only supported with memory_format torch.preserve_format or \
             torch.contiguous_format (got {format:?})"
        );
    }
    one(a.call())
}

/// `contiguous`.
pub fn contiguous(a: &f::Contiguous) -> Made {
    if orders(a.memory_format) {
        bail!(
            Runtime,
            "NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format"
        );
    }
    one(a.call())
}

/// `permute`.
pub fn permute(x: &Tensor, dims: &[i64], h: Hidden) -> Made {
    let shown = x.ndim() - h.k;
    let mut order: Vec<i64> = (0..h.k as i64).collect();
    for d in dims {
        order.push((wrap_dim(*d, shown)? + h.k) as i64);
    }
    one(f::permute(x, &order[..]))
}

/// Of a call with two results.
pub fn both(made: Result<[Tensor; 2]>) -> Made {
    made.map(|t| Some(Ret::Tuple(t.into())))
}

/// That the sizes of a row's results differ from example to example.
#[must_use]
pub fn dynamic(name: &str) -> Error {
    err!(
        Runtime,
        "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{name}. Please file \
         an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )
}

/// That a row tells of all examples together.
pub fn refused(name: &str) -> Made {
    bail!(
        Runtime,
        "Batching rule not implemented for aten::{name}. We could not generate a fallback."
    )
}

/// The first of two results.
pub fn first(made: Result<[Tensor; 2]>) -> Made {
    made.map(|[t, _]| Some(Ret::One(t)))
}

/// With dimensions of size 1 after those out of sight, so that an example has `ndim` of them.
pub(in crate::ops) fn padded(t: &Tensor, k: usize, ndim: usize) -> Result<Tensor> {
    let mut t = t.clone();
    while t.ndim() < k + ndim {
        t = f::unsqueeze(&t, k as i64)?;
    }
    Ok(t)
}

/// `count_nonzero` over dimensions, none for all.
pub fn count_nonzero(x: &Tensor, dims: &[i64], h: Hidden) -> Made {
    let shown = x.ndim() - h.k;
    let wrapped = dims.iter().map(|d| wrap_dim(*d, shown.max(1)));
    let wrapped = wrapped.map(|d| d.map(|d| (d + h.k) as i64));
    let wrapped = wrapped.collect::<Result<Vec<_>>>()?;
    if dims.is_empty() || shown == 0 {
        return one(f::CountNonzero::new(&flat(x, h)?).dim(-1).call());
    }
    one(f::count_nonzero_dims(x, &wrapped[..]))
}

/// `view` and its kin.
pub fn view(x: &Tensor, size: &[i64], h: Hidden) -> Made {
    one(f::view(x, &sized(x, size, h)[..]))
}

/// `squeeze` of all dimensions.
pub fn squeeze(x: &Tensor, h: Hidden) -> Made {
    let ones = (h.k..x.ndim()).filter(|d| x.shape()[*d] == 1);
    let ones: Vec<i64> = ones.map(|d| d as i64).collect();
    one(f::SqueezeDims::new(x, &ones[..]).call())
}

/// `expand` and `broadcast_to`.
pub fn expand(x: &Tensor, size: &[i64], h: Hidden) -> Made {
    let all = sized(x, size, h);
    one(f::expand(&padded(x, h.k, size.len())?, &all[..]))
}

/// The shape of an example of argument 1.
fn shape_of_other(other: &Tensor, h: Hidden) -> &[i64] {
    &other.shape()[if h.differs(1) { h.k } else { 0 }..]
}

/// `expand_as`.
pub fn expand_as(x: &Tensor, other: &Tensor, h: Hidden) -> Made {
    match h.differs(0) {
        true => expand(x, shape_of_other(other, h), h),
        false => one(f::expand(x, other.shape())),
    }
}

/// `view_as`.
pub fn view_as(x: &Tensor, other: &Tensor, h: Hidden) -> Made {
    match h.differs(0) {
        true => view(x, shape_of_other(other, h), h),
        false => {
            one(f::view(x, shape_of_other(other, h)).and_then(|t| f::expand(&t, other.shape())))
        }
    }
}

/// `t`.
pub fn t(x: &Tensor, h: Hidden) -> Made {
    match x.ndim() - h.k {
        0 | 1 => one(f::alias(x)),
        2 => one(f::mT(x)),
        n => bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

/// `as_strided`.
pub fn as_strided(a: &f::AsStrided, h: Hidden) -> Made {
    let x = a.input;
    let strides = Dims::new(&x.strides()[..h.k]).concat(a.stride);
    let sizes = sized(x, a.size, h);
    let offset = a.storage_offset.unwrap_or(x.offset());
    one(f::_as_strided_each(
        x,
        &sizes[..],
        &strides[..],
        offset,
        h.k as i64,
    ))
}

/// `_as_strided_each`: examples of batches.
pub fn as_strided_each(a: &f::_AsStridedEach, h: Hidden) -> Made {
    let strides = Dims::new(&a.input.strides()[..h.k]).concat(a.stride);
    let (size, lead) = (sized(a.input, a.size, h), a.lead + h.k as i64);
    one(f::_as_strided_each(
        a.input,
        &size[..],
        &strides[..],
        a.storage_offset,
        lead,
    ))
}

/// `as_strided_scatter`: each example has memory of its own, as `as_strided` sees it.
pub fn as_strided_scatter(a: &f::AsStridedScatter, h: Hidden) -> Made {
    let batch = hidden(if h.differs(0) { a.input } else { a.src }, h.k);
    let whole = |i: usize, t: &Tensor| f::clone(&h.repeated(i, t, &batch)?);
    let (x, src) = (whole(0, a.input)?, whole(1, a.src)?);
    let strides = Dims::new(&x.strides()[..h.k]).concat(a.stride);
    let sizes = batch.concat(a.size);
    let call = f::AsStridedScatter::new(&x, &src, &sizes[..], &strides[..]);
    one(call.storage_offset(a.storage_offset).call())
}

/// `new_empty_strided`: the memories of the examples one behind the other.
pub fn new_empty_strided(a: &f::NewEmptyStrided, h: Hidden) -> Made {
    let each = dims::storage_bytes(a.size, a.stride, 0, 1)? as i64;
    let batch = dims::contiguous_strides(&a.input.shape()[..h.k]);
    let batch: Dims = batch.iter().map(|s| s.saturating_mul(each)).collect();
    let (size, stride) = (&sized(a.input, a.size, h)[..], &batch.concat(a.stride)[..]);
    let call = f::NewEmptyStrided {
        size,
        stride,
        ..a.clone()
    };
    one(call.call())
}

/// `repeat`.
pub fn repeat(x: &Tensor, times: &[i64], h: Hidden) -> Made {
    let all = Dims::filled(h.k, 1).concat(times);
    one(f::repeat(&padded(x, h.k, times.len())?, &all[..]))
}

/// A matrix, or several, times a vector.
pub fn by_vector(matrix: &Tensor, vector: &Tensor) -> Result<Tensor> {
    f::squeeze_dim(&f::matmul(matrix, &f::unsqueeze(vector, -1)?)?, -1)
}

/// `dot`.
pub fn dot(a: &Tensor, b: &Tensor) -> Made {
    one(summed(&f::mul(a, b)?))
}

/// The sums of the last dimension, in its own type.
fn summed(t: &Tensor) -> Result<Tensor> {
    f::SumDim::new(t, &[-1][..]).dtype(t.dtype()).call()
}

/// `beta * own + alpha * product`, where an example of the product has `ndim` dimensions.
pub fn added(
    own: &Tensor,
    product: &Tensor,
    ndim: usize,
    [beta, alpha]: [Scalar; 2],
    h: Hidden,
) -> Made {
    let own = h.fitted(0, own, ndim)?;
    let scaled = |t: &Tensor, by: Scalar| {
        if by == Scalar::Int(1) {
            return Ok(t.clone());
        }
        f::mul(t, by)
    };
    one(f::add(&scaled(&own, beta)?, &scaled(product, alpha)?))
}

impl Hidden {
    /// An argument whose examples have `ndim` dimensions where it differs from example to example.
    fn fitted(self, i: usize, t: &Tensor, ndim: usize) -> Result<Tensor> {
        if self.differs(i) {
            padded(t, self.k, ndim)
        } else {
            Ok(t.clone())
        }
    }

    /// An argument with the dimensions out of sight, repeated if it is the same for all examples.
    fn repeated(self, i: usize, t: &Tensor, batch: &Dims) -> Result<Tensor> {
        if self.differs(i) {
            Ok(t.clone())
        } else {
            f::expand(t, &batch.concat(t.shape())[..])
        }
    }
}

/// `linalg.solve_ex`, whose right side may be a vector.
pub fn solve(a: &f::LinalgSolveEx, h: Hidden) -> Made {
    let shown = |i: usize, t: &Tensor| Dims::new(&t.shape()[h.hides(i)..]);
    let (x, b) = (shown(0, a.A), shown(1, a.B));
    if x.len() < 2 || b.is_empty() {
        return Ok(None);
    }
    let vector = b.len() == 1 || b[..] == x[..x.len() - 1];
    if vector && !a.left {
        return Ok(None);
    }
    let columns = if vector {
        f::unsqueeze(a.B, -1)?
    } else {
        a.B.clone()
    };
    let ndim = x.len().max(b.len() + usize::from(vector));
    let all = f::LinalgSolveEx {
        A: &h.fitted(0, a.A, ndim)?,
        B: &h.fitted(1, &columns, ndim)?,
        ..a.clone()
    };
    let [mut made, mut info] = all.call()?;
    if vector {
        made = f::squeeze_dim(&made, -1)?;
    }
    // There are as many of these as matrices A.
    let differing = if h.differs(0) { a.A } else { a.B };
    let shape = hidden(differing, h.k).concat(&x[..x.len() - 2]);
    if info.shape() != &shape {
        info = if h.differs(0) {
            f::reshape(&info, &shape[..])?
        } else {
            f::expand(&info, &shape[..])?
        };
    }
    both(Ok([made, info]))
}

/// `linalg.lstsq`, some of whose results may not have been asked for.
pub fn lstsq(a: &f::LinalgLstsq, h: Hidden) -> Made {
    if !h.differs(0) || !h.differs(1) {
        return Ok(None);
    }
    let batch = hidden(a.input, h.k);
    let none = |t: Tensor| {
        if t.shape()[..] == [0] {
            f::expand(&t, &batch.concat(&[0])[..])
        } else {
            Ok(t)
        }
    };
    let made = a.call()?.into_iter().map(none);
    made.collect::<Result<_>>().map(|t| Some(Ret::Tuple(t)))
}

/// `cat`: vectors without elements go with tensors of any shape.
pub fn cat(a: &f::Cat, h: Hidden) -> Made {
    let shown = |t: &Tensor| t.ndim() - h.k;
    let vector = |t: &Tensor| shown(t) == 1 && t.shape()[h.k] == 0;
    if a.tensors.iter().any(|t| shown(t) == 0) {
        return Ok(None);
    }
    let Some(first) = a.tensors.iter().find(|t| !vector(t)) else {
        return one(f::Cat::new(a.tensors).dim(h.k as i64).call());
    };
    let dim = h.k + wrap_dim(a.dim, shown(first))?;
    let empty = first.shape().with(dim, 0);
    let each = a.tensors.iter().map(|t| {
        if vector(t) {
            f::reshape(t, &empty[..])
        } else {
            Ok(t.clone())
        }
    });
    let all = each.collect::<Result<Vec<_>>>()?;
    one(f::Cat::new(&all).dim(dim as i64).call())
}
