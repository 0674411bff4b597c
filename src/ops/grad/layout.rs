//! Gradients of views and of what puts tensors together.

use crate::ops::core::op::{OpDef, compose};
use crate::ops::grad::kept;
use crate::ops::grad::reduce::like;
use crate::ops::{Ret, f};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.sum_to",
        "(Tensor grad, int[] sizes)",
        0,
        |a| Ok(kept(sum_to(a.grad, a.sizes)?, a.grad)),
        "Summed to sizes that broadcast to those of the tensor.",
    )
    .samples("f32[2, 3], [3]; f32[2, 3], [2, 1]; f32[2], [2]"),
    compose(
        "_grad.unsqueeze_to",
        "(Tensor grad, int[] sizes, int[]? dim=None)",
        0,
        |a| Ok(kept(unsqueeze_to(a.grad, a.sizes, a.dim)?, a.grad)),
        "With the dimensions of size 1 that squeeze took out.",
    )
    .samples("f32[3], [1, 3, 1]; f32[3, 1], [1, 3, 1], [0]"),
    compose(
        "_grad.permute_back",
        "(Tensor grad, int[] dims)",
        0,
        |a| permute_back(a.grad, a.dims),
        "The dimensions as they were before `permute`.",
    )
    .samples("f32[2, 3, 4], [2, 0, 1]"),
    compose(
        "_grad.split_back",
        "(Tensor?[] grads, int[] sizes, int split_size, int dim)",
        0,
        |a| {
            let dim = dims::wrap_dim(a.dim, a.sizes.len())?;
            let count = a.grads.0.len() as i64;
            let last = a.sizes[dim] - a.split_size * (count - 1);
            let sizes: Vec<i64> = (0..count)
                .map(|i| if i + 1 == count { last } else { a.split_size })
                .collect();
            joined(&a.grads.0, a.sizes, &sizes, dim)
        },
        "The gradients of pieces as one.",
    )
    .samples("[f32[2, 3], f32[2, 3]], [4, 3], 2, 0"),
    compose(
        "_grad.split_sizes_back",
        "(Tensor?[] grads, int[] sizes, int[] split_sizes, int dim)",
        0,
        |a| {
            let dim = dims::wrap_dim(a.dim, a.sizes.len())?;
            joined(&a.grads.0, a.sizes, a.split_sizes, dim)
        },
        "The gradients of pieces as one.",
    )
    .samples("[f32[1, 3], f32[3, 3]], [4, 3], [1, 3], 0"),
    compose(
        "_grad.unbind_back",
        "(Tensor?[] grads, int[] sizes, int dim)",
        0,
        |a| {
            let dim = dims::wrap_dim(a.dim, a.sizes.len())?;
            let piece = Dims::new(a.sizes).removed(dim);
            let all = filled(&a.grads.0, |_| piece.clone())?;
            f::Stack::new(&all[..]).dim(dim as i64).call()
        },
        "The gradients of slices as one.",
    )
    .samples("[f32[3], f32[3]], [2, 3], 0"),
    compose(
        "_grad.stack_back",
        "(Tensor grad, int dim) -> Tensor[]",
        0,
        |a| {
            let slices = 0..a.grad.size(a.dim)?;
            let slices = slices.map(|i| f::select(a.grad, a.dim, i));
            slices.collect::<Result<Vec<_>>>().map(Ret::List)
        },
        "The gradient of each of the tensors that were stacked.",
    )
    .samples("f32[2, 3], 1"),
    compose(
        "_grad.cat_back",
        "(Tensor grad, int[] sizes, int dim) -> Tensor[]",
        0,
        |a| cat_back(a.grad, a.sizes, a.dim),
        "The gradients of joined tensors; `sizes` are those of each, after its number of dimensions.",
    )
    .samples("f32[4, 3], [2, 1, 3, 2, 3, 3], 0; f32[3], [1, 0, 1, 3], 0"),
    compose(
        "_grad.repeat_back",
        "(Tensor grad, int[] repeats, int[] sizes)",
        0,
        |a| Ok(kept(repeat_back(a.grad, a.repeats, a.sizes)?, a.grad)),
        "The gradient of repeat.",
    )
    .samples("f32[4, 6], [2, 2], [2, 3]; f32[2, 6], [2, 2], [3]"),
    compose(
        "_grad.pad_back",
        "(Tensor grad, int[] pad)",
        0,
        |a| {
            let less: Vec<i64> = a.pad.iter().map(|p| -p).collect();
            f::constant_pad_nd(a.grad, &less[..])
        },
        "The gradient of a constant padding.",
    )
    .samples("f32[4, 5], [1, 1]"),
    compose(
        "_grad.circular_back",
        "(Tensor grad, int[] sizes, int[] pad)",
        0,
        |a| Ok(kept(circular_back(a.grad, a.sizes, a.pad)?, a.grad)),
        "The gradient of circular padding: what was copied is added where it came from.",
    )
    .samples("f32[2, 7], [2, 4], [1, 2]"),
    compose(
        "_grad.roll_back",
        "(Tensor grad, int[] shifts, int[] dims)",
        0,
        |a| {
            let shifts: Vec<i64> = a.shifts.iter().rev().map(|s| -s).collect();
            let dims: Vec<i64> = a.dims.iter().rev().copied().collect();
            f::Roll::new(a.grad, &shifts[..]).dims(&dims[..]).call()
        },
        "The gradient of roll: the way back.",
    )
    .samples("f32[4, 5], [1], [0]; f32[4], [2], []"),
    compose(
        "_grad.index_source",
        "(Tensor grad, int dim, Tensor index, int[] sizes)",
        0,
        |a| {
            let taken = f::index_select(a.grad, a.dim, a.index)?;
            if a.sizes.is_empty() {
                return f::squeeze_dim(&taken, 0);
            }
            f::expand(&taken, a.sizes)
        },
        "The gradient of what was written at indices along a dimension.",
    )
    .samples("f32[3, 4], 0, i64([0, 2]), [2, 4]"),
    compose(
        "_grad.take_back",
        "(Tensor grad, int[] sizes, Tensor index)",
        0,
        |a| f::Put::new(&like(a.grad, a.sizes)?, a.index, a.grad).accumulate(true).call(),
        "The gradient of take.",
    )
    .samples("f32[2], [2, 3], i64([0, 4])"),
    compose(
        "_grad.masked_select_back",
        "(Tensor grad, int[] sizes, Tensor mask)",
        0,
        |a| {
            let whole = dims::broadcast(a.sizes, a.mask.shape())?;
            let made = f::masked_scatter(&like(a.grad, &whole)?, a.mask, a.grad)?;
            sum_to(&made, a.sizes)
        },
        "The gradient of masked_select.",
    )
    .samples("f32[2], [3], b8([True, False, True])"),
    compose(
        "_grad.many",
        "(Tensor grad, int[] sizes)",
        0,
        |a| {
            let Some(count) = a.sizes.first() else {
                bail!(Runtime, "the number of products is missing");
            };
            let shape = Dims::from([*count]).concat(a.grad.shape());
            f::expand(&f::unsqueeze(a.grad, 0)?, &shape[..])
        },
        "The gradient of a sum of products, once for each.",
    )
    .samples("f32[2, 3], [5, 2, 4]"),
    compose(
        "_grad.as_strided_back",
        "(Tensor grad, int[] sizes, int[] strides, int[] size, int[] stride, int? offset, int input_offset, int lead)",
        0,
        as_strided_back,
        "The gradient of as_strided; of that many first dimensions, which are the same before and after, each place is by itself.",
    )
    .samples(
        "f32[2, 2], [2, 2], [2, 1], [2, 2], [1, 1], 0, 0, 0; \
         f32[3, 2], [3, 2], [0, 1], [3, 2], [0, 0], 0, 0, 1",
    ),
];

