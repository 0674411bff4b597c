//! The calls that rows become for whole batches, whose first dimensions are out of the rows' sight ([`Batch::As`]).
//!
//! [`Batch::As`]: crate::ops::core::op::Batch

use crate::dims::wrap_dim;
use crate::ops::core::op::{Hidden, Ret};
use crate::ops::core::typed::OptTensors;
use crate::ops::f;
use crate::{Dims, Result, Scalar, Tensor};

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
    hidden(t, h.k).concat(&Dims::new(size))
}

/// All elements of an example as one dimension, the last.
pub fn flat(x: &Tensor, h: Hidden) -> Result<Tensor> {
    f::reshape(x, &sized(x, &[-1], h)[..])
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

/// The first of two results.
pub fn first(made: Result<[Tensor; 2]>) -> Made {
    made.map(|[t, _]| Some(Ret::One(t)))
}

/// With dimensions of size 1 after those out of sight, so that an example has `ndim` of them.
fn padded(t: &Tensor, k: usize, ndim: usize) -> Result<Tensor> {
    let mut t = t.clone();
    while t.ndim() < k + ndim {
        t = f::unsqueeze(&t, k as i64)?;
    }
    Ok(t)
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

/// `t`.
pub fn t(x: &Tensor, h: Hidden) -> Made {
    match x.ndim() - h.k {
        0 | 1 => one(f::alias(x)),
        2 => one(f::mT(x)),
        n => crate::bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

/// `as_strided`.
pub fn as_strided(a: &f::AsStrided, h: Hidden) -> Made {
    let x = a.input;
    let strides = Dims::new(&x.strides()[..h.k]).concat(&Dims::new(a.stride));
    let sizes = sized(x, a.size, h);
    let call = f::AsStrided::new(x, &sizes[..], &strides[..]);
    let offset = a.storage_offset.unwrap_or(x.offset());
    one(call.storage_offset(offset).call())
}

/// `repeat`.
pub fn repeat(x: &Tensor, times: &[i64], h: Hidden) -> Made {
    let all = Dims::filled(h.k, 1).concat(&Dims::new(times));
    one(f::repeat(&padded(x, h.k, times.len())?, &all[..]))
}

/// A matrix, or several, times a vector.
pub fn by_vector(matrix: &Tensor, vector: &Tensor) -> Result<Tensor> {
    f::squeeze_dim(&f::matmul(matrix, &f::unsqueeze(vector, -1)?)?, -1)
}

/// `dot`.
pub fn dot(a: &Tensor, b: &Tensor) -> Made {
    one(f::SumDim::new(&f::mul(a, b)?, &[-1][..]).call())
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

/// `native_layer_norm`: weights that differ are applied afterwards.
pub fn layer_norm(a: &f::NativeLayerNorm, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    if !h.differs(2) && !h.differs(3) {
        return a.call().map(|made| Some(Ret::Tuple(made.into())));
    }
    let ndim = a.input.ndim() - h.k;
    let plain = f::NativeLayerNorm {
        weight: None,
        bias: None,
        ..a.clone()
    };
    let mut made = plain.call()?;
    if let Some(w) = a.weight {
        made[0] = f::mul(&made[0], &h.fitted(2, w, ndim)?)?;
    }
    if let Some(b) = a.bias {
        made[0] = f::add(&made[0], &h.fitted(3, b, ndim)?)?;
    }
    Ok(Some(Ret::Tuple(made.into())))
}

/// `convolution`: examples join the batch; weights that differ become groups.
pub fn convolution(a: &f::Convolution, h: Hidden) -> Made {
    let k = h.k as i64;
    let x = a.input;
    if !h.differs(1) && !h.differs(2) {
        let joined = flattened(x, 0, k)?;
        let all = f::Convolution {
            input: &joined,
            ..a.clone()
        };
        let made = all.call()?;
        let shape = hidden(x, h.k + 1).concat(&Dims::new(&made.shape()[1..]));
        return one(f::reshape(&made, &shape[..]));
    }
    let differing = [Some(x), Some(a.weight), a.bias].into_iter().enumerate();
    let differing = differing.filter(|(i, _)| h.differs(*i)).find_map(|d| d.1);
    let batch = hidden(differing.unwrap_or(x), h.k);
    let count: i64 = batch.iter().product();
    let joined = into_channels(&h.repeated(0, x, &batch)?, h)?;
    let weight = flattened(&h.repeated(1, a.weight, &batch)?, 0, k)?;
    let bias = a.bias.map(|b| flattened(&h.repeated(2, b, &batch)?, 0, k));
    let bias = bias.transpose()?;
    let all = f::Convolution {
        input: &joined,
        weight: &weight,
        bias: bias.as_ref(),
        groups: a.groups * count,
        ..a.clone()
    };
    one(out_of_channels(&all.call()?, -1, &batch))
}

fn flattened(t: &Tensor, from: i64, to: i64) -> Result<Tensor> {
    f::Flatten::new(t).start_dim(from).end_dim(to).call()
}

/// `[batch, N, C, ...]` as `[N, batch * C, ...]`.
fn into_channels(t: &Tensor, h: Hidden) -> Result<Tensor> {
    let first = flattened(t, 0, h.k as i64 - 1)?;
    flattened(&f::MovedimInt::new(&first, 0, 1).call()?, 1, 2)
}

/// `[N, batch * channels, ...]` as `[batch, N, channels, ...]`.
fn out_of_channels(t: &Tensor, channels: i64, batch: &Dims) -> Result<Tensor> {
    let count: i64 = batch.iter().product();
    let apart = Dims::from([t.shape()[0], count, channels]).concat(&Dims::new(&t.shape()[2..]));
    let first = f::MovedimInt::new(&f::reshape(t, &apart[..])?, 1, 0).call()?;
    f::reshape(&first, &batch.concat(&Dims::new(&first.shape()[1..]))[..])
}

/// How places are looked up in whole batches: the places for each dimension, and how many dimensions an example of them has. Nothing
/// where the dimensions looked up are not next to each other, or not the first, as has to be if places differ.
fn places(
    given: &[Option<&Tensor>],
    h: Hidden,
    of: &Tensor,
) -> Result<Option<(Vec<Option<Tensor>>, usize)>> {
    let used: Vec<usize> = (0..given.len()).filter(|i| given[*i].is_some()).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else {
        return Ok(None);
    };
    if last - first + 1 != used.len() || (h.differs(1) && *first != 0) {
        return Ok(None);
    }
    let hides = if h.differs(1) { h.k } else { 0 };
    let ndim = given.iter().flatten().map(|t| t.ndim() - hides).max();
    let ndim = ndim.unwrap_or(0);
    let mut all: Vec<Option<Tensor>> = Vec::new();
    for d in 0..h.k {
        if !h.differs(1) {
            all.push(None);
        } else if h.differs(0) {
            let mut shape = vec![1; h.k + ndim];
            shape[d] = of.shape()[d];
            let numbers = f::Arange::new(shape[d]).device(of.device()).call()?;
            all.push(Some(f::reshape(&numbers, &shape[..])?));
        }
    }
    for t in given {
        all.push(t.map(|t| padded(t, hides, ndim)).transpose()?);
    }
    Ok(Some((all, ndim)))
}

/// `index`: places that are the same for all are looked up behind the dimensions out of sight, others together with the number of the
/// example.
pub fn index(a: &f::Index, h: Hidden) -> Made {
    let Some((all, _)) = places(&a.indices.0, h, a.input)? else {
        return Ok(None);
    };
    let all: Vec<Option<&Tensor>> = all.iter().map(Option::as_ref).collect();
    one(f::Index::new(a.input, OptTensors(all)).call())
}

/// `index_put`; as [`index`].
pub fn index_put(a: &f::IndexPut, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    let Some((all, ndim)) = places(&a.indices.0, h, a.input)? else {
        return Ok(None);
    };
    let ndim = ndim + a.input.ndim() - h.k - a.indices.0.iter().flatten().count();
    let values = h.fitted(2, a.values, ndim)?;
    let all: Vec<Option<&Tensor>> = all.iter().map(Option::as_ref).collect();
    let call = f::IndexPut::new(a.input, OptTensors(all), &values);
    one(call.accumulate(a.accumulate).call())
}

/// `native_group_norm`: examples join the batch.
pub fn group_norm(a: &f::NativeGroupNorm, h: Hidden) -> Made {
    if h.differ != 1 {
        return Ok(None);
    }
    let joined = flattened(a.input, 0, h.k as i64)?;
    let all = f::NativeGroupNorm {
        input: &joined,
        N: joined.shape()[0],
        ..a.clone()
    };
    let first = hidden(a.input, h.k + 1);
    let apart = |t: Tensor| f::reshape(&t, &first.concat(&Dims::new(&t.shape()[1..]))[..]);
    let made = all.call()?.into_iter().map(apart);
    made.collect::<Result<_>>().map(|t| Some(Ret::Tuple(t)))
}

/// `batch_norm` by the batch's own statistics: examples join the channels.
pub fn batch_norm(a: &f::_NnBatchNormTrain, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    let batch = hidden(a.input, h.k);
    let channels = a.input.size(h.k as i64 + 1)?;
    let each = |i: usize, t: Option<&Tensor>| -> Result<Option<Tensor>> {
        let Some(t) = t else { return Ok(None) };
        f::reshape(&h.repeated(i, t, &batch)?, &[-1][..]).map(Some)
    };
    let joined = into_channels(a.input, h)?;
    let (weight, bias) = (each(1, a.weight)?, each(2, a.bias)?);
    let all = f::_NnBatchNormTrain {
        input: &joined,
        weight: weight.as_ref(),
        bias: bias.as_ref(),
        ..a.clone()
    };
    let [out, rest @ ..] = all.call()?;
    let mut made = vec![out_of_channels(&out, channels, &batch)?];
    for t in rest {
        made.push(f::reshape(&t, &batch.concat(&Dims::from([channels]))[..])?);
    }
    Ok(Some(Ret::Tuple(made)))
}

/// `nll_loss`: the weighted entries of the targets, by `gather`.
pub fn nll_loss(a: &f::_NnNllLoss, h: Hidden) -> Made {
    if h.differs(2) {
        return Ok(None);
    }
    let batch = hidden(if h.differs(0) { a.input } else { a.target }, h.k);
    let x = h.repeated(0, a.input, &batch)?;
    let target = h.repeated(1, a.target, &batch)?;
    let classes = (h.k + usize::from(x.ndim() > h.k + 1)) as i64;
    let ignored = f::eq(&target, a.ignore_index)?;
    let safe = f::masked_fill(&target, &ignored, 0)?;
    let picked = f::gather(&x, classes, &f::unsqueeze(&safe, classes)?)?;
    let picked = f::squeeze_dim(&picked, classes)?;
    let weight = match a.weight {
        Some(w) => {
            let flat = f::index_select(w, 0, &f::reshape(&safe, &[-1][..])?)?;
            f::reshape(&flat, &safe.shape()[..])?
        }
        None => f::ones_like(&picked.bare())?,
    };
    let weight = f::masked_fill(&weight, &ignored, 0)?;
    let each = f::neg(&f::mul(&picked, &weight)?)?;
    let over: Vec<i64> = (h.k as i64..each.ndim() as i64).collect();
    let sum = |t: &Tensor| {
        if over.is_empty() {
            return Ok(t.clone());
        }
        f::SumDim::new(t, &over[..]).call()
    };
    let total = sum(&weight)?;
    let loss = match a.reduction {
        0 => return Ok(Some(Ret::Tuple(vec![each, f::zeros_like(&total)?]))),
        1 => f::div(&sum(&each)?, &total)?,
        _ => sum(&each)?,
    };
    Ok(Some(Ret::Tuple(vec![loss, total])))
}

/// `take`: positions in each example, all of whose elements are one dimension.
pub fn take(a: &f::Take, h: Hidden) -> Made {
    let (x, index) = (a.input, a.index);
    if !h.differs(0) {
        return one(a.call());
    }
    let batch = hidden(x, h.k);
    let last = h.k as i64;
    let flat = f::reshape(x, &batch.concat(&Dims::from([-1]))[..])?;
    let shown = Dims::new(&index.shape()[if h.differs(1) { h.k } else { 0 }..]);
    let places = h.repeated(1, index, &batch)?;
    let places = f::reshape(&places, &batch.concat(&Dims::from([-1]))[..])?;
    // Positions from the end are counted from the start for `gather`.
    let count = flat.size(last)?;
    let places = f::where_(&f::lt(&places, 0)?, &f::add(&places, count)?, &places)?;
    let made = f::gather(&flat, last, &places)?;
    one(f::reshape(&made, &batch.concat(&shown)[..]))
}
