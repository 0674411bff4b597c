//! What square brackets mean: `x[...]` and `x[...] = value` in terms of views, `index` and `index_put`.

use crate::ops::core::helpers;
use crate::ops::f;
use crate::ops::index::truth::{covers, is_mask};
use crate::{Dims, Result, Scalar, Tensor, bail, ensure, mode};
use std::borrow::Cow;

/// One thing in square brackets.
#[derive(Clone, Debug)]
pub enum Index {
    /// A position, counted from the end if negative.
    Int(i64),
    /// A range.
    Slice {
        /// First position.
        start: Option<i64>,
        /// End, not included.
        stop: Option<i64>,
        /// Distance of positions.
        step: Option<i64>,
    },
    /// All dimensions that the others leave.
    Ellipsis,
    /// A new dimension of size 1.
    NewAxis,
    /// A new dimension with one element or none.
    Bool(bool),
    /// Positions or a mask.
    Tensor(Tensor),
}

/// What is written by `x[...] = value`.
#[derive(Clone, Debug)]
pub enum Put<'a> {
    /// A tensor, broadcast.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

/// What the simple parts of an index leave: a view, and tensors for the `index` operator.
struct Sliced<'a> {
    view: Cow<'a, Tensor>,
    indices: Vec<Option<Tensor>>,
}

/// A range of a dimension, or none if that is all of it.
fn slice(
    t: &Tensor,
    dim: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Result<Option<Tensor>> {
    // Several ellipses lead beyond the dimensions.
    let size = t.shape().get(dim).copied().unwrap_or(1);
    if step.is_none_or(|s| s == 1) && start.unwrap_or(0) == 0 && stop.is_none_or(|s| s >= size) {
        return Ok(None);
    }
    range(t, dim, start, stop, step).map(Some)
}

/// A range of a dimension.
fn range(
    t: &Tensor,
    dim: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Result<Tensor> {
    let step = step.unwrap_or(1);
    ensure!(step != 0, Value, "slice step cannot be zero");
    ensure!(step > 0, Value, "step must be greater than zero");
    // As PyTorch's nodes and modes see it: an end that is not given is as far away as it can be.
    let end = stop.unwrap_or(i64::MAX);
    let slice = f::Slice::new(t).dim(dim as i64).start(start).end(end);
    slice.step(step).call()
}

/// A truth value as the positions it takes from a dimension of size 1.
fn positions(on: bool) -> Result<Tensor> {
    if on {
        Tensor::from_slice(&[0i64], &[1])
    } else {
        Tensor::from_slice::<i64>(&[], &[0])
    }
}

fn apply<'a>(t: &'a Tensor, list: &[Index]) -> Result<Sliced<'a>> {
    let given = check_given(t, list)?;
    // `dim` is the place in the view; `place` that in the list of index tensors, where a mask of several dimensions takes one.
    let (mut view, mut dim, mut indices, mut real) = (
        Cow::Borrowed(t),
        0usize,
        Vec::<Option<Tensor>>::new(),
        0usize,
    );
    let mut place = 0usize;
    let mut record = |at: usize, index: Tensor| {
        indices.resize_with(at, || None);
        indices.push(Some(index));
    };
    for i in list {
        match i {
            Index::Int(n) => {
                view = Cow::Owned(pick(&view, dim, *n, real)?);
                real += 1;
            }
            Index::Slice { start, stop, step } => {
                if let Some(part) = slice(&view, dim, *start, *stop, *step)? {
                    view = Cow::Owned(part);
                }
                (dim, place, real) = (dim + 1, place + 1, real + 1);
            }
            Index::Ellipsis => {
                let rest = t.ndim().saturating_sub(given);
                (dim, place, real) = (dim + rest, place + rest, real + rest);
            }
            Index::NewAxis => {
                view = Cow::Owned(f::unsqueeze(&view, dim as i64)?);
                (dim, place) = (dim + 1, place + 1);
            }
            Index::Bool(on) => {
                view = Cow::Owned(f::unsqueeze(&view, dim as i64)?);
                record(place, helpers::made_for(positions(*on)?, t)?);
                (dim, place) = (dim + 1, place + 1);
            }
            // An example of a batch has no number that could be read: it is looked up as any index.
            Index::Tensor(index)
                if index.ndim() == 0
                    && index.dtype().is_integral(true)
                    && index.batch().is_empty() =>
            {
                let value = helpers::item(index)?;
                if is_mask(index) {
                    view = Cow::Owned(f::unsqueeze(&view, dim as i64)?);
                    record(place, helpers::made_for(positions(value.to_bool())?, t)?);
                    (dim, place) = (dim + 1, place + 1);
                } else {
                    view = Cow::Owned(pick(&view, dim, value.to_i64(), real)?);
                    real += 1;
                }
            }
            Index::Tensor(index) => {
                record(place, index.clone());
                let covered = covers(index);
                (dim, place, real) = (dim + covered, place + 1, real + covered);
            }
        }
    }
    Ok(Sliced { view, indices })
}

/// The dimensions that indices speak of, which a tensor has.
fn check_given(t: &Tensor, list: &[Index]) -> Result<usize> {
    let mut given = 0;
    for i in list {
        given += match i {
            Index::Int(_) | Index::Slice { .. } => 1,
            Index::Tensor(t) => covers(t),
            _ => 0,
        };
    }
    if t.ndim() == 0
        && let [only] = list
    {
        match only {
            Index::Int(i) if *i != 0 => bail!(
                Index,
                "index {i} is out of bounds for dimension 0 with size 0"
            ),
            Index::Int(_) => bail!(
                Index,
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor \
                 to a number"
            ),
            Index::Slice { .. } => bail!(Index, "slice() cannot be applied to a 0-dim tensor."),
            _ => {}
        }
    }
    ensure!(
        given <= t.ndim(),
        Index,
        "too many indices for tensor of dimension {}",
        t.ndim()
    );
    Ok(given)
}

