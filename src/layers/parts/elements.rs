//! Elementwise operators.

use crate::ops::core::args::{Arg, Args, OwnedArg};
use crate::ops::core::dispatch;
use crate::ops::core::helpers::has_no_values;
use crate::ops::core::op::Ret;
use crate::ops::f;
use crate::ops::pointwise::{binary::subtractable, factors::check_scale};
use crate::ops::sparse::coo::{Coo, gathered};
use crate::ops::sparse::pressed::{Form, Pressed};
use crate::ops::sparse::{Sparse, indices, is_sparse, numbers};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, dtype, ensure};

/// Operators that turn zero into zero.
const KEEP_ZERO: &[&str] = &[
    "_conj",
    "_neg_view",
    "abs",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "conj_physical",
    "deg2rad",
    "erf",
    "erfinv",
    "expm1",
    "floor",
    "frac",
    "imag",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "log1p",
    "nan_to_num",
    "neg",
    "rad2deg",
    "real",
    "relu",
    "resolve_conj",
    "resolve_neg",
    "round",
    "sgn",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
];

/// Those of them that may as well be computed of each part of a sum.
const LINEAR: &[&str] = &[
    "_conj",
    "_neg_view",
    "conj_physical",
    "imag",
    "neg",
    "real",
    "resolve_conj",
    "resolve_neg",
];

/// True for operators that change a sparse tensor in place only where each place comes once.
pub(super) fn wants_sorted(name: &str) -> bool {
    KEEP_ZERO.contains(&name) && !LINEAR.contains(&name)
}

/// See [`super::sparse::answer`].
pub(super) fn answer(args: &Args) -> Result<Option<Ret>> {
    let name = args.op.def.name;
    let made = match name {
        "add" => sum(args, false)?,
        "sub" => sum(args, true)?,
        "mul" => product(args)?,
        "div" | "div#mode" | "floor_divide" | "pow" => by_number(args)?,
        "_grad.scale" => return each(args).map(Some),
        "zero" => cleared(args.tensor(0)?)?,
        "fill" => filled(args)?,
        "copy" => copied(args)?,
        _ if KEEP_ZERO.contains(&name) && args.tensor(0).is_ok_and(is_sparse) => {
            return each(args).map(Some);
        }
        _ => None,
    };
    Ok(made.map(Ret::One))
}

/// The operator on the values, each place having one.
fn each(args: &Args) -> Result<Ret> {
    let t = args.tensor(0)?;
    let Some(s) = Sparse::of(t) else {
        bail!(
            NotImplemented,
            "{}(): the first operand has to be the sparse one",
            args.name()
        );
    };
    let s = match s {
        Sparse::Coo(c) if !LINEAR.contains(&args.op.def.name) => Sparse::Coo(c.coalesce()?),
        other => other,
    };
    let made = on_values(args, 0, s.values())?;
    s.with_values(made).map(Ret::One)
}

/// The call with other values in place of argument `i`.
fn on_values(args: &Args, i: usize, values: &Tensor) -> Result<Tensor> {
    let mut owned = args.to_owned();
    owned.values[i] = OwnedArg::Tensor(values.clone());
    dispatch::fresh(&owned.borrow())?.one()
}

/// A tensor among the operands.
fn operand<'a>(args: &Args<'a>, i: usize) -> Option<&'a Tensor> {
    match args.values.get(i) {
        Some(Arg::Tensor(t)) => Some(t),
        _ => None,
    }
}

/// A number, or a strided tensor of one.
fn is_number(args: &Args, i: usize) -> bool {
    operand(args, i).is_none_or(|t| t.ndim() == 0 && !t.has_parts())
}

