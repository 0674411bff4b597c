//! Places in whole batches: of indices and of masks.

use super::{Made, flat, hidden, one, padded};
use crate::dims::wrap_dim;
use crate::ops::core::op::Hidden;
use crate::ops::core::typed::OptTensors;
use crate::ops::f;
use crate::ops::index::truth::{covers, is_mask};
use crate::{DType, Dims, Result, Tensor, bail};

/// How places are looked up in whole batches: the places for each dimension, and how many dimensions an example of them has. Nothing
/// where the dimensions looked up are not next to each other, or not the first, as has to be if places differ.
fn places(
    given: &[Option<Tensor>],
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
    let hides = h.hides(1);
    let dims = |t: &Tensor| {
        if is_mask(t) {
            t.ndim().min(1)
        } else {
            t.ndim() - hides
        }
    };
    let ndim = given.iter().flatten().map(dims).max();
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
        all.push(t.as_ref().map(|t| padded(t, hides, ndim)).transpose()?);
    }
    Ok(Some((all, ndim)))
}

/// Masks that differ choose as many elements as they like.
fn refuse_masks(given: &[Option<&Tensor>], h: Hidden) -> Result<()> {
    if h.differs(1) && given.iter().flatten().any(|t| is_mask(t)) {
        bail!(
            Runtime,
            "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing with a \
             boolean mask."
        );
    }
    Ok(())
}

/// Masks that are the same for all as the places that they choose, unless one is the only index. Nothing if a mask does not fit.
fn spelled(
    given: &[Option<&Tensor>],
    h: Hidden,
    of: &Tensor,
) -> Result<Option<Vec<Option<Tensor>>>> {
    let mut all: Vec<Option<Tensor>> = Vec::new();
    let alone = given.iter().flatten().count() == 1;
    let mut at = h.hides(0);
    for t in given {
        match t {
            Some(t) if !alone && is_mask(t) => {
                let end = at + t.ndim();
                if t.ndim() == 0 || of.shape().get(at..end) != Some(&t.shape()[..]) {
                    return Ok(None);
                }
                let places = f::Unbind::new(&f::nonzero(t)?).dim(1).call()?;
                all.extend(places.into_iter().map(Some));
            }
            t => all.push(t.cloned()),
        }
        at += t.map_or(1, covers);
    }
    Ok(Some(all))
}

/// `index`: places that are the same for all are looked up behind the dimensions out of sight, others together with the number of the
/// example.
pub fn index(a: &f::Index, h: Hidden) -> Made {
    refuse_masks(&a.indices.0, h)?;
    let Some(given) = spelled(&a.indices.0, h, a.input)? else {
        return Ok(None);
    };
    let Some((all, _)) = places(&given, h, a.input)? else {
        return Ok(None);
    };
    let all: Vec<Option<&Tensor>> = all.iter().map(Option::as_ref).collect();
    one(f::Index::new(a.input, OptTensors(all)).call())
}

/// `index_put`; as [`index`].
pub fn index_put(a: &f::IndexPut, h: Hidden) -> Made {
    refuse_masks(&a.indices.0, h)?;
    if !h.differs(0) {
        return Ok(None);
    }
    let Some(given) = spelled(&a.indices.0, h, a.input)? else {
        return Ok(None);
    };
    let Some((all, ndim)) = places(&given, h, a.input)? else {
        return Ok(None);
    };
    let covered: usize = given.iter().flatten().map(covers).sum();
    let ndim = ndim + a.input.ndim() - h.k - covered;
    let values = h.fitted(2, a.values, ndim)?;
    let all: Vec<Option<&Tensor>> = all.iter().map(Option::as_ref).collect();
    let call = f::IndexPut::new(a.input, OptTensors(all), &values);
    one(call.accumulate(a.accumulate).call())
}

/// `take`: positions in each example, all of whose elements are one dimension.
pub fn take(a: &f::Take, h: Hidden) -> Made {
    let (x, index) = (a.input, a.index);
    if !h.differs(0) {
        return one(a.call());
    }
    let batch = hidden(x, h.k);
    let last = h.k as i64;
    let all = flat(x, h)?;
    let shown = &index.shape()[h.hides(1)..];
    let places = flat(&h.repeated(1, index, &batch)?, h)?;
    // Positions from the end are counted from the start for `gather`.
    let count = all.size(last)?;
    let places = f::where_(&f::lt(&places, 0)?, &f::add(&places, count)?, &places)?;
    let made = f::gather(&all, last, &places)?;
    one(f::reshape(&made, &batch.concat(shown)[..]))
}

/// The numbers of the examples, which lie before the dimensions of one.
fn numbers(batch: &Dims, ndim: usize, of: &Tensor) -> Result<Tensor> {
    let count = batch.iter().product::<i64>();
    let all = f::Arange::new(count).device(of.device()).call()?;
    f::reshape(&all, &batch.concat(&Dims::filled(ndim, 1))[..])
}