/// Summed to sizes that broadcast to those of the tensor.
pub fn sum_to(t: &Tensor, shape: &[i64]) -> Result<Tensor> {
    if t.shape()[..] == *shape {
        return Ok(t.clone());
    }
    if shape.is_empty() {
        return f::sum(t);
    }
    let lead = t.ndim().saturating_sub(shape.len());
    let over: Vec<i64> = (0..t.ndim())
        .filter(|&d| d < lead || shape[d - lead] == 1 && t.shape()[d] != 1)
        .map(|d| d as i64)
        .collect();
    let summed = if over.is_empty() {
        t.clone()
    } else {
        f::SumDim::new(t, &over[..]).keepdim(true).call()?
    };
    if lead > 0 {
        f::view(&summed, shape)
    } else {
        Ok(summed)
    }
}

fn unsqueeze_to(grad: &Tensor, sizes: &[i64], dim: Option<&[i64]>) -> Result<Tensor> {
    let n = sizes.len();
    let named = match dim {
        Some(list) => list
            .iter()
            .map(|d| dims::wrap_dim(*d, n.max(1)))
            .collect::<Result<Vec<_>>>()?,
        None => (0..n).collect(),
    };
    let mut made = grad.clone();
    for (d, &size) in sizes.iter().enumerate() {
        if size == 1 && named.contains(&d) {
            made = f::unsqueeze(&made, d as i64)?;
        }
    }
    Ok(made)
}

