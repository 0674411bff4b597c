//! The normalisation over a batch and its gradient, by where the data is.

use super::job::Job;
use super::norm::{BUSY, Ready, given, kernel, maybe, split, zeros};
use super::{converted, dense, on_host, placed};
use crate::cpu::norm::compute_type;
use crate::cpu::norm_backward::{Asked, Saved};
use crate::{Result, Tensor, cpu, dims};

/// A batch as (rows, channels, positions), channels last where it lies so: either way values are read in order.
struct Batch {
    last: bool,
    sizes: [i64; 3],
}

impl Batch {
    fn of(x: &Tensor) -> Self {
        let last = x.ndim() > 2
            && !x.is_contiguous()
            && dims::strides_like_channels_last(x.shape(), x.strides());
        let (n, c) = (x.shape()[0], x.shape()[1]);
        let positions = x.shape()[2..].iter().product::<i64>();
        Self {
            last,
            sizes: if last {
                [n * positions, c, 1]
            } else {
                [n, c, positions]
            },
        }
    }

    /// A tensor's elements in that order.
    fn read(&self, t: &Tensor) -> Result<Tensor> {
        if self.last {
            dense(&channels_last(t))
        } else {
            dense(t)
        }
    }

    /// Has a result filled in that order.
    fn write(&self, out: &Tensor, fill: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
        if self.last {
            placed(&channels_last(out), fill)
        } else {
            placed(out, fill)
        }
    }
}

fn channels_last(t: &Tensor) -> Tensor {
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    t.raw_view(&crate::plan::ViewPlan::of(t).permuted(&order))
}

/// See [`cpu::batch::batch_norm_train`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn train(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    eps: f64,
) -> Result<()> {
    if on_host(x) {
        return cpu::batch::batch_norm_train(outs, x, w, b, eps);
    }
    let batch = Batch::of(x);
    let [rows, channels, size] = batch.sizes;
    let (x, compute) = (batch.read(x)?, compute_type(x.dtype()));
    let (splits, chunk) = split(rows * size, BUSY / channels.max(1), 1024);
    let part = || Tensor::empty(&[splits, channels], compute, x.device());
    let (means, squares) = (part()?, part()?);
    let job = |name| {
        Job::new(kernel(name))
            .ty("T", x.dtype())
            .ty("P", outs[1].dtype())
            .define("CENTRED", 1)
    };
    job("moments")
        .at(&means)
        .at(&squares)
        .at(&x)
        .int(rows)
        .int(channels)
        .int(size)
        .int(chunk)
        .blocks(&x, channels * splits)?;
    job("join")
        .at(&outs[1])
        .at(&outs[2])
        .at(&outs[3])
        .at(&means)
        .at(&squares)
        .int(channels)
        .int(rows * size)
        .int(chunk)
        .real(eps)
        .each(&x, channels)?;
    let (mean, rstd) = (converted(&outs[1], compute)?, converted(&outs[2], compute)?);
    apply(&outs[0], &batch, &x, [&mean, &rstd], [w, b], None)
}

/// See [`cpu::batch::batch_norm_eval`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn eval(
    out: &Tensor,
    x: &Tensor,
    mean: &Tensor,
    var: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    eps: f64,
) -> Result<()> {
    if on_host(x) {
        return cpu::batch::batch_norm_eval(out, x, mean, var, w, b, eps);
    }
    let (batch, compute) = (Batch::of(x), compute_type(x.dtype()));
    let (mean, var) = (converted(mean, compute)?, converted(var, compute)?);
    apply(
        out,
        &batch,
        &batch.read(x)?,
        [&mean, &var],
        [w, b],
        Some(eps),
    )
}

/// Scales and shifts channels by means and inverse deviations, or by variances if there is something to add to them.
fn apply(
    out: &Tensor,
    batch: &Batch,
    x: &Tensor,
    [mean, spread]: [&Tensor; 2],
    [w, b]: [Option<&Tensor>; 2],
    eps: Option<f64>,
) -> Result<()> {
    let compute = mean.dtype();
    let (w, b) = (maybe(w, compute)?, maybe(b, compute)?);
    batch.write(out, |out| {
        let job = Job::new(kernel("apply"))
            .ty("T", x.dtype())
            .ty("P", compute)
            .define("CENTRED", 1);
        let job = job
            .at(out)
            .at(x)
            .at(mean)
            .at(spread)
            .maybe(w.as_ref())
            .maybe(b.as_ref());
        job.int(x.numel())
            .int(batch.sizes[1])
            .int(batch.sizes[2])
            .int(i64::from(eps.is_some()))
            .real(eps.unwrap_or(0.0))
            .each(out, x.numel())
    })
}

/// See [`cpu::batch_backward::batch_norm`]; the spread is a variance unless `train`.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn backward(outs: Asked, s: &Saved, train: bool, eps: f64) -> Result<()> {
    if on_host(s.x) {
        let made;
        let rstd = if train {
            s.rstd
        } else {
            made = cpu::batch_backward::inverse_deviations(s.rstd, s.x.dtype(), eps)?;
            &made
        };
        return cpu::batch_backward::batch_norm(outs, &Saved { rstd, ..*s }, train);
    }
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let batch = Batch::of(s.x);
    let mut r = Ready::new(s, batch.read(s.g)?, batch.read(s.x)?)?;
    if !train {
        let fresh = Tensor::empty(r.rstd.shape(), r.compute, r.x.device())?;
        let job = r.job("inverse").at(&fresh).at(&r.rstd);
        job.int(fresh.numel())
            .real(eps)
            .each(&fresh, fresh.numel())?;
        r.rstd = fresh;
    }
    let sums = if train || outs[1].is_some() || outs[2].is_some() {
        Some(r.channels(batch.sizes, 0)?)
    } else {
        None
    };
    if let Some(out) = outs[0] {
        batch.write(out, |out| {
            let [dw, db] = match &sums {
                Some([dw, db]) if train => [Some(dw), Some(db)],
                _ => [None, None],
            };
            let job = r
                .job("by_batch")
                .at(out)
                .at(&r.g)
                .at(&r.x)
                .maybe(r.mean.as_ref());
            let job = job.at(&r.rstd).maybe(r.w.as_ref()).maybe(dw).maybe(db);
            let n = r.x.numel();
            job.int(n)
                .int(batch.sizes[1])
                .int(batch.sizes[2])
                .each(out, n)
        })?;
    }
    match &sums {
        Some(sums) => given(outs, sums),
        None => Ok(()),
    }
}
