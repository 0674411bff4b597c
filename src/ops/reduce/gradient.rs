//! Differences quotients of a function that is known on a grid.
//!
//! Source: Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids" (1988): second order within,
//! first or second order at the ends.

use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::core::typed::Tensors;
use crate::ops::f;
use crate::{Dims, Result, Scalar, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "gradient#dims",
        "(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]",
        F,
        |a| even(a.input, &[], Some(a.dim), a.edge_order),
        "Difference quotients along dimensions, at points one apart.",
    )
    .samples("f32[4, 5], dim=(0, 1); f64[4, 5], dim=(1,), edge_order=2"),
    compose(
        "gradient#spacing_dims",
        "(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]",
        F,
        |a| even(a.input, &[a.spacing], Some(a.dim), a.edge_order),
        "Difference quotients along dimensions, at evenly spaced points.",
    )
    .samples("f32[4, 5], spacing=0.5, dim=(0, 1)"),
    compose(
        "gradient",
        "(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]",
        F,
        |a| {
            let spacing: Vec<Scalar> = a.spacing.into_iter().collect();
            even(a.input, &spacing, a.dim.as_ref().map(std::slice::from_ref), a.edge_order)
        },
        "Difference quotients along one dimension or all, at evenly spaced points.",
    )
    .samples("f32[5]; c64[4, 5], spacing=2, dim=1; i64[5], edge_order=2"),
    compose(
        "gradient#spacings",
        "(Tensor self, *, Scalar[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
        F,
        |a| {
            listed(a.input, a.spacing.len(), a.dim.as_ref().map(std::slice::from_ref))?;
            even(a.input, a.spacing, a.dim.as_ref().map(std::slice::from_ref), a.edge_order)
        },
        "Difference quotients, at points evenly spaced along each dimension.",
    )
    .samples("f32[4, 5], spacing=[0.5, 2.0]; f32[4, 5], spacing=[2.0], dim=0"),
    compose(
        "gradient#spacings_dims",
        "(Tensor self, *, Scalar[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
        F,
        |a| {
            listed(a.input, a.spacing.len(), Some(a.dim))?;
            even(a.input, a.spacing, Some(a.dim), a.edge_order)
        },
        "Difference quotients along dimensions, at points evenly spaced along each.",
    )
    .samples("f32[4, 5], spacing=[0.5, 2.0], dim=(0, 1)"),
    compose(
        "gradient#places",
        "(Tensor self, *, Tensor[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
        F,
        |a| uneven(a.input, a.spacing, a.dim.as_ref().map(std::slice::from_ref), a.edge_order),
        "Difference quotients, at points whose coordinates are given.",
    )
    .samples("f32[3], spacing=(f32([0., 1., 3.]),); f32[4], spacing=(f32([0., 1., 3., 4.]),), edge_order=2"),
    compose(
        "gradient#places_dims",
        "(Tensor self, *, Tensor[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
        F,
        |a| uneven(a.input, a.spacing, Some(a.dim), a.edge_order),
        "Difference quotients along dimensions, at points whose coordinates are given.",
    )
    .samples("f32[3, 2], spacing=(f32([0., 1., 3.]),), dim=(0,)"),
];

/// Refuses a list that is not one number a dimension.
fn listed(t: &Tensor, have: usize, dim: Option<&[i64]>) -> Result<()> {
    match dim {
        Some(dim) => ensure!(
            have == dim.len(),
            Runtime,
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same length, but got a spacing argument of length {have} and a dim argument of length {}.",
            dim.len()
        ),
        None => ensure!(
            have == t.ndim(),
            Runtime,
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = {}', since dim argument was not given, but got a list of length {have}",
            t.ndim()
        ),
    }
    Ok(())
}

/// The dimensions, after the checks that all forms share.
fn along(t: &Tensor, dim: Option<&[i64]>, edge_order: i64) -> Result<Vec<usize>> {
    ensure!(
        t.dtype() != crate::DType::U8,
        Runtime,
        "torch.gradient does not support uint8 input."
    );
    ensure!(
        matches!(edge_order, 1 | 2),
        Runtime,
        "torch.gradient only supports edge_order=1 and edge_order=2."
    );
    let Some(dim) = dim else {
        let all: Vec<usize> = (0..t.ndim()).collect();
        return enough(t, all, edge_order);
    };
    let mut all = Vec::with_capacity(dim.len());
    for &d in dim {
        let d = dims::wrap_dim(d, t.ndim())?;
        ensure!(
            !all.contains(&d),
            Runtime,
            "dim {d} appears multiple times in the list of dims"
        );
        all.push(d);
    }
    enough(t, all, edge_order)
}

fn enough(t: &Tensor, all: Vec<usize>, edge_order: i64) -> Result<Vec<usize>> {
    for &d in &all {
        ensure!(
            t.shape().get(d).is_some_and(|&n| n > edge_order),
            Runtime,
            "torch.gradient expected each dimension size to be at least edge_order+1"
        );
    }
    Ok(all)
}

/// The elements of a dimension from `from` on.
fn part(t: &Tensor, dim: i64, from: i64, len: i64) -> Result<Tensor> {
    let n = t.size(dim)?;
    f::narrow(t, dim, if from < 0 { n + from } else { from }, len)
}

