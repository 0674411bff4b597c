//! Parts and rearrangements: what is chosen or moved of the coordinates.

use crate::ops::core::args::Args;
use crate::ops::core::dispatch::unknown_shape;
use crate::ops::core::helpers::has_no_values;
use crate::ops::core::op::Ret;
use crate::ops::f;
use crate::ops::sparse::coo::Coo;
use crate::ops::sparse::{Sparse, indices, numbers};
use crate::{Dims, Result, Tensor, bail, dims, ensure};

/// See [`super::sparse::answer`].
pub(super) fn answer(args: &Args) -> Result<Option<Ret>> {
    let made = match args.op.def.name {
        "t" => {
            check_matrix(args.tensor(0)?)?;
            transposed(args, 0, 1)?
        }
        "transpose" => transposed(args, args.int(1)?, args.int(2)?)?,
        "select" => select(args)?,
        "unbind" => return unbind(args),
        "narrow" => narrow(args)?,
        "slice" => slice(args)?,
        "index_select" => index_select(args)?,
        "unsqueeze" => unsqueeze(args)?,
        "cat" => cat(args)?,
        "stack" => stack(args)?,
        "permute" => permute(args)?,
        _ => None,
    };
    Ok(made.map(Ret::One))
}

/// The first argument by coordinates; compressed ones too, where the batch is none.
fn first(args: &Args) -> Result<Option<Coo>> {
    match args.tensor(0).ok().and_then(Sparse::of) {
        Some(s) => s.coo().map(Some),
        None => Ok(None),
    }
}

/// The dimension that a call names, the first unless it does.
fn dim_of(args: &Args, shape: &Dims) -> Result<usize> {
    ensure!(
        !shape.is_empty(),
        Index,
        "{}() cannot be applied to a 0-dim tensor.",
        args.name()
    );
    dims::wrap_dim(args.opt_int(1).unwrap_or(0), shape.len())
}

/// `t` is of matrices, of which no dimension is dense.
fn check_matrix(t: &Tensor) -> Result<()> {
    match Sparse::of(t) {
        Some(Sparse::Coo(c)) => {
            let (sparse, dense) = (c.sparse_dims(), t.ndim() - c.sparse_dims());
            ensure!(
                sparse <= 2 && dense == 0,
                Runtime,
                "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {sparse} sparse and {dense} dense dimensions"
            );
        }
        _ => ensure!(
            t.ndim() <= 2,
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {}D",
            t.ndim()
        ),
    }
    Ok(())
}

fn transposed(args: &Args, a: i64, b: i64) -> Result<Option<Tensor>> {
    let t = args.tensor(0)?;
    if t.ndim() < 2 {
        return Ok(Sparse::of(t).map(|_| t.clone()));
    }
    let (a, b) = (dims::wrap_dim(a, t.ndim())?, dims::wrap_dim(b, t.ndim())?);
    match Sparse::of(t) {
        Some(Sparse::Coo(c)) => {
            ensure!(
                a.max(b) < c.sparse_dims(),
                Runtime,
                "transpose: a dense dimension of a sparse tensor cannot be swapped"
            );
            c.swapped(a, b)?.build().map(Some)
        }
        Some(Sparse::Pressed(p)) => {
            let at = p.batch();
            if a == b {
                return Ok(Some(t.clone()));
            }
            ensure!(
                a.min(b) == at && a.max(b) == at + 1,
                Runtime,
                "transpose: only rows and columns of a compressed sparse tensor can be swapped"
            );
            p.transposed()?.build().map(Some)
        }
        None => Ok(None),
    }
}

/// The numbers of the entries for which `keep` holds of a coordinate.
fn chosen(c: &Coo, dim: usize, name: &str, keep: impl Fn(i64) -> bool) -> Result<Tensor> {
    if has_no_values(&c.indices) {
        return Err(unknown_shape(name));
    }
    let at: Vec<i64> = numbers(&c.row(dim)?)?
        .iter()
        .zip(0..)
        .filter(|(i, _)| keep(**i))
        .map(|(_, n)| n)
        .collect();
    indices(&at, &[at.len() as i64], &c.indices)
}

