//! The gradients of normalisations made of operators that have gradients themselves: what second derivatives are made of.

use super::norm::calls;
use crate::ops::core::op::Ret;
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, mode};

/// Normalised values and the factor that made them.
struct Scores {
    values: Tensor,
    factor: Tensor,
    over: Vec<i64>,
    centred: bool,
}

fn mean(t: &Tensor, over: &[i64]) -> Result<Tensor> {
    f::MeanDim::new(t, over).keepdim(true).call()
}

/// What `f` computes, as a number that depends on nothing: neither with a history nor with tangents.
fn constant(f: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    mode::with_layers(!mode::FORWARD, || mode::with_grad(false, f))
}

impl Scores {
    /// Of `x` over some dimensions. `factor` is what the forward divided by; the same number is made of `x` again, so that it
    /// has a history.
    fn of(x: &Tensor, factor: &Tensor, over: Vec<i64>, centred: bool) -> Result<Self> {
        let x = if centred {
            f::sub(x, &mean(x, &over)?)?
        } else {
            x.clone()
        };
        let squares = mean(&f::mul(&x, &x)?, &over)?;
        let eps = constant(|| f::sub(&f::pow(factor, -2i64)?, &squares))?;
        let factor = f::rsqrt(&f::add(&squares, &eps)?)?;
        Ok(Self {
            values: f::mul(&x, &factor)?,
            factor,
            over,
            centred,
        })
    }

    /// The gradient of what was normalised, by that of the values.
    fn back(&self, g: &Tensor) -> Result<Tensor> {
        let along = mean(&f::mul(g, &self.values)?, &self.over)?;
        let mut inner = f::sub(g, &f::mul(&self.values, &along)?)?;
        if self.centred {
            inner = f::sub(&inner, &mean(g, &self.over)?)?;
        }
        f::mul(&inner, &self.factor)
    }
}

/// Those of three gradients that are asked for: each is made by need.
fn chosen(
    asked: &[bool],
    by_input: impl FnOnce() -> Result<Tensor>,
    by_weight: impl FnOnce() -> Result<Tensor>,
    by_bias: impl FnOnce() -> Result<Tensor>,
) -> Result<Ret> {
    let mut made = Vec::new();
    let wants = |k: usize| asked.get(k) == Some(&true);
    if wants(0) {
        made.push(by_input()?);
    }
    if wants(1) {
        made.push(by_weight()?);
    }
    if wants(2) {
        made.push(by_bias()?);
    }
    Ok(Ret::List(made))
}

/// 16-bit numbers in single precision.
fn wide(t: &Tensor) -> Result<Tensor> {
    match t.dtype() {
        DType::F16 | DType::BF16 => f::to_dtype(t, DType::F32),
        _ => Ok(t.clone()),
    }
}

fn times(t: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    match weight {
        Some(w) => f::mul(t, w),
        None => Ok(t.clone()),
    }
}

/// Summed over the dimensions before those that were normalised.
fn leading(t: &Tensor, shape: &[i64]) -> Result<Tensor> {
    let lead: Vec<i64> = (0..(t.ndim() - shape.len()) as i64).collect();
    if lead.is_empty() {
        Ok(t.clone())
    } else {
        f::sum_dim(t, &lead[..])
    }
}

/// The last dimensions, as many as `shape` has.
fn trailing(t: &Tensor, shape: &[i64]) -> Vec<i64> {
    let n = t.ndim();
    (n - shape.len()..n).map(|d| d as i64).collect()
}

pub(super) fn layer_norm(a: &calls::_GradLayerNorm) -> Result<Ret> {
    let (x, g, shape) = (wide(a.input)?, wide(a.grad_out)?, a.normalized_shape);
    let scores = Scores::of(&x, a.rstd, trailing(&x, shape), true)?;
    let like = |t: Tensor, p: Option<&Tensor>| f::to_dtype(&t, p.unwrap_or(a.input).dtype());
    chosen(
        a.asked,
        || like(scores.back(&times(&g, a.weight)?)?, None),
        || like(leading(&f::mul(&g, &scores.values)?, shape)?, a.weight),
        || like(leading(&g, shape)?, a.bias),
    )
}