fn product(args: &Args) -> Result<Option<Tensor>> {
    let (a, b) = (operand(args, 0), operand(args, 1));
    let sparse = |t: Option<&Tensor>| t.and_then(Sparse::of);
    // A sparse tensor without dimensions is a number.
    for (i, other) in [(1, a), (0, b)] {
        if let (Some(Sparse::Coo(c)), Some(_)) = (sparse(operand(args, i)), sparse(other))
            && c.shape.is_empty()
        {
            let number = c.dense()?;
            return on_values(args, i, &number).map(Some);
        }
    }
    match (sparse(a), sparse(b)) {
        (Some(s), None) if is_number(args, 1) => {
            let made = on_values(args, 0, &beside(a, s.values(), b)?)?;
            s.with_values(made).map(Some)
        }
        (None, Some(s)) if is_number(args, 0) => {
            let made = on_values(args, 1, &beside(b, s.values(), a)?)?;
            s.with_values(made).map(Some)
        }
        (Some(s), None) => strided_times(s, b).map(Some),
        (None, Some(s)) => strided_times(s, a).map(Some),
        (Some(x), Some(y)) => both(x, y).map(Some),
        (None, None) => Ok(None),
    }
}

/// The values of a sparse tensor, in the type that both have where both are without dimensions.
fn beside(t: Option<&Tensor>, values: &Tensor, number: Option<&Tensor>) -> Result<Tensor> {
    match (t, number) {
        (Some(t), Some(number)) if t.ndim() == 0 => {
            let both = dtype::promote(t.dtype(), number.dtype());
            f::to_dtype(values, both.unwrap_or(t.dtype()))
        }
        _ => Ok(values.clone()),
    }
}

/// The product with a strided tensor, at the places of the sparse one.
fn strided_times(s: Sparse, t: Option<&Tensor>) -> Result<Tensor> {
    let (pressed, mut c) = match s {
        Sparse::Coo(c) => (None, c),
        Sparse::Pressed(p) => (Some(p.clone()), p.coo()?),
    };
    let Some(t) = t else {
        bail!(
            NotImplemented,
            "mul(): expected a tensor beside the sparse one"
        );
    };
    let shape = dims::broadcast(&c.shape, t.shape())?;
    if pressed.is_none() && shape != c.shape && !has_no_values(&c.indices) {
        c = c.broadcast_to(&shape)?;
    }
    ensure!(
        shape == c.shape,
        NotImplemented,
        "mul(): a sparse tensor of shape {} cannot be broadcast to {shape}",
        c.shape
    );
    let other = c.filled_from(&f::expand(t, &c.shape)?)?;
    let values = f::mul(&c.values, &other.values)?;
    match pressed {
        Some(p) => {
            let values = f::reshape(&values, p.values.shape())?;
            Pressed { values, ..p }.build()
        }
        None => Coo { values, ..c }.build(),
    }
}

/// The product where both have an entry.
fn both(x: Sparse, y: Sparse) -> Result<Tensor> {
    let pressed = match (&x, &y) {
        (Sparse::Pressed(a), Sparse::Pressed(b)) if a.kind == b.kind => Some(Form::of(a)),
        _ => None,
    };
    let (x, y) = (x.coo()?.coalesce()?, y.coo()?.coalesce()?);
    let n = x.sparse_dims();
    ensure!(
        x.shape.len() == y.shape.len() && n == y.sparse_dims() && x.shape[..n] == y.shape[..n],
        Runtime,
        "mul operands have incompatible sizes: {} and {}, with {} and {} sparse dimensions",
        x.shape,
        y.shape,
        x.sparse_dims(),
        y.sparse_dims()
    );
    if has_no_values(&x.indices) || has_no_values(&y.indices) {
        return Err(dispatch::unknown_shape("mul"));
    }
    let (a, b) = (numbers(&x.places()?)?, numbers(&y.places()?)?);
    let (mut at, mut other) = (Vec::new(), Vec::new());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                at.push(i as i64);
                other.push(j as i64);
                (i, j) = (i + 1, j + 1);
            }
        }
    }
    let list = |v: &[i64]| indices(v, &[v.len() as i64], &x.indices);
    let at = list(&at)?;
    let values = f::mul(
        &f::index_select(&x.values, 0, &at)?,
        &f::index_select(&y.values, 0, &list(&other)?)?,
    )?;
    let made = Coo {
        indices: f::index_select(&x.indices, 1, &at)?,
        shape: Dims::new(&x.shape[..n]).concat(&values.shape()[1..]),
        values,
        coalesced: true,
    };
    match pressed {
        Some(form) => form.press(made),
        None => made.build(),
    }
}