fn picked(c: &Coo, at: &Tensor) -> Result<(Tensor, Tensor)> {
    Ok((
        f::index_select(&c.indices, 1, at)?,
        f::index_select(&c.values, 0, at)?,
    ))
}

fn unbind(args: &Args) -> Result<Option<Ret>> {
    let t = args.tensor(0)?;
    let Some(sparse) = Sparse::of(t) else {
        return Ok(None);
    };
    let dim = dim_of(args, t.shape())?;
    // Rows and columns are found among coordinates: those are made once.
    let t = match sparse {
        Sparse::Pressed(p) if p.is_indexed(dim) => &p.coo()?.build()?,
        _ => t,
    };
    let each = (0..t.shape()[dim]).map(|i| f::select(t, dim as i64, i));
    each.collect::<Result<Vec<_>>>()
        .map(|all| Some(Ret::List(all)))
}

fn select(args: &Args) -> Result<Option<Tensor>> {
    let t = args.tensor(0)?;
    let Some(sparse) = Sparse::of(t) else {
        return Ok(None);
    };
    let (dim, index) = (dim_of(args, t.shape())?, args.int(2)?);
    let size = t.shape()[dim];
    ensure!(
        (-size..size).contains(&index),
        Index,
        "select(): index {index} out of range for tensor of size {} at dimension {dim}",
        t.shape()
    );
    let index = if index < 0 { index + size } else { index };
    if let Sparse::Pressed(p) = &sparse
        && !p.is_indexed(dim)
    {
        return p.at(dim, index)?.build().map(Some);
    }
    let c = sparse.coo()?;
    let mut shape = c.shape.to_vec();
    shape.remove(dim);
    if dim >= c.sparse_dims() {
        let values = f::select(&c.values, (dim - c.sparse_dims() + 1) as i64, index)?;
        let shape = Dims::new(&shape);
        return Coo { values, shape, ..c }.build().map(Some);
    }
    let at = chosen(&c, dim, "select", |i| i == index)?;
    let (indices, values) = picked(&c, &at)?;
    if c.sparse_dims() == 1 {
        // What is left is strided.
        let dtype = values.dtype();
        let sum = f::SumDim::new(&values, &[0i64][..]).dtype(dtype).call();
        return sum.map(Some);
    }
    let rows: Vec<i64> = (0..c.sparse_dims() as i64)
        .filter(|&d| d != dim as i64)
        .collect();
    let kept = Coo {
        indices,
        ..c.clone()
    }
    .rows_of_indices(&rows)?;
    Coo {
        indices: kept,
        values,
        shape: Dims::new(&shape),
        coalesced: c.coalesced,
    }
    .build()
    .map(Some)
}

fn narrow(args: &Args) -> Result<Option<Tensor>> {
    let Some(c) = first(args)? else {
        return Ok(None);
    };
    let dim = dim_of(args, &c.shape)?;
    let (start, length) = (args.int(2)?, args.int(3)?);
    let size = c.shape[dim];
    let start = if start < 0 { start + size } else { start };
    ensure!(
        length >= 0 && start >= 0 && start.checked_add(length).is_some_and(|end| end <= size),
        Runtime,
        "start ({start}) + length ({length}) exceeds dimension size ({size})."
    );
    range(c, dim, start, length).map(Some)
}

fn slice(args: &Args) -> Result<Option<Tensor>> {
    let Some(c) = first(args)? else {
        return Ok(None);
    };
    let dim = dim_of(args, &c.shape)?;
    let size = c.shape[dim];
    let wrap = |i: i64| {
        if i < 0 {
            (i.saturating_add(size)).max(0)
        } else {
            i.min(size)
        }
    };
    let start = wrap(args.opt_int(2).unwrap_or(0));
    let end = wrap(args.opt_int(3).unwrap_or(size)).max(start);
    ensure!(
        args.opt_int(4).unwrap_or(1) == 1,
        NotImplemented,
        "slice(): steps of a sparse tensor have to be 1; call to_dense() first"
    );
    range(c, dim, start, end - start).map(Some)
}

