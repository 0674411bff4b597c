//! The gradient of sampling at the places of a grid, made of operators that have gradients themselves: what its second
//! derivative is made of.

use super::grid::calls;
use crate::cpu::grid::{Mode, Outside, Sampling};
use crate::ops::core::op::Ret;
use crate::ops::f;
use crate::ops::nn::grid::sampling;
use crate::{DType, Result, Scalar, Tensor};

/// The parameter of the cubic curve.
const A: f64 = -0.75;

/// One element along a dimension for each place: where it is, its weight (none beyond the image) and how that changes.
struct Tap {
    at: Tensor,
    weight: Tensor,
    slope: Tensor,
}

impl Tap {
    fn new(place: &Tensor, size: i64, weight: &Tensor, slope: &Tensor) -> Result<Self> {
        let last = size as f64 - 1.0;
        let there = f::logical_and(&f::ge(place, 0.0)?, &f::le(place, last)?)?;
        let at = f::to_dtype(
            &f::Clamp::new(place)
                .min(Scalar::Float(0.0))
                .max(Scalar::Float(last))
                .call()?,
            DType::I64,
        )?;
        Ok(Self {
            at,
            weight: f::where_(&there, weight, 0.0)?,
            slope: f::where_(&there, slope, 0.0)?,
        })
    }
}

/// The places within the image that stand for places outside, and the factors of their gradients.
fn inside(s: &Sampling, p: &Tensor, size: i64) -> Result<(Tensor, Tensor)> {
    let one = f::ones_like(p)?;
    let (p, sign) = match s.outside {
        Outside::Zeros => return Ok((p.clone(), one)),
        Outside::Border => (p.clone(), one),
        Outside::Reflection => reflected(s, p, size)?,
    };
    let last = size as f64 - 1.0;
    let (above, below) = (f::ge(&p, last)?, f::le(&p, 0.0)?);
    let kept = f::where_(&above, last, &f::where_(&below, 0.0, &p)?)?;
    let sign = f::where_(&f::logical_or(&above, &below)?, 0.0, &sign)?;
    Ok((kept, sign))
}

fn reflected(s: &Sampling, p: &Tensor, size: i64) -> Result<(Tensor, Tensor)> {
    let (low, span) = if s.align {
        (0.0, size as f64 - 1.0)
    } else {
        (-0.5, size as f64)
    };
    if span <= 0.0 {
        let zeros = f::zeros_like(p)?;
        return Ok((zeros.clone(), zeros));
    }
    let below = f::lt(p, low)?;
    let v = f::sub(p, low)?;
    let v = f::where_(&below, &f::neg(&v)?, &v)?;
    let sign = f::where_(&below, -1.0, &f::ones_like(p)?)?;
    let flips = f::floor(&f::div(&v, span)?)?;
    let rest = f::sub(&v, &f::mul(&flips, span)?)?;
    let even = f::eq(&f::remainder(&flips, 2.0)?, 0.0)?;
    let at = f::where_(&even, &rest, &f::rsub(&rest, span)?)?;
    let sign = f::where_(&even, &sign, &f::neg(&sign)?)?;
    Ok((f::add(&at, low)?, sign))
}

/// The cubic curve at a distance, and its slope.
fn cubic(m: &Tensor, near: bool) -> Result<(Tensor, Tensor)> {
    let [c3, c2, c1, c0] = if near {
        [A + 2.0, -A - 3.0, 0.0, 1.0]
    } else {
        [A, -5.0 * A, 8.0 * A, -4.0 * A]
    };
    let inner = f::add(&f::mul(&f::add(&f::mul(m, c3)?, c2)?, m)?, c1)?;
    let slope = f::add(&f::mul(m, 3.0 * c3)?, 2.0 * c2)?;
    let slope = f::add(&f::mul(&slope, m)?, c1)?;
    Ok((f::add(&f::mul(&inner, m)?, c0)?, slope))
}