/// `embedding`: the rows of one matrix, or each example's of its own.
pub fn embedding(a: &f::Embedding, h: Hidden) -> Made {
    if !h.differs(0) {
        return one(a.call());
    }
    if a.scale_grad_by_freq || a.sparse {
        return Ok(None);
    }
    let batch = hidden(a.weight, h.k);
    let shown = a.indices.ndim() - h.hides(1);
    let flat = |t: &Tensor, to: usize| f::Flatten::new(t).end_dim(to as i64 - 1).call();
    let places = h.repeated(1, a.indices, &batch)?;
    let numbers = flat(&numbers(&batch, shown, a.weight)?, h.k)?;
    let (weight, places) = (flat(a.weight, h.k)?, flat(&places, h.k)?);
    let mut made =
        f::Index::new(&weight, OptTensors(vec![Some(&numbers), Some(&places)])).call()?;
    if a.padding_idx >= 0 {
        // No gradient goes to the row that stands for nothing.
        let unused = f::unsqueeze(&f::eq(&places, a.padding_idx)?, -1)?;
        made = f::where_(&unused, &f::detach(&made)?, &made)?;
    }
    let shape = batch.concat(&a.indices.shape()[h.hides(1)..]);
    let shape = shape.concat(&a.weight.shape()[h.k + 1..]);
    one(f::reshape(&made, &shape[..]))
}

/// The gradient of `embedding`: of all examples' matrices as one, where an example's rows follow those of the last.
pub fn embedding_gradient(a: &f::_GradEmbedding, h: Hidden) -> Made {
    let batch = match h.differs(0) {
        true => hidden(a.grad, h.k),
        false => hidden(a.indices, h.k),
    };
    let shown = a.indices.ndim() - h.hides(1);
    let mut grad = h.repeated(0, a.grad, &batch)?;
    let indices = h.repeated(1, a.indices, &batch)?;
    if a.padding >= 0 {
        let unused = f::unsqueeze(&f::eq(&indices, a.padding)?, -1)?;
        grad = f::masked_fill(&grad, &unused, 0i64)?;
    }
    let first = f::mul(&numbers(&batch, shown, a.grad)?, a.rows)?;
    let rows = batch.iter().product::<i64>() * a.rows;
    let places = f::reshape(&f::add(&indices, &first)?, &[-1])?;
    let grad = f::reshape(&grad, &[places.numel(), grad.size(-1)?])?;
    let made = f::_grad_embedding(&grad, &places, rows, -1, a.by_frequency)?;
    one(f::reshape(
        &made,
        &batch.concat(&[a.rows, made.size(-1)?])[..],
    ))
}

/// `index_fill` with values that may differ.
pub fn index_fill(a: &f::IndexFillTensor, h: Hidden) -> Made {
    let x = a.input;
    let shown = x.ndim() - h.hides(0);
    if h.differs(2) || shown == 0 {
        return Ok(None);
    }
    let dim = wrap_dim(a.dim, shown)?;
    if !h.differs(3) {
        return one(f::index_fill_tensor(
            x,
            (dim + h.k) as i64,
            a.index,
            a.value,
        ));
    }
    let shape = Dims::new(&x.shape()[x.ndim() - shown..]);
    let none = f::Zeros::new(&shape[..])
        .dtype(DType::Bool)
        .device(x.device())
        .call()?;
    let hit = f::index_fill(&none, dim as i64, a.index, true)?;
    filled(x, &hit, a.value, shown, h)
}

/// `masked_fill` by 0-dimensional tensors that may differ.
pub fn masked_fill(a: &f::MaskedFillTensor, h: Hidden) -> Made {
    let shown = |i: usize, t: &Tensor| t.ndim() - h.hides(i);
    let ndim = shown(0, a.input).max(shown(1, a.mask));
    let (x, mask) = (h.fitted(0, a.input, ndim)?, h.fitted(1, a.mask, ndim)?);
    if !h.differs(2) {
        return one(f::masked_fill_tensor(&x, &mask, a.value));
    }
    filled(&x, &mask, a.value, ndim, h)
}

/// `x`, or where a mask is true the numbers of its examples.
fn filled(x: &Tensor, mask: &Tensor, value: &Tensor, ndim: usize, h: Hidden) -> Made {
    if value.ndim() > h.k {
        return Ok(None);
    }
    // Two kinds of numbers may not be mixed, whatever they are.
    f::masked_fill_tensor(
        &f::new_empty(x, &[0])?,
        &f::NewEmpty::new(mask, &[0]).call()?,
        &f::NewEmpty::new(value, &[]).call()?,
    )?;
    let value = padded(&f::to_dtype(value, x.dtype())?, h.k, ndim)?;
    one(f::where_(mask, &value, x))
}

/// `masked_select` by one mask for all.
pub fn masked_select(a: &f::MaskedSelect, h: Hidden) -> Made {
    if h.differs(1) {
        bail!(
            Runtime,
            "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for each batch \
             this would return a differently shaped Tensor. Please file an issue at https://github.com/pytorch/pytorch/issues if \
             you need this feature."
        );
    }
    let batch = hidden(a.input, h.k);
    let shown = &a.input.shape()[h.k..];
    let shape = crate::dims::broadcast(&Dims::new(shown), a.mask.shape())?;
    let x = padded(a.input, h.k, shape.len())?;
    let x = f::expand(&x, &batch.concat(&shape)[..])?;
    let mask = f::reshape(&f::expand(a.mask, &shape[..])?, &[-1][..])?;
    let x = f::reshape(&x, &batch.concat(&[shape.iter().product()])[..])?;
    let chosen = f::reshape(&f::nonzero(&mask)?, &[-1][..])?;
    one(f::index_select(&x, h.k as i64, &chosen))
}