fn range(c: Coo, dim: usize, start: i64, length: i64) -> Result<Tensor> {
    let mut shape = c.shape.clone();
    shape[dim] = length;
    if dim >= c.sparse_dims() {
        let values = f::narrow(&c.values, (dim - c.sparse_dims() + 1) as i64, start, length)?;
        return Coo { values, shape, ..c }.build();
    }
    let at = chosen(&c, dim, "narrow", |i| (start..start + length).contains(&i))?;
    let (indices, values) = picked(&c, &at)?;
    Coo {
        indices: moved(&indices, dim, -start)?,
        values,
        shape,
        coalesced: c.coalesced,
    }
    .build()
}

/// Coordinates with a number added to those of one dimension.
fn moved(indices: &Tensor, dim: usize, by: i64) -> Result<Tensor> {
    let mut step = vec![0i64; indices.shape()[0] as usize];
    step[dim] = by;
    let step = crate::ops::sparse::indices(&step, &[step.len() as i64, 1], indices)?;
    f::add(indices, &step)
}

fn index_select(args: &Args) -> Result<Option<Tensor>> {
    let Some(c) = first(args)? else {
        return Ok(None);
    };
    let dim = dim_of(args, &c.shape)?;
    let index = args.tensor(2)?;
    let mut shape = c.shape.clone();
    shape[dim] = index.numel();
    if dim >= c.sparse_dims() {
        let values = f::index_select(&c.values, (dim - c.sparse_dims() + 1) as i64, index)?;
        return Coo { values, shape, ..c }.build().map(Some);
    }
    if has_no_values(&c.indices) || has_no_values(index) {
        return Err(unknown_shape("index_select"));
    }
    let size = c.shape[dim];
    let mut at_row = std::collections::HashMap::<i64, Vec<i64>>::new();
    for (i, n) in numbers(&c.row(dim)?)?.into_iter().zip(0..) {
        at_row.entry(i).or_default().push(n);
    }
    let (mut at, mut places) = (Vec::new(), Vec::new());
    for (i, place) in numbers(index)?.into_iter().zip(0i64..) {
        let i = if i < 0 { i + size } else { i };
        ensure!(
            (0..size).contains(&i),
            Index,
            "index_select(): index contains {i} that is out of range for tensor of size {} at dimension {dim}",
            c.shape
        );
        for &n in at_row.get(&i).map_or(&[][..], Vec::as_slice) {
            at.push(n);
            places.push(place);
        }
    }
    let list = |v: &[i64]| indices(v, &[v.len() as i64], &c.indices);
    let (indices, values) = picked(&c, &list(&at)?)?;
    let places = list(&places)?;
    let rows = (0..c.sparse_dims())
        .map(|d| {
            if d == dim {
                Ok(places.clone())
            } else {
                f::select(&indices, 0, d as i64)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    Coo {
        indices: f::stack(&rows[..])?,
        values,
        shape,
        coalesced: c.coalesced && dim == 0,
    }
    .build()
    .map(Some)
}

fn unsqueeze(args: &Args) -> Result<Option<Tensor>> {
    let Some(Sparse::Coo(c)) = args.tensor(0).ok().and_then(Sparse::of) else {
        return Ok(None);
    };
    let dim = dims::wrap_dim(args.int(1)?, c.shape.len() + 1)?;
    let mut shape = c.shape.to_vec();
    shape.insert(dim, 1);
    let shape = Dims::new(&shape);
    if dim > c.sparse_dims() {
        let values = f::unsqueeze(&c.values, (dim - c.sparse_dims() + 1) as i64)?;
        return Coo { values, shape, ..c }.build().map(Some);
    }
    let n = c.sparse_dims() as i64;
    let zeros = f::NewZeros::new(&c.indices, &[1, c.entries()][..]).call()?;
    let before = f::narrow(&c.indices, 0, 0, dim as i64)?;
    let after = f::narrow(&c.indices, 0, dim as i64, n - dim as i64)?;
    let indices = f::cat(&[before, zeros, after][..])?;
    Coo {
        indices,
        shape,
        ..c
    }
    .build()
    .map(Some)
}

fn stack(args: &Args) -> Result<Option<Tensor>> {
    let dim = args.int(1)?;
    let all = args
        .tensors(0)?
        .iter()
        .map(|t| f::unsqueeze(t, dim))
        .collect::<Result<Vec<_>>>()?;
    f::Cat::new(&all[..]).dim(dim).call().map(Some)
}

fn permute(args: &Args) -> Result<Option<Tensor>> {
    let Some(Sparse::Coo(c)) = args.tensor(0).ok().and_then(Sparse::of) else {
        return Ok(None);
    };
    let n = c.sparse_dims();
    let order = args.ints(1)?;
    ensure!(
        order.len() == c.shape.len(),
        Runtime,
        "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions"
    );
    let order = order
        .iter()
        .map(|&d| dims::wrap_dim(d, c.shape.len()))
        .collect::<Result<Vec<_>>>()?;
    let mut seen = vec![false; c.shape.len()];
    order.iter().for_each(|&d| seen[d] = true);
    ensure!(
        seen.iter().all(|s| *s),
        Runtime,
        "permute(): duplicate dims are not allowed."
    );
    ensure!(
        order[..n].iter().all(|&d| d < n),
        Runtime,
        "permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed.Only transpositions within sparse and dense dimensions are supported."
    );
    let rows: Vec<i64> = order[..n].iter().map(|&d| d as i64).collect();
    let inner: Vec<i64> = std::iter::once(0)
        .chain(order[n..].iter().map(|&d| (d - n + 1) as i64))
        .collect();
    Coo {
        indices: c.rows_of_indices(&rows)?,
        values: f::permute(&c.values, &inner[..])?,
        shape: order.iter().map(|&d| c.shape[d]).collect(),
        coalesced: c.coalesced && rows.iter().zip(0..).all(|(&r, i)| r == i),
    }
    .build()
    .map(Some)
}

fn cat(args: &Args) -> Result<Option<Tensor>> {
    let mut all = Vec::new();
    for t in args.tensors(0)? {
        match Sparse::of(t) {
            Some(Sparse::Coo(c)) => all.push(c),
            other => bail!(
                Runtime,
                "Concatenating sparse tensors, but a {} tensor was found at position {}.",
                if other.is_some() {
                    "compressed"
                } else {
                    "dense"
                },
                all.len()
            ),
        }
    }
    let Some(one) = all.first().cloned() else {
        return Ok(None);
    };
    let dim = dim_of(args, &one.shape)?;
    let n = one.sparse_dims();
    for (i, c) in all.iter().enumerate() {
        let fits = c.shape.len() == one.shape.len()
            && (0..c.shape.len()).all(|d| d == dim || c.shape[d] == one.shape[d]);
        ensure!(
            fits,
            Runtime,
            "All tensors must have the same shape: {} (except in the concatenating dimension), but found shape: {} at position {i}.",
            one.shape,
            c.shape
        );
        ensure!(
            c.sparse_dims() == n,
            Runtime,
            "All tensors must have the same sparse_dim and dense_dim: {n}, {}, but tensor at position {i} has {}, {}.",
            one.shape.len() - n,
            c.sparse_dims(),
            c.shape.len() - c.sparse_dims()
        );
    }
    let mut shape = one.shape.clone();
    shape[dim] = all.iter().map(|c| c.shape[dim]).sum();
    let (mut indices, mut values, mut start) = (Vec::new(), Vec::new(), 0);
    for c in &all {
        if dim < n {
            indices.push(moved(&c.indices, dim, start)?);
            values.push(c.values.clone());
        } else {
            // Beside other values, these are zero.
            let mut padded = c.values.shape().clone();
            padded[dim - n + 1] = shape[dim];
            let zeros = f::NewZeros::new(&c.values, &padded).call()?;
            indices.push(c.indices.clone());
            values.push(
                f::SliceScatter::new(&zeros, &c.values)
                    .dim((dim - n + 1) as i64)
                    .start(start)
                    .end(start + c.shape[dim])
                    .call()?,
            );
        }
        start += c.shape[dim];
    }
    Coo {
        indices: f::Cat::new(&indices[..]).dim(1).call()?,
        values: f::cat(&values[..])?,
        shape,
        coalesced: dim == 0 && n > 0 && all.iter().all(|c| c.coalesced),
    }
    .build()
    .map(Some)
}