/// The elements that the places `v` of a grid read along a dimension; slopes are in steps of the grid.
fn taps(s: &Sampling, v: &Tensor, size: i64) -> Result<Vec<Tap>> {
    let (factor, start) = if s.align {
        ((size as f64 - 1.0) / 2.0, 0.0)
    } else {
        (size as f64 / 2.0, -0.5)
    };
    let p = f::add(&f::mul(&f::add(v, 1.0)?, factor)?, start)?;
    if s.mode == Mode::Cubic {
        let first = f::floor(&p)?;
        let t = f::sub(&p, &first)?;
        let tap = |k: i64| {
            let (place, _) = inside(s, &f::add(&first, k as f64)?, size)?;
            let side = if k <= 0 { 1.0 } else { -1.0 };
            let distance = f::mul(&f::sub(&t, k as f64)?, side)?;
            let (weight, slope) = cubic(&distance, k == 0 || k == 1)?;
            Tap::new(&place, size, &weight, &f::mul(&slope, side * factor)?)
        };
        return (-1..3).map(tap).collect();
    }
    let (p, sign) = inside(s, &p, size)?;
    if s.mode == Mode::Nearest {
        let (one, none) = (f::ones_like(&p)?, f::zeros_like(&p)?);
        return Ok(vec![Tap::new(&f::round(&p)?, size, &one, &none)?]);
    }
    let first = f::floor(&p)?;
    let (t, slope) = (f::sub(&p, &first)?, f::mul(&sign, factor)?);
    let second = f::add(&first, 1.0)?;
    Ok(vec![
        Tap::new(&first, size, &f::rsub(&t, 1.0)?, &f::neg(&slope)?)?,
        Tap::new(&second, size, &t, &slope)?,
    ])
}

/// The product of the weights, but with the slope in place of that of dimension `steep`.
fn product(chosen: &[&Tap], steep: Option<usize>) -> Result<Tensor> {
    let part = |j: usize| {
        if steep == Some(j) {
            &chosen[j].slope
        } else {
            &chosen[j].weight
        }
    };
    let first = part(0).clone();
    (1..chosen.len()).try_fold(first, |made, j| f::mul(&made, part(j)))
}

pub(super) fn grid_sampler(a: &calls::_GradGridSampler) -> Result<Ret> {
    let (x, n) = (a.input, a.dims.clamp(2, 3) as usize);
    let modes = [a.modes.first(), a.modes.get(1)].map(|m| m.copied().unwrap_or(-1));
    let s = sampling(x, a.grid, n, modes, a.align_corners)?;
    let (batch, channels) = (x.shape()[0], x.shape()[1]);
    let sizes = &x.shape()[2..];
    let places = f::reshape(a.grid, &[batch, -1, n as i64])?;
    let grad = f::reshape(a.grad_output, &[batch, channels, -1])?;
    let flat = f::reshape(x, &[batch, channels, -1])?;
    // The last coordinate of a place is that of the first dimension.
    let along = |j: usize| taps(&s, &f::select(&places, -1, (n - 1 - j) as i64)?, sizes[j]);
    let all: Vec<Vec<Tap>> = (0..n).map(along).collect::<Result<_>>()?;
    // It is linear in the gradient, and leads to the image all the same, by which its gradient is zero.
    let nowhere = f::ZerosLike::new(&flat).dtype(DType::Bool).call()?;
    let mut image = f::where_(&nowhere, &flat, &f::zeros_like(&flat)?)?;
    let mut by_place = vec![f::zeros_like(&f::select(&places, -1, 0)?)?; n];
    let corners: usize = all.iter().map(Vec::len).product();
    for mut corner in 0..corners {
        let chosen: Vec<&Tap> = all
            .iter()
            .map(|taps| {
                let tap = &taps[corner % taps.len()];
                corner /= taps.len();
                tap
            })
            .collect();
        let mut at = chosen[0].at.clone();
        for j in 1..n {
            at = f::add(&f::mul(&at, sizes[j])?, &chosen[j].at)?;
        }
        let at = f::expand(&f::unsqueeze(&at, 1)?, grad.shape())?;
        let weight = f::unsqueeze(&product(&chosen, None)?, 1)?;
        image = f::scatter_add(&image, 2, &at, &f::mul(&grad, &weight)?)?;
        let read = f::mul(&f::gather(&flat, 2, &at)?, &grad)?;
        let read = f::sum_dim(&read, &[1][..])?;
        for j in 0..n {
            let change = f::mul(&read, &product(&chosen, Some(j))?)?;
            by_place[n - 1 - j] = f::add(&by_place[n - 1 - j], &change)?;
        }
    }
    let grid = f::Stack::new(&by_place).dim(-1).call()?;
    let grid = f::reshape(&grid, a.grid.shape())?;
    let image = f::reshape(&image, x.shape())?;
    Ok(Ret::List(if a.image {
        vec![image, grid]
    } else {
        vec![grid]
    }))
}