fn even(
    t: &Tensor,
    spacing: &[Scalar],
    dim: Option<&[i64]>,
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    let all = along(t, dim, edge_order)?;
    let step = |i: usize| match spacing {
        [] => Scalar::Int(1),
        [one] => *one,
        many => many[i.min(many.len() - 1)],
    };
    let mut made = Vec::with_capacity(all.len());
    for (i, d) in all.into_iter().enumerate() {
        let (d, h) = (d as i64, step(i));
        let n = t.size(d)?;
        let first = edge(t, d, h, 0, edge_order)?;
        let last = edge(t, d, h, n - 1, edge_order)?;
        let rise = f::sub(&part(t, d, 2, n - 2)?, &part(t, d, 0, n - 2)?)?;
        let inner = f::_div_number(&f::_div_number(&rise, h)?, 2i64)?;
        made.push(f::Cat::new(&[first, inner, last][..]).dim(d).call()?);
    }
    Ok(made)
}

fn f64_times(s: Scalar, by: f64) -> Scalar {
    match s {
        Scalar::Complex(c) => Scalar::Complex(c * by),
        other => Scalar::Float(other.to_f64() * by),
    }
}

/// The quotient at one end.
fn edge(t: &Tensor, d: i64, h: Scalar, at: i64, order: i64) -> Result<Tensor> {
    let toward: i64 = if at == 0 { 1 } else { -1 };
    let point = |k: i64| part(t, d, at + toward * k, 1);
    let difference = |near: &Tensor, far: &Tensor| {
        if toward > 0 {
            f::sub(far, near)
        } else {
            f::sub(near, far)
        }
    };
    let (p0, p1) = (point(0)?, point(1)?);
    if order == 1 {
        return f::_div_number(&difference(&p0, &p1)?, h);
    }
    // (-3 f0 + 4 f1 - f2) / 2h, with the other sign at the other end.
    let near = f::sub(&f::mul(&p1, 2.0)?, &f::mul(&p0, 1.5)?)?;
    let sum = f::sub(&near, &f::mul(&point(2)?, 0.5)?)?;
    f::Div::new(&sum, f64_times(h, toward as f64)).call()
}

fn uneven(
    t: &Tensor,
    places: Tensors,
    dim: Option<&[i64]>,
    edge_order: i64,
) -> Result<Vec<Tensor>> {
    listed(t, places.len(), dim)?;
    for p in places.iter() {
        ensure!(
            p.ndim() == 1,
            Runtime,
            "torch.gradient expected each element of spacing to have one dimension, but got an element with {} dimensions!",
            p.ndim()
        );
    }
    let all = along(t, dim, edge_order)?;
    let mut made = Vec::with_capacity(all.len());
    for (d, x) in all.into_iter().zip(places.iter()) {
        made.push(by_places(t, d, x, edge_order)?);
    }
    Ok(made)
}

fn by_places(t: &Tensor, d: usize, x: &Tensor, edge_order: i64) -> Result<Tensor> {
    let n = x.size(0)?;
    if n < 2 {
        bail!(
            Runtime,
            "torch.gradient expected each dimension size to be at least edge_order+1"
        );
    }
    let mut shape = Dims::new(&vec![1; t.ndim()]);
    shape[d] = -1;
    let steps = f::sub(&part(x, 0, 1, n - 1)?, &part(x, 0, 0, n - 1)?)?;
    let steps = &f::reshape(&steps, &shape)?;
    let d = d as i64;
    let size = t.size(d)?;
    let times = |w: &Tensor, from: i64, len: i64| f::mul(w, &part(t, d, from, len)?);
    let mut pieces = vec![uneven_edge(t, d, steps, 0, edge_order)?];
    if size > 2 {
        let (a, b) = (&part(steps, d, 0, n - 2)?, &part(steps, d, 1, n - 2)?);
        let both = f::add(a, b)?;
        let first = f::neg(&f::div(b, &f::mul(a, &both)?)?)?;
        let second = f::div(&f::sub(b, a)?, &f::mul(a, b)?)?;
        let third = f::div(a, &f::mul(b, &both)?)?;
        let sum = f::add(&times(&first, 0, size - 2)?, &times(&second, 1, size - 2)?)?;
        pieces.push(f::add(&sum, &times(&third, 2, size - 2)?)?);
    }
    pieces.push(uneven_edge(t, d, steps, size - 1, edge_order)?);
    f::Cat::new(&pieces[..]).dim(d).call()
}

/// The quotient at one end of points that are `steps` apart.
fn uneven_edge(t: &Tensor, d: i64, steps: &Tensor, at: i64, order: i64) -> Result<Tensor> {
    let toward: i64 = if at == 0 { 1 } else { -1 };
    let last = steps.size(d)? - 1;
    let step = |k: i64| part(steps, d, if at == 0 { k } else { last - k }, 1);
    let point = |k: i64| part(t, d, at + toward * k, 1);
    let a = &step(0)?;
    let (p0, p1) = (&point(0)?, &point(1)?);
    if order == 1 {
        let rise = if toward > 0 {
            f::sub(p1, p0)?
        } else {
            f::sub(p0, p1)?
        };
        return f::div(&rise, a);
    }
    let b = &step(1)?;
    let both = &f::add(a, b)?;
    let far = f::mul(&f::div(a, &f::mul(b, both)?)?, &point(2)?)?;
    let middle = f::mul(&f::div(both, &f::mul(a, b)?)?, p1)?;
    let near = f::mul(&f::div(&f::add(a, both)?, &f::mul(a, both)?)?, p0)?;
    let sum = f::sub(&f::sub(&middle, &near)?, &far)?;
    if toward > 0 { Ok(sum) } else { f::neg(&sum) }
}
