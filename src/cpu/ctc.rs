//! The connectionist temporal classification loss (Graves et al., 2006): both recursions in logarithms.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lines::{self, Shared};
use super::norm::by_type;
use super::room::{self, Room};
use super::{copy, pool, slice, slice_mut};
use crate::{DType, Result, Scalar, Tensor, ensure};

const NEVER: f64 = f64::NEG_INFINITY;

/// The logarithm of the sum of the exponentials.
fn log_sum<const N: usize>(x: [f64; N]) -> f64 {
    let top = x.into_iter().fold(NEVER, f64::max);
    if top == NEVER {
        return x.into_iter().sum();
    }
    top + x.into_iter().map(|v| (v - top).exp()).sum::<f64>().ln()
}

/// The sequences of a batch: `x` (steps, samples, classes), labels padded (samples, longest) or after each other.
pub struct Sequences<'a> {
    /// Log probabilities.
    pub x: &'a Tensor,
    /// Labels.
    pub targets: &'a Tensor,
    /// How many steps each sample has.
    pub steps: &'a [i64],
    /// How many labels each sample has.
    pub lengths: &'a [i64],
    /// The class that stands for no label.
    pub blank: usize,
}

/// One sample: its labels, with blanks between them and at both ends.
struct Sample<'a> {
    x: &'a [f64],
    labels: &'a [i64],
    blank: usize,
    steps: usize,
    /// Elements from one step to the next.
    stride: usize,
}

impl Sample<'_> {
    /// Places along the labels.
    fn width(&self) -> usize {
        2 * self.labels.len() + 1
    }

    fn class(&self, k: usize) -> usize {
        if k % 2 == 0 {
            self.blank
        } else {
            self.labels[k / 2] as usize
        }
    }

    fn score(&self, t: usize, k: usize) -> f64 {
        self.x[t * self.stride + self.class(k)]
    }

    /// Whether place `k` may be reached from the label before, over the blank between them.
    fn skips(&self, k: usize) -> bool {
        k > 1 && self.class(k) != self.class(k - 2)
    }

    /// Fills a row of logarithms for each step, of the probabilities of all ways to each place.
    fn forwards(&self, alpha: &mut [f64]) {
        let width = self.width();
        for t in 0..self.steps {
            let (before, row) = alpha[..(t + 1) * width].split_at_mut(t * width);
            let before = &before[t.saturating_sub(1) * width..];
            for (k, a) in row.iter_mut().enumerate() {
                let sum = match t {
                    0 if k < 2 => 0.0,
                    0 => NEVER,
                    _ if k == 0 => before[0],
                    _ if self.skips(k) => log_sum([before[k], before[k - 1], before[k - 2]]),
                    _ => log_sum([before[k], before[k - 1]]),
                };
                *a = sum + self.score(t, k);
            }
        }
    }

    /// Minus the logarithm of the probability of all ways.
    fn loss(&self, alpha: &[f64]) -> f64 {
        let width = self.width();
        if self.steps == 0 {
            return if width == 1 { 0.0 } else { f64::INFINITY };
        }
        let last = &alpha[(self.steps - 1) * width..][..width];
        let before = if width > 1 { last[width - 2] } else { NEVER };
        -log_sum([last[width - 1], before])
    }

    /// Calls `f` for each step, the last first, with logarithms of the probabilities of all ways from each place to the end.
    fn backwards(&self, mut f: impl FnMut(usize, &[f64])) {
        let width = self.width();
        let (mut beta, mut after) = (vec![NEVER; width], vec![NEVER; width]);
        for t in (0..self.steps).rev() {
            std::mem::swap(&mut beta, &mut after);
            for k in 0..width {
                let sum = match t + 1 == self.steps {
                    true if k + 2 >= width => 0.0,
                    true => NEVER,
                    false if k + 1 == width => after[k],
                    false if k + 2 < width && self.skips(k + 2) => {
                        log_sum([after[k], after[k + 1], after[k + 2]])
                    }
                    false => log_sum([after[k], after[k + 1]]),
                };
                beta[k] = sum + self.score(t, k);
            }
            f(t, &beta);
        }
    }
}

/// A batch with its numbers at hand.
struct Batch {
    x: Tensor,
    labels: Tensor,
    starts: Vec<usize>,
    classes: usize,
}

impl Batch {
    fn new(s: &Sequences) -> Result<Self> {
        let classes = s.x.shape()[2] as usize;
        let padded = s.targets.ndim() == 2;
        let mut next = 0;
        let starts: Vec<usize> = s
            .lengths
            .iter()
            .enumerate()
            .map(|(i, &n)| {
                let start = if padded {
                    i * s.targets.shape()[1] as usize
                } else {
                    next
                };
                next += n as usize;
                start
            })
            .collect();
        let labels = copy::dense(s.targets, DType::I64)?;
        let all = slice::<i64>(&labels);
        for (&start, &n) in starts.iter().zip(s.lengths) {
            ensure!(
                all[start..start + n as usize]
                    .iter()
                    .all(|&l| l >= 0 && (l as usize) < classes),
                Runtime,
                "ctc_loss: a label is out of range"
            );
        }
        Ok(Self {
            x: copy::dense(s.x, DType::F64)?,
            labels,
            starts,
            classes,
        })
    }

