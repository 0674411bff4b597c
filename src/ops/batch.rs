//! The calls that rows become for whole batches, whose first dimensions are out of the rows' sight ([`Batch::As`]).
//!
//! [`Batch::As`]: crate::ops::core::op::Batch

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{Hidden, Ret};
use crate::ops::{dispatch, f};
use crate::{Dims, Result, Scalar, Tensor};

/// What such a call gives; nothing if there is none, so that the row runs once an example.
type Made = Result<Option<Ret>>;

fn one(made: Result<Tensor>) -> Made {
    made.map(|t| Some(Ret::One(t)))
}

fn same(a: &Args, values: &[Arg]) -> Made {
    dispatch::run(a.op, values).map(Some)
}

/// The sizes out of sight.
fn hidden(t: &Tensor, k: usize) -> Dims {
    Dims::new(&t.shape()[..k])
}

/// With dimensions of size 1 after those out of sight, so that an example has `ndim` of them.
fn padded(t: &Tensor, k: usize, ndim: usize) -> Result<Tensor> {
    let mut t = t.clone();
    while t.ndim() < k + ndim {
        t = f::unsqueeze(&t, k as i64)?;
    }
    Ok(t)
}

/// `view` and its kin: sizes as argument 1.
pub fn view(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let sizes = hidden(x, k).concat(a.ints(1)?);
    one(f::view(x, &sizes[..]))
}

/// `squeeze` of all dimensions.
pub fn squeeze(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let ones = (k..x.ndim()).filter(|d| x.shape()[*d] == 1);
    let ones: Vec<i64> = ones.map(|d| d as i64).collect();
    one(f::SqueezeDims::new(x, &ones[..]).call())
}

/// `expand` and `broadcast_to`.
pub fn expand(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let sizes = a.ints(1)?;
    let all = hidden(x, k).concat(sizes);
    one(f::expand(&padded(x, k, sizes.len())?, &all[..]))
}