fn pick(t: &Tensor, dim: usize, index: i64, real: usize) -> Result<Tensor> {
    let size = t.shape().get(dim).copied().unwrap_or(0);
    ensure!(
        index >= -size && index < size,
        Index,
        "index {index} is out of bounds for dimension {real} with size {size}"
    );
    f::select(t, dim as i64, index)
}

/// `t[index]`, not in a tuple: a range is a range then, even if it is all of the dimension.
///
/// # Errors
/// As [`get_item`].
pub fn get_only(t: &Tensor, index: &Index) -> Result<Tensor> {
    let list = std::slice::from_ref(index);
    match index {
        Index::Slice { start, stop, step } => {
            check_given(t, list)?;
            range(t, 0, *start, *stop, *step)
        }
        _ => get_item(t, list),
    }
}

/// `t[list]`: a view where only numbers, ranges and new dimensions are given, otherwise a copy.
///
/// # Errors
/// PyTorch's texts for indices that do not fit.
pub fn get_item(t: &Tensor, list: &[Index]) -> Result<Tensor> {
    let sliced = apply(t, list)?;
    if !sliced.indices.is_empty() {
        return f::index(&sliced.view, &sliced.indices[..]);
    }
    match sliced.view {
        Cow::Borrowed(t) => f::alias(t),
        Cow::Owned(view) => Ok(view),
    }
}

/// `t[list] = value`.
///
/// # Errors
/// PyTorch's texts for indices or values that do not fit.
pub fn set_item(t: &Tensor, list: &[Index], value: Put) -> Result<()> {
    if let [Index::Bool(false)] = list {
        return Ok(());
    }
    let mut sliced = apply(t, list)?;
    // What the tensor itself becomes, nobody hears of here; a view tells its tangents to all that see its memory.
    if mode::layers() & mode::FORWARD != 0 && matches!(sliced.view, Cow::Borrowed(_)) {
        sliced.view = Cow::Owned(f::alias(t)?);
    }
    let number;
    let value = match value {
        Put::Tensor(v) => v,
        Put::Scalar(s) => {
            let (s, dtype) = crate::ops::core::fits::assigned_to(s, t)?;
            // What lies over itself is refused as it is for tensors.
            if sliced.indices.is_empty() && !sliced.view.has_internal_overlap() {
                return f::Fill::new(&sliced.view, s).call_();
            }
            number = helpers::made_for(Tensor::scalar(s, dtype)?, t)?;
            &number
        }
    };
    if sliced.indices.is_empty() {
        return assign(&sliced.view, value);
    }
    // Leading dimensions of size 1 do not count.
    let shorter;
    let value = if value.shape().first() == Some(&1) {
        shorter = f::view(value, &Dims::new(without_ones(value)))?;
        &shorter
    } else {
        value
    };
    f::IndexPut::new(&sliced.view, &sliced.indices[..], value).call_()
}

fn without_ones(value: &Tensor) -> &[i64] {
    let lead = value.shape().iter().take_while(|&&d| d == 1).count();
    &value.shape()[lead..]
}

/// Writes a value, broadcast, by PyTorch's steps.
fn assign(target: &Tensor, value: &Tensor) -> Result<()> {
    if value.shape() == target.shape() {
        return helpers::copy_(target, value);
    }
    if value.ndim() == 0 && helpers::at_hand(value) && helpers::at_hand(target) {
        return f::FillTensor::new(target, value).call_();
    }
    let value = f::view(value, &Dims::new(without_ones(value)))?;
    helpers::copy_(target, &f::expand(&value, target.shape())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Tensor {
        Tensor::from_slice(&(0..12).map(|v| v as f32).collect::<Vec<_>>(), &[3, 4]).unwrap()
    }

    #[test]
    fn tensors_numbers_and_masks() {
        let x = grid();
        let i = Tensor::from_slice(&[2i64, -3], &[2]).unwrap();
        let all = Index::Slice {
            start: None,
            stop: None,
            step: None,
        };
        assert_eq!(
            get_item(&x, &[Index::Tensor(i.clone())])
                .unwrap()
                .to_vec::<f32>()
                .unwrap()[..5],
            [8., 9., 10., 11., 0.]
        );
        let r = get_item(&x, &[all.clone(), Index::Tensor(i.clone())]).unwrap();
        assert_eq!(r.to_vec::<f32>().unwrap(), [2., 1., 6., 5., 10., 9.]);
        let m = Tensor::from_slice(&[true, false, true], &[3]).unwrap();
        let r = get_item(&x, &[Index::Tensor(m.clone()), Index::Int(1)]).unwrap();
        assert_eq!(r.to_vec::<f32>().unwrap(), [1., 9.]);
        let e = get_item(&x, &[Index::Int(0), Index::Int(4)]).unwrap_err();
        assert_eq!(
            e.message(),
            "index 4 is out of bounds for dimension 1 with size 4"
        );
        set_item(
            &x,
            &[Index::Tensor(m), Index::Int(-1)],
            Put::Scalar(Scalar::Int(7)),
        )
        .unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap()[3], 7.);
        assert_eq!(x.to_vec::<f32>().unwrap()[7], 7.0);
    }
}