    fn sample(&self, s: &Sequences, i: usize) -> Sample<'_> {
        Sample {
            x: slice::<f64>(&self.x).get(i * self.classes..).unwrap_or(&[]),
            labels: &slice::<i64>(&self.labels)[self.starts[i]..][..s.lengths[i] as usize],
            blank: s.blank,
            steps: s.steps[i] as usize,
            stride: self.starts.len() * self.classes,
        }
    }
}

/// Minus the log probability of each sample's labels, and the logarithms that led to it (samples, steps, places).
///
/// # Errors
/// If a label is out of range.
pub fn losses(outs: &[Tensor], s: &Sequences) -> Result<()> {
    let dtype = outs[0].dtype();
    let batch = Batch::new(s)?;
    let made = [
        lines::results(&outs[0], dtype)?,
        lines::results(&outs[1], dtype)?,
    ];
    super::fill(&made[1], Scalar::Float(NEVER))?;
    let (steps, places) = (outs[1].shape()[1] as usize, outs[1].shape()[2] as usize);
    let _alphas = room::lists(s.steps.len(), ways(&outs[1]));
    by_type!(dtype, T => {
        let losses = Shared::new(slice_mut::<T>(&made[0]));
        let alphas = Shared::new(slice_mut::<T>(&made[1]));
        pool::parallel_for(s.steps.len(), 1, |range| {
            for i in range {
                let sample = batch.sample(s, i);
                let width = sample.width();
                let mut alpha = vec![0.0; sample.steps * width];
                sample.forwards(&mut alpha);
                // SAFETY: every sample has its own parts.
                let (loss, rows) = unsafe { (losses.part(i, 1), alphas.part(i * steps * places, steps * places)) };
                loss[0] = sample.loss(&alpha) as T;
                for (to, from) in rows.chunks_exact_mut(places).zip(alpha.chunks_exact(width)) {
                    to.iter_mut().zip(from).for_each(|(o, &v)| *o = v as T);
                }
            }
        });
    });
    lines::put(&outs[0], &made[0])?;
    lines::put(&outs[1], &made[1])
}

/// What [`losses`] takes.
///
/// # Errors
/// If a size overflows.
pub fn losses_room(room: &mut Room, outs: &[Tensor], s: &Sequences) -> Result<()> {
    room.dense(s.targets, DType::I64)?;
    room.dense(s.x, DType::F64)?;
    room.all_dense(outs.iter().map(Some), outs[0].dtype())?;
    room.lists(s.steps.len(), ways(&outs[1]))
}

/// Bytes of the logarithms of a sample.
fn ways(alpha: &Tensor) -> usize {
    (alpha.shape()[1] * alpha.shape()[2]) as usize * size_of::<f64>()
}

/// What [`gradient`] takes.
///
/// # Errors
/// If a size overflows.
pub fn gradient_room(room: &mut Room, out: &Tensor, s: &Sequences, left: &Left) -> Result<()> {
    room.dense(s.targets, DType::I64)?;
    let wide = [s.x, left.g, left.losses, left.alpha].map(Some);
    room.all_dense(wide, DType::F64)?;
    room.dense(out, out.dtype()).map(drop)
}

/// What the loss has left for its gradient.
pub struct Left<'a> {
    /// The gradients of the losses.
    pub g: &'a Tensor,
    /// The losses.
    pub losses: &'a Tensor,
    /// The logarithms that led to them.
    pub alpha: &'a Tensor,
    /// Infinite losses have no gradient.
    pub zero_infinity: bool,
}

/// The gradient of the losses by the log probabilities.
///
/// # Errors
/// If a label is out of range.
pub fn gradient(out: &Tensor, s: &Sequences, left: &Left) -> Result<()> {
    let dtype = out.dtype();
    let batch = Batch::new(s)?;
    let wide = |t: &Tensor| copy::dense(t, DType::F64);
    let (g, losses, alpha) = (wide(left.g)?, wide(left.losses)?, wide(left.alpha)?);
    let (g, losses) = (slice::<f64>(&g), slice::<f64>(&losses));
    let (steps, places) = (alpha.shape()[1] as usize, alpha.shape()[2] as usize);
    let alpha = slice::<f64>(&alpha);
    let made = lines::results(out, dtype)?;
    super::fill(&made, Scalar::Int(0))?;
    let classes = batch.classes;
    by_type!(dtype, T => {
        let to = Shared::new(slice_mut::<T>(&made));
        pool::parallel_for(s.steps.len(), 1, |range| {
            let mut sums = vec![NEVER; classes];
            for i in range {
                let loss = losses[i];
                if left.zero_infinity && loss == f64::INFINITY {
                    continue;
                }
                let sample = batch.sample(s, i);
                let alpha = &alpha[i * steps * places..][..steps * places];
                sample.backwards(|t, beta| {
                    sums.fill(NEVER);
                    for (k, (&a, &b)) in alpha[t * places..].iter().zip(beta).enumerate() {
                        let class = sample.class(k);
                        sums[class] = log_sum([sums[class], a + b]);
                    }
                    let x = &sample.x[t * sample.stride..][..classes];
                    // SAFETY: every step of every sample has its own part.
                    let row = unsafe { to.part(t * sample.stride + i * classes, classes) };
                    for ((o, &x), &sum) in row.iter_mut().zip(x).zip(&sums) {
                        *o = ((x.exp() - (sum + loss - x).exp()) * g[i]) as T;
                    }
                });
            }
        });
    });
    lines::put(out, &made)
}