pub(super) fn rms_norm(a: &calls::_GradRmsNorm) -> Result<Ret> {
    let (x, g, shape) = (wide(a.input)?, wide(a.grad_out)?, a.normalized_shape);
    let scores = Scores::of(&x, a.rstd, trailing(&x, shape), false)?;
    let like = |t: Tensor, p: Option<&Tensor>| f::to_dtype(&t, p.unwrap_or(a.input).dtype());
    chosen(
        a.asked,
        || like(scores.back(&times(&g, a.weight)?)?, None),
        || like(leading(&f::mul(&g, &scores.values)?, shape)?, a.weight),
        || like(leading(&g, shape)?, None),
    )
}

pub(super) fn group_norm(a: &calls::_GradGroupNorm) -> Result<Ret> {
    let members = a.C / a.group * a.HxW;
    let (plane, grouped) = ([a.N, a.C, a.HxW], [a.N, a.group, members]);
    let in_groups = |t: &Tensor| f::reshape(t, &grouped[..]);
    let g = f::reshape(&wide(a.grad_out)?, &plane[..])?;
    let factor = f::reshape(a.rstd, &[a.N, a.group, 1])?;
    let scores = Scores::of(&in_groups(&wide(a.input)?)?, &factor, vec![2], true)?;
    let weight = a.weight.map(|w| f::reshape(w, &[1, a.C, 1])).transpose()?;
    let like = |t: &Tensor, p: Option<&Tensor>| f::to_dtype(t, p.unwrap_or(a.input).dtype());
    let by_channel = |t: &Tensor| like(&f::sum_dim(t, &[0, 2][..])?, a.weight);
    chosen(
        a.asked,
        || {
            let made = scores.back(&in_groups(&times(&g, weight.as_ref())?)?)?;
            like(&f::reshape(&made, a.input.shape())?, None)
        },
        || by_channel(&f::mul(&g, &f::reshape(&scores.values, &plane[..])?)?),
        || by_channel(&g),
    )
}

pub(super) fn batch_norm(a: &calls::_GradBatchNorm) -> Result<Ret> {
    let (x, g) = (wide(a.input)?, wide(a.grad_out)?);
    let n = x.ndim();
    let around: Dims = (0..n).map(|d| if d == 1 { -1 } else { 1 }).collect();
    let over: Vec<i64> = (0..n as i64).filter(|d| *d != 1).collect();
    let by_channel = |t: Option<&Tensor>| t.map(|t| f::reshape(t, &around)).transpose();
    let (mean, spread) = (by_channel(a.mean)?, by_channel(a.spread)?);
    let weight = by_channel(a.weight)?;
    let scores = match (mean, spread) {
        (_, Some(factor)) if a.train => Some(Scores::of(&x, &factor, over.clone(), true)?),
        _ => None,
    };
    let (values, factor) = match &scores {
        Some(s) => (s.values.clone(), None),
        None => fixed(&x, a, &around)?,
    };
    let like = |t: Tensor, p: Option<&Tensor>| f::to_dtype(&t, p.unwrap_or(a.input).dtype());
    chosen(
        a.asked,
        || {
            let g = times(&g, weight.as_ref())?;
            let made = match &scores {
                Some(scores) => scores.back(&g)?,
                None => times(&g, factor.as_ref())?,
            };
            like(made, None)
        },
        || like(f::sum_dim(&f::mul(&g, &values)?, &over[..])?, a.weight),
        || like(f::sum_dim(&g, &over[..])?, a.weight),
    )
}

/// The values and the factor of statistics that are not those of the batch.
fn fixed(
    x: &Tensor,
    a: &calls::_GradBatchNorm,
    around: &[i64],
) -> Result<(Tensor, Option<Tensor>)> {
    let (Some(mean), Some(spread)) = (a.mean, a.spread) else {
        crate::bail!(
            Runtime,
            "batch_norm has no statistics to differentiate with"
        );
    };
    let factor = f::rsqrt(&f::add(spread, a.eps)?)?;
    let (mean, factor) = (f::reshape(mean, around)?, f::reshape(&factor, around)?);
    Ok((f::mul(&f::sub(x, &mean)?, &factor)?, Some(factor)))
}
