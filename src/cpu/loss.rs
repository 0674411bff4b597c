//! Losses that read class numbers.

use super::halves::Half as _;
use super::{slice, slice_mut};
use crate::{DType, Device, Result, Tensor, ensure, err};
use half::{bf16, f16};

/// Stores losses of samples in a result of any dtype: all of them, their mean (over `count`) or their sum.
fn store(out: &Tensor, losses: &[f64], reduction: i64, count: f64) -> Result<()> {
    let result = Tensor::empty(out.shape(), DType::F64, Device::CPU)?;
    let to = slice_mut::<f64>(&result);
    match reduction {
        0 => to.copy_from_slice(losses),
        r => to[0] = losses.iter().sum::<f64>() / if r == 1 { count } else { 1.0 },
    }
    super::copy::copy(out, &result)
}

/// Hinge loss of each sample over the classes that are not its own.
///
/// # Errors
/// If a class number is out of range.
pub fn multi_margin(
    out: &Tensor,
    x: &Tensor,
    target: &Tensor,
    p: i64,
    margin: f64,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<()> {
    let (x, target) = (
        super::copy::dense(x, DType::F64)?,
        super::copy::dense(target, DType::I64)?,
    );
    let weight = weight
        .map(|w| super::copy::dense(w, DType::F64))
        .transpose()?;
    let (x, target) = (slice::<f64>(&x), slice::<i64>(&target));
    let classes = if target.is_empty() {
        1
    } else {
        x.len() / target.len()
    };
    let mut losses = Vec::with_capacity(target.len());
    for (row, &t) in x.chunks_exact(classes.max(1)).zip(target) {
        ensure!(
            t >= 0 && (t as usize) < classes,
            Runtime,
            "target out of range"
        );
        let own = row[t as usize];
        let w = weight.as_ref().map_or(1.0, |w| slice::<f64>(w)[t as usize]);
        let (before, rest) = row.split_at(t as usize);
        let sum = [before, &rest[1..]].map(|others| hinges(others, margin - own, p));
        let sum = (sum[0] + sum[1]) * w;
        losses.push(sum / classes as f64);
    }
    let count = losses.len().max(1) as f64;
    store(out, &losses, reduction, count)
}

crate::cpu::simd::simd_fn! { stream
    /// The sum of what numbers plus another exceed 0 by, or of the squares.
    fn hinges(row: &[f64], plus: f64, p: i64) -> f64 {
        use super::lanes::sum_by;
        if p == 1 {
            sum_by(row, |v: f64| (plus + v).max(0.0))
        } else {
            sum_by(row, |v: f64| (plus + v).max(0.0) * (plus + v).max(0.0))
        }
    }
}

/// Hinge loss of each sample between the classes of its set (listed up to the first -1) and the others; and which classes
/// are in the set.
///
/// # Errors
/// If a class number is out of range.
pub fn multilabel_margin(
    outs: &[Tensor],
    x: &Tensor,
    target: &Tensor,
    reduction: i64,
) -> Result<()> {
    let classes = x.shape().last().map_or(1, |&n| n as usize);
    let (x, target) = (
        super::copy::dense(x, DType::F64)?,
        super::copy::dense(target, DType::I64)?,
    );
    let (x, target) = (slice::<f64>(&x), slice::<i64>(&target));
    ensure!(
        target.iter().all(|&t| t >= -1 && t < classes as i64),
        Runtime,
        "argument #2 'target' is out of range"
    );
    let mut losses = Vec::new();
    let set = super::lines::results(&outs[1], DType::F32)?;
    let chosen = slice_mut::<f32>(&set);
    chosen.fill(0.0);
    let samples = x.chunks_exact(classes).zip(target.chunks_exact(classes));
    for ((row, target), chosen) in samples.zip(chosen.chunks_exact_mut(classes)) {
        let listed: Vec<usize> = target
            .iter()
            .take_while(|&&t| t >= 0)
            .map(|&t| t as usize)
            .collect();
        let mut sum = 0.0;
        listed.iter().for_each(|&t| chosen[t] = 1.0);
        for &t in &listed {
            sum += row
                .iter()
                .enumerate()
                .filter(|(i, _)| chosen[*i] == 0.0)
                .map(|(_, &v)| (1.0 - row[t] + v).max(0.0))
                .sum::<f64>();
        }
        losses.push(sum / classes as f64);
    }
    let count = losses.len() as f64;
    store(&outs[0], &losses, reduction, count)?;
    super::lines::put(&outs[1], &set)
}

/// The type that [`nll`] reads its input in: few elements are read at all, so halves stay what they are.
#[must_use]
pub fn read_type(d: DType) -> DType {
    if d.is_reduced_float() {
        d
    } else {
        super::norm::compute_type(d)
    }
}

/// The classes of positions, sample after sample.
struct Entries<'a> {
    target: &'a [i64],
    weight: Option<&'a [f64]>,
    classes: usize,
    /// Positions of a sample.
    size: usize,
    ignore: i64,
}