/// `t`.
pub fn t(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    match x.ndim() - k {
        0 | 1 => one(f::alias(x)),
        2 => one(f::mT(x)),
        n => crate::bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

/// `as_strided`.
pub fn as_strided(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let sizes = hidden(x, k).concat(a.ints(1)?);
    let strides = Dims::new(&x.strides()[..k]).concat(a.ints(2)?);
    let call = f::AsStrided::new(x, &sizes[..], &strides[..]);
    one(call
        .storage_offset(a.opt_int(3).unwrap_or(x.offset()))
        .call())
}

/// `repeat`.
pub fn repeat(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let times = a.ints(1)?;
    let all = Dims::filled(k, 1).concat(times);
    one(f::repeat(&padded(x, k, times.len())?, &all[..]))
}

/// `new_zeros` and its kin: sizes as argument 1.
pub fn new_sized(a: &Args, Hidden { k, .. }: Hidden) -> Made {
    let x = a.tensor(0)?;
    let mut values = a.values.to_vec();
    values[1] = Arg::Ints(hidden(x, k).concat(a.ints(1)?));
    same(a, &values)
}

/// Products of two arguments, as matrices.
pub fn product(a: &Args, _: Hidden) -> Made {
    one(f::matmul(a.tensor(0)?, a.tensor(1)?))
}

fn by_vector(matrix: &Tensor, vector: &Tensor) -> Result<Tensor> {
    f::squeeze_dim(&f::matmul(matrix, &f::unsqueeze(vector, -1)?)?, -1)
}

/// `mv`.
pub fn mv(a: &Args, _: Hidden) -> Made {
    one(by_vector(a.tensor(0)?, a.tensor(1)?))
}

/// `dot`.
pub fn dot(a: &Args, _: Hidden) -> Made {
    let both = f::mul(a.tensor(0)?, a.tensor(1)?)?;
    one(f::SumDim::new(&both, &[-1][..]).call())
}

/// `vdot`.
pub fn vdot(a: &Args, _: Hidden) -> Made {
    let both = f::mul(&f::conj(a.tensor(0)?)?, a.tensor(1)?)?;
    one(f::SumDim::new(&both, &[-1][..]).call())
}

/// `beta * self + alpha * product`, where an example of the product has `ndim` dimensions.
fn added(a: &Args, h: Hidden, ndim: usize, product: &Tensor) -> Made {
    let own = a.tensor(0)?;
    let own = if h.differs(0) {
        padded(own, h.k, ndim)?
    } else {
        own.clone()
    };
    let by = |name: &str| {
        let at = a.op.schema.position(name);
        at.and_then(|i| a.opt_scalar(i)).unwrap_or(Scalar::Int(1))
    };
    let scaled = |t: &Tensor, by: Scalar| {
        if by == Scalar::Int(1) {
            return Ok(t.clone());
        }
        f::mul(t, by)
    };
    one(f::add(
        &scaled(&own, by("beta"))?,
        &scaled(product, by("alpha"))?,
    ))
}

/// `addmm` and `baddbmm`.
pub fn addmm(a: &Args, h: Hidden) -> Made {
    let ndim = if a.op.path() == "baddbmm" { 3 } else { 2 };
    added(a, h, ndim, &f::matmul(a.tensor(1)?, a.tensor(2)?)?)
}

/// `addmv`.
pub fn addmv(a: &Args, h: Hidden) -> Made {
    added(a, h, 1, &by_vector(a.tensor(1)?, a.tensor(2)?)?)
}

/// `embedding`: a table that is the same for all is looked up at once.
pub fn embedding(a: &Args, h: Hidden) -> Made {
    if h.differs(0) {
        return Ok(None);
    }
    same(a, &a.values)
}

/// `native_layer_norm`: weights that differ are applied afterwards.
pub fn layer_norm(a: &Args, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    if !h.differs(2) && !h.differs(3) {
        return same(a, &a.values);
    }
    let ndim = a.tensor(0)?.ndim() - h.k;
    let fit = |i: usize, t: &Tensor| {
        if h.differs(i) {
            padded(t, h.k, ndim)
        } else {
            Ok(t.clone())
        }
    };
    let mut values = a.values.to_vec();
    (values[2], values[3]) = (Arg::None, Arg::None);
    let mut made = dispatch::run(a.op, &values)?.tensors();
    if let Some(w) = a.opt_tensor(2) {
        made[0] = f::mul(&made[0], &fit(2, w)?)?;
    }
    if let Some(b) = a.opt_tensor(3) {
        made[0] = f::add(&made[0], &fit(3, b)?)?;
    }
    Ok(Some(Ret::Tuple(made)))
}

/// `convolution`: examples join the batch; weights that differ become groups.
pub fn convolution(a: &Args, h: Hidden) -> Made {
    let k = h.k as i64;
    let (x, w, bias) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let mut values = a.values.to_vec();
    if !h.differs(1) && !h.differs(2) {
        let joined = flattened(x, 0, k)?;
        values[0] = Arg::Tensor(&joined);
        let made = dispatch::run(a.op, &values)?.one()?;
        let shape = hidden(x, h.k + 1).concat(&Dims::new(&made.shape()[1..]));
        return one(f::reshape(&made, &shape[..]));
    }
    let shown = [(0, Some(x)), (1, Some(w)), (2, bias)];
    let differing = shown.iter().find(|(i, _)| h.differs(*i)).and_then(|s| s.1);
    let batch = hidden(differing.unwrap_or(x), h.k);
    let count: i64 = batch.iter().product();
    let whole = |i: usize, t: &Tensor| match h.differs(i) {
        true => Ok(t.clone()),
        false => f::expand(t, &batch.concat(t.shape())[..]),
    };
    // [batch, N, C, ...] as [N, batch * C, ...]
    let x = f::MovedimInt::new(&flattened(&whole(0, x)?, 0, k - 1)?, 0, 1).call()?;
    let x = flattened(&x, 1, 2)?;
    let w = flattened(&whole(1, w)?, 0, k)?;
    let bias = bias.map(|b| flattened(&whole(2, b)?, 0, k)).transpose()?;
    values[0] = Arg::Tensor(&x);
    values[1] = Arg::Tensor(&w);
    values[2] = bias.as_ref().map_or(Arg::None, Arg::Tensor);
    values[8] = Arg::Int(a.int(8)? * count);
    let made = dispatch::run(a.op, &values)?.one()?;
    let apart = Dims::from([made.shape()[0], count, -1]).concat(&Dims::new(&made.shape()[2..]));
    let first = f::MovedimInt::new(&f::reshape(&made, &apart[..])?, 1, 0).call()?;
    let shape = batch.concat(&Dims::new(&first.shape()[1..]));
    one(f::reshape(&first, &shape[..]))
}

fn flattened(t: &Tensor, from: i64, to: i64) -> Result<Tensor> {
    f::Flatten::new(t).start_dim(from).end_dim(to).call()
}

/// How places are looked up in whole batches: the places for each dimension, and how many dimensions an example of them has. Nothing
/// where the dimensions looked up are not next to each other, or not the first, as has to be if places differ.
fn places(a: &Args, h: Hidden, of: &Tensor) -> Result<Option<(Vec<Option<Tensor>>, usize)>> {
    let given = a.opt_tensors(1)?;
    let used: Vec<usize> = (0..given.len()).filter(|i| given[*i].is_some()).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else {
        return Ok(None);
    };
    if last - first + 1 != used.len() || (h.differs(1) && *first != 0) {
        return Ok(None);
    }
    let hides = if h.differs(1) { h.k } else { 0 };
    let ndim = given
        .iter()
        .flatten()
        .map(|t| t.ndim() - hides)
        .max()
        .unwrap_or(0);
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
        let t = t.map(|t| padded(t, hides, ndim)).transpose()?;
        all.push(t);
    }
    Ok(Some((all, ndim)))
}

/// `index`: places that are the same for all are looked up behind the dimensions out of sight, others together with the number of the
/// example.
pub fn index(a: &Args, h: Hidden) -> Made {
    let x = a.tensor(0)?;
    let Some((all, _)) = places(a, h, x)? else {
        return Ok(None);
    };
    same(
        a,
        &[
            Arg::Tensor(x),
            Arg::OptTensors(all.iter().map(Option::as_ref).collect()),
        ],
    )
}

/// `index_put`; as [`index`].
pub fn index_put(a: &Args, h: Hidden) -> Made {
    let (x, values) = (a.tensor(0)?, a.tensor(2)?);
    if !h.differs(0) {
        return Ok(None);
    }
    let Some((all, ndim)) = places(a, h, x)? else {
        return Ok(None);
    };
    let looked_up = a.opt_tensors(1)?.iter().flatten().count();
    let ndim = ndim + x.ndim() - h.k - looked_up;
    let values = if h.differs(2) {
        padded(values, h.k, ndim)?
    } else {
        values.clone()
    };
    let places = Arg::OptTensors(all.iter().map(Option::as_ref).collect());
    same(
        a,
        &[
            Arg::Tensor(x),
            places,
            Arg::Tensor(&values),
            a.values[3].clone(),
        ],
    )
}

/// `native_group_norm`: examples join the batch.
pub fn group_norm(a: &Args, h: Hidden) -> Made {
    if h.differ != 1 {
        return Ok(None);
    }
    let x = a.tensor(0)?;
    let joined = flattened(x, 0, h.k as i64)?;
    let mut values = a.values.to_vec();
    values[0] = Arg::Tensor(&joined);
    values[3] = Arg::Int(joined.shape()[0]);
    let first = hidden(x, h.k + 1);
    let apart = |_, t: Tensor| f::reshape(&t, &first.concat(&Dims::new(&t.shape()[1..]))[..]);
    dispatch::run(a.op, &values)?.map(apart).map(Some)
}

/// `batch_norm` by the batch's own statistics: examples join the channels.
pub fn batch_norm(a: &Args, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    let x = a.tensor(0)?;
    let batch = hidden(x, h.k);
    let count: i64 = batch.iter().product();
    let channels = x.size(h.k as i64 + 1)?;
    // [batch, N, C, ...] as [N, batch * C, ...]
    let joined = f::MovedimInt::new(&flattened(x, 0, h.k as i64 - 1)?, 0, 1).call()?;
    let joined = flattened(&joined, 1, 2)?;
    let each = |i: usize| -> Result<Option<Tensor>> {
        let Some(t) = a.opt_tensor(i) else {
            return Ok(None);
        };
        let whole = f::expand(t, &batch.concat(&Dims::from([channels]))[..])?;
        f::reshape(&whole, &[-1][..]).map(Some)
    };
    let (weight, bias) = (each(1)?, each(2)?);
    let mut values = a.values.to_vec();
    values[0] = Arg::Tensor(&joined);
    values[1] = weight.as_ref().map_or(Arg::None, Arg::Tensor);
    values[2] = bias.as_ref().map_or(Arg::None, Arg::Tensor);
    let apart = |i, t: Tensor| -> Result<Tensor> {
        if i > 0 {
            return f::reshape(&t, &batch.concat(&Dims::from([channels]))[..]);
        }
        let sizes = Dims::from([t.shape()[0], count, channels]).concat(&Dims::new(&t.shape()[2..]));
        let first = f::MovedimInt::new(&f::reshape(&t, &sizes[..])?, 1, 0).call()?;
        f::reshape(&first, &batch.concat(&Dims::new(&first.shape()[1..]))[..])
    };
    dispatch::run(a.op, &values)?.map(apart).map(Some)
}

/// `nll_loss`: the weighted entries of the targets, by `gather`.
pub fn nll_loss(a: &Args, h: Hidden) -> Made {
    if h.differs(2) {
        return Ok(None);
    }
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let batch = hidden(if h.differs(0) { x } else { target }, h.k);
    let whole = |i: usize, t: &Tensor| match h.differs(i) {
        true => Ok(t.clone()),
        false => f::expand(t, &batch.concat(t.shape())[..]),
    };
    let (x, target) = (whole(0, x)?, whole(1, target)?);
    let classes = (h.k + usize::from(x.ndim() > h.k + 1)) as i64;
    let ignored = f::eq(&target, a.int(4)?)?;
    let safe = f::masked_fill(&target, &ignored, 0)?;
    let picked = f::gather(&x, classes, &f::unsqueeze(&safe, classes)?)?;
    let weight = match a.opt_tensor(2) {
        Some(w) => {
            let flat = f::index_select(w, 0, &f::reshape(&safe, &[-1][..])?)?;
            f::reshape(&flat, &safe.shape()[..])?
        }
        None => f::ones_like(&f::squeeze_dim(&picked, classes)?.bare())?,
    };
    let weight = f::masked_fill(&weight, &ignored, 0)?;
    let each = f::neg(&f::mul(&f::squeeze_dim(&picked, classes)?, &weight)?)?;
    let over: Vec<i64> = (h.k as i64..each.ndim() as i64).collect();
    let sum = |t: &Tensor| match over.is_empty() {
        true => Ok(t.clone()),
        false => f::SumDim::new(t, &over[..]).call(),
    };
    let total = sum(&weight)?;
    let loss = match a.int(3)? {
        0 => return Ok(Some(Ret::Tuple(vec![each, f::zeros_like(&total)?]))),
        1 => f::div(&sum(&each)?, &total)?,
        _ => sum(&each)?,
    };
    Ok(Some(Ret::Tuple(vec![loss, total])))
}

/// `take`: positions in each example, all of whose elements are one dimension.
pub fn take(a: &Args, h: Hidden) -> Made {
    let (x, index) = (a.tensor(0)?, a.tensor(1)?);
    if !h.differs(0) {
        return same(a, &a.values);
    }
    let batch = hidden(x, h.k);
    let last = h.k as i64;
    let flat = f::reshape(x, &batch.concat(&Dims::from([-1]))[..])?;
    let (places, shown) = if h.differs(1) {
        let places = f::reshape(index, &batch.concat(&Dims::from([-1]))[..])?;
        (places, Dims::new(&index.shape()[h.k..]))
    } else {
        let row = f::reshape(index, &[-1][..])?;
        let places = f::expand(&row, &batch.concat(row.shape())[..])?;
        (places, index.shape().clone())
    };
    // Positions from the end are counted from the start for `gather`.
    let count = flat.size(last)?;
    let places = f::where_(&f::lt(&places, 0)?, &f::add(&places, count)?, &places)?;
    let made = f::gather(&flat, last, &places)?;
    one(f::reshape(&made, &batch.concat(&shown)[..]))
}