fn permute_back(grad: &Tensor, order: &[i64]) -> Result<Tensor> {
    let mut back = vec![0i64; order.len()];
    for (i, d) in order.iter().enumerate() {
        back[dims::wrap_dim(*d, order.len())?] = i as i64;
    }
    f::permute(grad, &back[..])
}

/// All gradients, with zeros for those that did not arrive.
fn filled(grads: &[Option<&Tensor>], shape: impl Fn(usize) -> Dims) -> Result<Vec<Tensor>> {
    let Some(known) = grads.iter().flatten().next() else {
        bail!(Runtime, "a gradient is needed at least");
    };
    let each = |(i, g): (usize, &Option<&Tensor>)| match g {
        Some(g) => Ok((*g).clone()),
        None => like(known, &shape(i)),
    };
    grads.iter().enumerate().map(each).collect()
}

fn joined(grads: &[Option<&Tensor>], sizes: &[i64], pieces: &[i64], dim: usize) -> Result<Tensor> {
    let all = filled(grads, |i| Dims::new(sizes).with(dim, pieces[i]))?;
    f::Cat::new(&all[..]).dim(dim as i64).call()
}

fn cat_back(grad: &Tensor, sizes: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    let dim = dims::wrap_dim(dim, grad.ndim())?;
    let mut rest = sizes;
    let (mut made, mut start) = (Vec::new(), 0);
    while let [count, more @ ..] = rest {
        let count = *count as usize;
        if count > more.len() {
            bail!(Runtime, "the sizes of {} dimensions are missing", count);
        }
        let (shape, after) = more.split_at(count);
        rest = after;
        // An empty list of numbers joins anything.
        if shape == [0] {
            made.push(like(grad, shape)?);
            continue;
        }
        let Some(length) = shape.get(dim) else {
            bail!(
                Runtime,
                "a part of {} dimensions was not joined along dimension {}",
                count,
                dim
            );
        };
        made.push(f::narrow(grad, dim as i64, start, *length)?);
        start += length;
    }
    Ok(made)
}

fn repeat_back(grad: &Tensor, repeats: &[i64], sizes: &[i64]) -> Result<Tensor> {
    if repeats.is_empty() {
        return Ok(grad.clone());
    }
    if repeats.contains(&0) {
        return like(grad, sizes);
    }
    ensure!(
        repeats.len() == grad.ndim() && sizes.len() <= grad.ndim(),
        Runtime,
        "{} repeats of {} dimensions do not give {}",
        repeats.len(),
        sizes.len(),
        grad.ndim()
    );
    let lead = grad.ndim() - sizes.len();
    let mut grad = grad.clone();
    for _ in 0..lead {
        grad = f::SumDim::new(&grad, &[0i64][..]).call()?;
    }
    let (mut shape, mut over) = (Vec::new(), Vec::new());
    for (d, size) in sizes.iter().enumerate() {
        let times = repeats[d + lead];
        if times != 1 {
            over.push(shape.len() as i64);
            shape.push(times);
        }
        shape.push(*size);
    }
    if over.is_empty() {
        return Ok(grad);
    }
    f::sum_dim(&f::reshape(&grad, &shape[..])?, &over[..])
}