fn by_number(args: &Args) -> Result<Option<Tensor>> {
    let Some(s) = operand(args, 0).and_then(Sparse::of) else {
        return Ok(None);
    };
    if args.op.def.name == "pow" && !is_number(args, 1) {
        return Ok(None);
    }
    let whole = match args.op.def.name {
        "floor_divide" => " floor",
        _ => "",
    };
    ensure!(
        is_number(args, 1),
        Runtime,
        "Sparse{whole} division requires a scalar or zero-dim dense tensor divisor (got shape {} for divisor)",
        operand(args, 1).map_or(crate::Dims::EMPTY, |t| t.shape().clone())
    );
    let s = match s {
        // What is not linear goes to sums.
        Sparse::Coo(c) if args.op.def.name != "div" => Sparse::Coo(c.coalesce()?),
        other => other,
    };
    let made = on_values(args, 0, s.values())?;
    s.with_values(made).map(Some)
}

fn sum(args: &Args, minus: bool) -> Result<Option<Tensor>> {
    let (Some(a), Some(b)) = (operand(args, 0), operand(args, 1)) else {
        return Ok(None);
    };
    let dtype = crate::dtype::promote(a.dtype(), b.dtype()).unwrap_or(a.dtype());
    if minus {
        subtractable(a.dtype() == DType::Bool, b.dtype() == DType::Bool)?;
    }
    let alpha = args.opt_scalar(2).unwrap_or(Scalar::Int(1));
    check_scale(alpha, dtype)?;
    // In the type of the sum: numbers of one that is narrower, or has no sign, may not hold it.
    let scaled = |values: &Tensor| {
        let values = f::to_dtype(values, dtype)?;
        let values = match dtype {
            DType::Bool => f::mul(&values, Scalar::Bool(alpha.to_bool()))?,
            _ => f::mul(&values, alpha)?,
        };
        if minus { f::neg(&values) } else { Ok(values) }
    };
    match (Sparse::of(a), Sparse::of(b)) {
        (None, Some(s)) if !a.has_parts() => {
            ensure!(
                dims::broadcast(a.shape(), b.shape()).is_ok_and(|both| both == *a.shape()),
                Runtime,
                "add: expected 'self' and 'other' to have same size, but self has size {} while other has size {} (FYI: dense-sparse \
                 addition does not currently support broadcasting)",
                a.shape(),
                b.shape()
            );
            let c = s.coo()?;
            let dense = Coo {
                values: scaled(&c.values)?,
                ..c
            }
            .dense()?;
            f::add(a, &dense).map(Some)
        }
        (Some(Sparse::Pressed(p)), None) => {
            let scaled = scaled(b)?;
            f::add(&p.dense()?, &scaled).map(Some)
        }
        (Some(_), None) => bail!(
            Runtime,
            "add(sparse, dense) is not supported. Use add(dense, sparse) instead."
        ),
        (Some(x), Some(y)) => {
            let pressed = match (&x, &y) {
                (Sparse::Pressed(a), Sparse::Pressed(_)) => Some(Form::of(a)),
                _ => None,
            };
            let (x, y) = (x.coo()?, y.coo()?);
            // PyTorch walks both lists at once where entries lie densely, and else puts one behind the other.
            let dense = x.values.is_contiguous() && y.values.is_contiguous();
            let values = scaled(&y.values)?;
            let joined = joined(x, Coo { values, ..y }, dense)?;
            match pressed {
                Some(form) => form.press(joined),
                None => joined.build(),
            }
            .map(Some)
        }
        _ => Ok(None),
    }
}

/// The entries of both: [`merged`], or the second ones behind the first ones.
fn joined(x: Coo, y: Coo, merge: bool) -> Result<Coo> {
    ensure!(
        x.shape == y.shape,
        Runtime,
        "add: expected sizes of 'self' and 'other' to match, but {} != {}",
        x.shape,
        y.shape
    );
    // What has no entry fits any number of sparse dimensions.
    match (x.entries(), y.entries()) {
        _ if x.sparse_dims() == y.sparse_dims() => {}
        (_, 0) => return promoted(x, y.values.dtype()),
        (0, _) => return promoted(y, x.values.dtype()),
        _ => {}
    }
    ensure!(
        x.sparse_dims() == y.sparse_dims(),
        Runtime,
        "add: expected 'self' and 'other' to have same number of sparse dimensions, but {} != {}",
        x.sparse_dims(),
        y.sparse_dims()
    );
    if merge && !has_no_values(&x.indices) && !has_no_values(&y.indices) {
        return merged(x, y);
    }
    Ok(Coo {
        indices: f::Cat::new(&[x.indices, y.indices][..]).dim(1).call()?,
        values: f::cat(&[x.values, y.values][..])?,
        shape: x.shape,
        coalesced: false,
    })
}