impl Entries<'_> {
    /// The sum of the losses, which are written instead where there is room for them, and of the weights.
    fn sums<T: Copy>(
        &self,
        x: &[T],
        wide: impl Fn(T) -> f64,
        losses: &mut [f64],
    ) -> Result<(f64, f64)> {
        let (classes, size) = (self.classes, self.size);
        let (mut sum, mut total) = (0.0, 0.0);
        for (s, target) in self.target.chunks(size.max(1)).enumerate() {
            for (p, &t) in target.iter().enumerate() {
                if t == self.ignore {
                    continue;
                }
                let class = usize::try_from(t)
                    .ok()
                    .filter(|&t| t < classes)
                    .ok_or_else(|| err!(Index, "Target {t} is out of bounds."))?;
                let w = self.weight.map_or(1.0, |w| w[class]);
                let loss = -w * wide(x[(s * classes + class) * size + p]);
                total += w;
                match losses.get_mut(s * size + p) {
                    Some(l) => *l = loss,
                    None => sum += loss,
                }
            }
        }
        Ok((sum, total))
    }
}

/// Minus the weighted entry of each position's class, read as (samples, classes, positions): result and total weight.
///
/// # Errors
/// If a class number is out of range.
pub fn nll(
    outs: &[Tensor],
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore: i64,
) -> Result<()> {
    let (x, target) = (
        super::copy::dense(x, read_type(x.dtype()))?,
        super::copy::dense(target, DType::I64)?,
    );
    let weight = weight
        .map(|w| super::copy::dense(w, DType::F64))
        .transpose()?;
    let weight = weight.as_ref().map(slice::<f64>);
    let classes = if x.ndim() == 1 {
        x.shape()[0]
    } else {
        x.shape()[1]
    } as usize;
    let samples = if x.ndim() == 1 {
        1
    } else {
        x.shape()[0] as usize
    };
    let size: usize = x.shape().iter().skip(2).map(|&n| n as usize).product();
    let target = slice::<i64>(&target);
    let mut losses = vec![0f64; if reduction == 0 { target.len() } else { 0 }];
    let entries = Entries {
        target: &target[..target.len().min(samples * size)],
        weight,
        classes,
        size,
        ignore,
    };
    let (sum, total) = match x.dtype() {
        DType::F64 => entries.sums(slice::<f64>(&x), |v| v, &mut losses),
        DType::F16 => entries.sums(slice::<f16>(&x), |v| v.widen().into(), &mut losses),
        DType::BF16 => entries.sums(slice::<bf16>(&x), |v| v.widen().into(), &mut losses),
        _ => entries.sums(slice::<f32>(&x), f64::from, &mut losses),
    }?;
    let single = |v: f64| -> Result<Tensor> { Tensor::scalar(crate::Scalar::Float(v), DType::F64) };
    if reduction == 0 {
        let result = Tensor::from_slice(&losses, &[losses.len() as i64])?;
        super::copy::copy(
            &outs[0],
            &result.view_with(
                outs[0].shape().clone(),
                crate::dims::contiguous_strides(outs[0].shape()),
                0,
            ),
        )?;
    } else {
        super::copy::copy(
            &outs[0],
            &single(if reduction == 1 { sum / total } else { sum })?,
        )?;
    }
    super::copy::copy(&outs[1], &single(total)?)
}