/// Adds up in memory laid out as the input's: each place gets the gradients of all that lie there, shared among what overlaps.
fn as_strided_back(a: &calls::_GradAsStridedBack) -> Result<Tensor> {
    let lead = a.lead as usize;
    let shorter = [a.sizes, a.strides, a.size, a.stride].map(<[i64]>::len);
    ensure!(
        shorter.iter().all(|n| lead <= *n),
        Runtime,
        "as_strided has fewer dimensions than {lead}"
    );
    let [sizes, strides, size, stride] = [a.sizes, a.strides, a.size, a.stride].map(|l| &l[lead..]);
    let start = a.offset.unwrap_or(a.input_offset);
    let lowest = start.min(a.input_offset);
    let reach = |sizes: &[i64], strides: &[i64], offset: i64| -> i64 {
        if sizes.contains(&0) {
            return 0;
        }
        let last: i64 = sizes.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum();
        offset - lowest + last + 1
    };
    let length = reach(sizes, strides, a.input_offset).max(reach(size, stride, start));
    // Memories of their own, side by side.
    let count: i64 = a.size[..lead].iter().product();
    let apart: &[i64] = if lead > 0 { &[count] } else { &[] };
    let side = |n: i64| Dims::new(apart).concat(&[n]);
    let along = apart.len() as i64;
    let memory = like(a.grad, &side(length))?;
    // The numbers from 0 on, made of the gradient, so that they are recorded where it is.
    let ones = f::NewOnes::new(a.grad, &[length])
        .dtype(DType::I64)
        .call()?;
    let places = f::sub(&f::Cumsum::new(&ones, 0).call()?, 1i64)?;
    let seen = |sizes: &[i64], strides: &[i64], offset: i64| -> Result<Tensor> {
        let v = f::AsStrided::new(&places, sizes, strides)
            .storage_offset(offset - lowest)
            .call()?;
        f::reshape(&v, &[-1i64][..])
    };
    let written = seen(size, stride, start)?;
    let grad = f::reshape(a.grad, &side(size.iter().product())[..])?;
    let memory = f::index_add(&memory, along, &written, &grad)?;
    let read = seen(sizes, strides, a.input_offset)?;
    let ones = f::ones_like(&f::index_select(&memory, along, &read)?)?;
    let shared = f::index_add(&like(a.grad, &side(length))?, along, &read, &ones)?;
    let memory = f::div(
        &memory,
        &f::masked_fill(&shared, &f::eq(&shared, 0i64)?, 1i64)?,
    )?;
    f::reshape(&f::index_select(&memory, along, &read)?, a.sizes)
}

fn circular_back(grad: &Tensor, sizes: &[i64], pad: &[i64]) -> Result<Tensor> {
    let mut grad = grad.clone();
    for (i, sides) in pad.chunks_exact(2).enumerate() {
        let dim = (sizes.len() - 1 - i) as i64;
        let (before, after, size) = (sides[0], sides[1], sizes[sizes.len() - 1 - i]);
        // Sides below zero cut off; their gradient is zero.
        let (kept, cut) = (before.max(0), [(-before).max(0), (-after).max(0)]);
        let middle = f::narrow(&grad, dim, kept, size - cut[0] - cut[1])?;
        let mut made = f::constant_pad_nd(&middle, &padding(i, cut)[..])?;
        // What was copied came from the ends of what was kept.
        if before > 0 {
            let part = f::narrow(&grad, dim, 0, before)?;
            let at = [size - cut[1] - before, cut[1]];
            made = f::add(&made, &f::constant_pad_nd(&part, &padding(i, at)[..])?)?;
        }
        if after > 0 {
            let part = f::narrow(&grad, dim, kept + size - cut[0] - cut[1], after)?;
            let at = [cut[0], size - cut[0] - after];
            made = f::add(&made, &f::constant_pad_nd(&part, &padding(i, at)[..])?)?;
        }
        grad = made;
    }
    Ok(grad)
}

/// Padding of the `i`th dimension from the end alone.
fn padding(i: usize, sides: [i64; 2]) -> Vec<i64> {
    let mut pad = vec![0; 2 * i];
    pad.extend(sides);
    pad
}