/// The entries of one, in the dtype of a sum with another.
fn promoted(c: Coo, other: DType) -> Result<Coo> {
    let dtype = crate::dtype::promote(c.values.dtype(), other).unwrap_or(c.values.dtype());
    Ok(Coo {
        values: f::to_dtype(&c.values, dtype)?,
        ..c
    })
}

/// The entries of both in turn, the smaller place first, in the second one's type; those at one place are added.
fn merged(x: Coo, y: Coo) -> Result<Coo> {
    let (a, b) = (numbers(&x.places()?)?, numbers(&y.places()?)?);
    let (mut to, mut first) = (vec![0i64; a.len() + b.len()], Vec::new());
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let left = i < a.len() && (j == b.len() || a[i] <= b[j]);
        let right = j < b.len() && (i == a.len() || b[j] <= a[i]);
        let place = first.len() as i64;
        first.push(if left { i } else { a.len() + j } as i64);
        if left {
            to[i] = place;
            i += 1;
        }
        if right {
            to[a.len() + j] = place;
            j += 1;
        }
    }
    let list = |v: &[i64]| indices(v, &[v.len() as i64], &x.indices);
    let indices = f::Cat::new(&[x.indices.clone(), y.indices.clone()][..])
        .dim(1)
        .call()?;
    let dtype = y.values.dtype();
    let values = f::cat(
        &[
            f::to_dtype(&x.values, dtype)?,
            f::to_dtype(&y.values, dtype)?,
        ][..],
    )?;
    Ok(Coo {
        indices: f::index_select(&indices, 1, &list(&first)?)?,
        values: gathered(&values, &list(&to)?, first.len() as i64)?,
        shape: x.shape,
        coalesced: x.coalesced && y.coalesced,
    })
}

/// A sparse tensor to be copied over another of its layout.
fn copied(args: &Args) -> Result<Option<Tensor>> {
    let (Some(to), Some(from)) = (operand(args, 0), operand(args, 1)) else {
        return Ok(None);
    };
    if !is_sparse(to) || !is_sparse(from) {
        bail!(
            Runtime,
            "copy_() between dense and sparse Tensors is not implemented! Found self type = {} and src type = {}",
            crate::ops::sparse::convert::layout_name(to),
            crate::ops::sparse::convert::layout_name(from)
        );
    }
    f::clone(from).map(Some)
}

/// A number in the place of each value of a compressed tensor.
fn filled(args: &Args) -> Result<Option<Tensor>> {
    match operand(args, 0).and_then(Sparse::of) {
        Some(s @ Sparse::Pressed(_)) => {
            let values = on_values(args, 0, s.values())?;
            s.with_values(values).map(Some)
        }
        _ => Ok(None),
    }
}

/// Without any entry.
fn cleared(t: &Tensor) -> Result<Option<Tensor>> {
    Ok(match Sparse::of(t) {
        Some(Sparse::Coo(c)) => {
            let none = f::NewEmpty::new(&c.indices, &[0i64][..]).call()?;
            Some(
                Coo {
                    indices: f::index_select(&c.indices, 1, &none)?,
                    values: f::index_select(&c.values, 0, &none)?,
                    shape: c.shape,
                    coalesced: true,
                }
                .build()?,
            )
        }
        Some(Sparse::Pressed(p)) => {
            let b = p.batch() as i64;
            Some(
                Pressed {
                    compressed: f::zeros_like(&p.compressed)?,
                    plain: f::contiguous(&f::narrow(&p.plain, b, 0, 0)?)?,
                    values: f::contiguous(&f::narrow(&p.values, b, 0, 0)?)?,
                    ..p
                }
                .build()?,
            )
        }
        None => None,
    })
}
