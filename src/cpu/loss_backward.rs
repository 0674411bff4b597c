//! Gradients of losses that read class numbers.

use super::lines::{self, for_each};
use super::norm::by_type;
use super::{copy, slice, slice_mut};
use crate::{DType, Result, Scalar, Tensor, ensure, err, with_dtype};

/// Minus the gradient times the weight of each position's class (over `total`), zeros elsewhere; `out` is read as
/// (samples, classes, positions).
///
/// # Errors
/// If a class number is out of range.
pub fn nll(
    out: &Tensor,
    g: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    total: Option<&Tensor>,
    ignore: i64,
) -> Result<()> {
    let wide = |t: &Tensor| copy::dense(t, DType::F64);
    let (g, target) = (wide(g)?, copy::dense(target, DType::I64)?);
    let (weight, total) = (weight.map(wide).transpose()?, total.map(wide).transpose()?);
    let total = total.map_or(1.0, |t| slice::<f64>(&t)[0]);
    let (g, weight) = (slice::<f64>(&g), weight.as_ref().map(slice::<f64>));
    let shape = out.shape();
    let classes = shape[usize::from(shape.len() > 1)] as usize;
    let size: usize = shape.iter().skip(2).map(|&n| n as usize).product();
    let result = lines::results(out, out.dtype())?;
    super::fill(&result, Scalar::Int(0))?;
    with_dtype!(out.dtype(), [half float] => T, {
        let to = slice_mut::<T>(&result);
        for (i, &t) in slice::<i64>(&target).iter().enumerate() {
            if t == ignore {
                continue;
            }
            let class = usize::try_from(t).ok().filter(|&t| t < classes);
            let class = class.ok_or_else(|| err!(Index, "Target {t} is out of bounds."))?;
            let own = g[if g.len() == 1 { 0 } else { i }] / total;
            let value = -own * weight.map_or(1.0, |w| w[class]);
            let (sample, position) = (i / size, i % size);
            to[(sample * classes + class) * size + position] = <T as crate::Element>::from_scalar(Scalar::Float(value));
        }
    }, else {});
    lines::put(out, &result)
}

/// The gradient of the hinge loss of each sample over the classes that are not its own; the operands are the gradient, the
/// scores and the classes.
///
/// # Errors
/// If a class number is out of range.
pub fn multi_margin(
    out: &Tensor,
    [g, x, target]: [&Tensor; 3],
    p: i64,
    margin: f64,
    weight: Option<&Tensor>,
    mean: bool,
) -> Result<()> {
    let dtype = out.dtype();
    let target = copy::dense(target, DType::I64)?;
    let target = slice::<i64>(&target);
    let (g, x) = (copy::dense(g, dtype)?, copy::dense(x, dtype)?);
    let weight = weight.map(|w| copy::dense(w, dtype)).transpose()?;
    let result = lines::results(out, dtype)?;
    let n = (x.numel() as usize).checked_div(target.len()).unwrap_or(0);
    ensure!(
        target.iter().all(|&t| t >= 0 && (t as usize) < n),
        Runtime,
        "target out of range"
    );
    let scale = 1.0 / (n * if mean { target.len() } else { 1 }) as f64;
    by_type!(dtype, T => {
        let (g, margin, scale) = (slice::<T>(&g), margin as T, scale as T);
        let weight = weight.as_ref().map(slice::<T>);
        for_each(slice::<T>(&x), n, slice_mut::<T>(&result), n, |i, row, to| {
            let t = target[i] as usize;
            let scale = scale * weight.map_or(1.0, |w| w[t]) * g[if g.len() == 1 { 0 } else { i }];
            let (own, mut sum) = (row[t], 0.0);
            for (d, (o, &v)) in to.iter_mut().zip(row).enumerate() {
                let z = margin - own + v;
                *o = if d == t || z <= 0.0 { 0.0 } else if p == 1 { scale } else { 2.0 * scale * z };
                sum += *o;
            }
            to[t] = -sum;
        });
    });
    lines::put(out, &result)
}

/// The gradient of the hinge loss of each sample between the classes of its set (listed up to the first -1) and the others;
/// the operands are the gradient, the scores, the classes and which of them are in the set.
///
/// # Errors
/// If a class number is out of range.
pub fn multilabel_margin(
    out: &Tensor,
    [g, x, target, is_target]: [&Tensor; 4],
    mean: bool,
) -> Result<()> {
    let dtype = out.dtype();
    let n = x.shape().last().map_or(1, |&n| n as usize);
    let target = copy::dense(target, DType::I64)?;
    let target = slice::<i64>(&target);
    ensure!(
        target.iter().all(|&t| t >= -1 && t < n as i64),
        Runtime,
        "argument #2 'target' is out of range"
    );
    let (g, x, set) = (
        copy::dense(g, dtype)?,
        copy::dense(x, dtype)?,
        copy::dense(is_target, dtype)?,
    );
    let result = lines::results(out, dtype)?;
    super::fill(&result, Scalar::Int(0))?;
    let samples = if mean { target.len() / n } else { 1 };
    let scale = 1.0 / (n * samples.max(1)) as f64;
    by_type!(dtype, T => {
        let (g, set, scale) = (slice::<T>(&g), slice::<T>(&set), scale as T);
        for_each(slice::<T>(&x), n, slice_mut::<T>(&result), n, |i, row, to| {
            let scale = scale * g[if g.len() == 1 { 0 } else { i }];
            let set = &set[i * n..][..n];
            for &t in target[i * n..][..n].iter().take_while(|&&t| t >= 0) {
                let t = t as usize;
                for d in 0..n {
                    if set[d] == 0.0 && 1.0 - row[t] + row[d] > 0.0 {
                        to[d] += scale;
                        to[t] -= scale;
                    }
                }
            }
        });
    });
    lines::put(out, &result)
}
