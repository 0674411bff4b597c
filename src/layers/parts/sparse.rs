//! What calls with sparse tensors among their arguments give.

use super::{elements, index};
use crate::ops::core::args::{Arg, Args, OwnedArg};
use crate::ops::core::dispatch;
use crate::ops::core::op::Ret;
use crate::ops::core::rules::dim_list;
use crate::ops::f;
use crate::ops::sparse::products::{bmm, mm, mv};
use crate::ops::sparse::sums::sum as along;
use crate::ops::sparse::{Sparse, is_sparse};
use crate::parts::Layout;
use crate::{DType, Result, Scalar, Tensor, ensure};

/// The result of a call with a sparse tensor among its arguments; nothing if it is not known here.
///
/// # Errors
/// What the calls on its parts report.
pub fn answer(args: &Args) -> Result<Option<Ret>> {
    for try_it in [elements::answer, index::answer, products, sums, thresholds] {
        if let Some(made) = try_it(args)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// Products.
fn products(args: &Args) -> Result<Option<Ret>> {
    let two =
        |i: usize| -> Result<(&Tensor, &Tensor)> { Ok((args.tensor(i)?, args.tensor(i + 1)?)) };
    let made = match args.op.def.name {
        "mm" => {
            let (a, b) = two(0)?;
            mm(a, b)?
        }
        "bmm" => {
            let (a, b) = two(0)?;
            bmm(a, b)?
        }
        "matmul" => {
            let (a, b) = two(0)?;
            // Through the door once more, as it is these that have gradients.
            if b.ndim() == 1 {
                f::mv(a, b)?
            } else if a.ndim() == 1 {
                f::mv(&f::t(b)?, a)?
            } else {
                f::mm(a, b)?
            }
        }
        "mv" => {
            let (a, b) = two(0)?;
            mv(a, b)?
        }
        "nn.functional.linear" => {
            let (input, weight) = two(0)?;
            let made = linear(input, weight)?;
            match args.values.get(2) {
                Some(Arg::Tensor(bias)) => f::add(&made, *bias)?,
                _ => made,
            }
        }
        name @ ("addmm" | "addmv") => {
            let (a, b) = two(1)?;
            let beta = args.opt_scalar(3).unwrap_or(Scalar::Int(1));
            let alpha = args.opt_scalar(4).unwrap_or(Scalar::Int(1));
            let product = if name == "addmm" { mm(a, b) } else { mv(a, b) };
            let product = f::mul(&product?, alpha)?;
            let first = f::mul(args.tensor(0)?, beta)?;
            if is_sparse(&product) && !is_sparse(&first) {
                f::add(&first, &product)?
            } else {
                f::add(&product, &first)?
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(Ret::One(made)))
}

/// `input weight.T`, where one of them is sparse; a strided input may have further dimensions.
fn linear(input: &Tensor, weight: &Tensor) -> Result<Tensor> {
    if is_sparse(input) || input.ndim() == 2 {
        return mm(input, &f::t(weight)?);
    }
    let width = input.shape().last().copied().unwrap_or(1);
    let rows = f::reshape(input, &[input.numel() / width.max(1), width])?;
    let made = mm(&rows, &f::t(weight)?)?;
    let lead = input.shape().len().saturating_sub(1);
    let lead = crate::Dims::new(&input.shape()[..lead]);
    f::reshape(&made, &lead.concat(&made.shape()[1..]))
}

/// The gradient of a threshold, at the places of what is compared with it.
fn thresholds(args: &Args) -> Result<Option<Ret>> {
    if args.op.def.name != "_grad.threshold_backward" {
        return Ok(None);
    }
    let (grad, t) = (args.tensor(0)?, args.tensor(1)?);
    let mut owned = args.to_owned();
    let Some(s) = Sparse::of(t) else {
        owned.values[0] = OwnedArg::Tensor(f::_to_dense(grad)?);
        return dispatch::fresh(&owned.borrow()).map(Some);
    };
    let s = match s {
        Sparse::Coo(c) => Sparse::Coo(c.coalesce()?),
        pressed => pressed,
    };
    let masked = f::sparse_mask(grad, t)?;
    let Some(there) = Sparse::of(&masked) else {
        return Ok(None);
    };
    owned.values[0] = OwnedArg::Tensor(there.values().clone());
    owned.values[1] = OwnedArg::Tensor(s.values().clone());
    let made = dispatch::fresh(&owned.borrow())?.one()?;
    s.with_values(made).map(|t| Some(Ret::One(t)))
}

/// Sums, norms and truth.
fn sums(args: &Args) -> Result<Option<Ret>> {
    let name = args.op.def.name;
    let first = match args.tensor(0) {
        Ok(t) => Sparse::of(t),
        Err(_) => None,
    };
    let Some(s) = first else {
        return Ok(None);
    };
    let ndim = args.tensor(0)?.ndim();
    let made = match name {
        "sum" | "any" | "_norm" | "linalg.vector_norm" | "norm" | "frobenius_norm" => {
            if name != "sum" && name != "any" {
                whole(args, ndim)?;
            }
            // All of it: what has no entry is zero.
            let c = s.coo()?.coalesce()?;
            let mut owned = args.to_owned();
            owned.values[0] = OwnedArg::Tensor(c.values);
            return dispatch::fresh(&owned.borrow()).map(Some);
        }
        "sum#dim" => sum_along(args, s)?,
        _ => return Ok(None),
    };
    Ok(Some(Ret::One(made)))
}

/// A sum along dimensions, in the layout of a compressed tensor where they are kept.
fn sum_along(args: &Args, s: Sparse) -> Result<Tensor> {
    let at = |name: &str| args.op.schema.position(name);
    let keep = at("keepdim").is_some_and(|i| args.bool(i));
    let asked = at("dtype").and_then(|i| args.dtype(i));
    let given = s.values().dtype();
    let dtype = asked.unwrap_or(if given.is_float() || given.is_complex() {
        given
    } else {
        DType::I64
    });
    let kind = match &s {
        Sparse::Pressed(p) if keep && p.block().is_none() => Some(p.kind),
        _ => None,
    };
    let mut c = s.coo()?;
    c.values = f::to_dtype(&c.values, dtype)?;
    let ndim = c.shape.len();
    let dim: Vec<i64> = match args.opt_ints(1) {
        Some(dim) if !dim.is_empty() => dim.to_vec(),
        _ => (0..ndim as i64).collect(),
    };
    let mut all = dim_list(Some(&dim), ndim)?;
    all.sort_unstable();
    let mut made = match all.len() == ndim {
        // Sums of whole tensors are strided on every device.
        true => f::sum(&c.values)?,
        false => along(c, &dim)?,
    };
    if keep {
        for d in all {
            made = f::unsqueeze(&made, d as i64)?;
        }
    }
    match kind {
        Some(kind) => f::_ToSparse::new(&made, Layout::Compressed(kind).name()).call(),
        None => Ok(made),
    }
}

/// Refuses norms of a sparse tensor that are not of all of it.
fn whole(args: &Args, ndim: usize) -> Result<()> {
    let at = |name: &str| args.op.schema.position(name);
    if let Some(given) = at("dim").and_then(|i| args.opt_ints(i)) {
        let mut seen = vec![false; ndim];
        for &d in given.iter() {
            seen[crate::dims::wrap_dim(d, ndim)?] = true;
        }
        ensure!(
            given.is_empty() || seen.iter().all(|s| *s),
            Runtime,
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input"
        );
    }
    ensure!(
        !at("keepdim").is_some_and(|i| args.bool(i)),
        Runtime,
        "norm_sparse currently does not support keepdim=True"
    );
    ensure!(
        at("dtype").and_then(|i| args.dtype(i)).is_none(),
        Runtime,
        "norm_sparse currently does not support 'dtype' argument"
    );
    Ok(())
}
