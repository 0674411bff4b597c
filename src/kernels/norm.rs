//! Normalisations and their gradients, by where the data is.

use super::job::{Job, Kernel};
use super::{Shares, accelerator, converted, dense, on_host, pack, placed};
use crate::cpu::norm::compute_type;
use crate::cpu::norm_backward::{Asked, Saved};
use crate::cpu::reduce::{Kind, Post};
use crate::{DType, Result, Scalar, Tensor, cpu, dims};

const FILE: &str = include_str!("../cuda/kernels/norm.cu");
pub(super) const fn kernel(name: &'static str) -> Kernel {
    Kernel { file: FILE, name }
}

/// Blocks that a device should have to do at least, in a pass over channels or columns.
pub(super) const BUSY: i64 = 512;

/// Rows that are normalised: how many there are, their length, groups of parameters, and elements that share a parameter.
#[derive(Clone, Copy)]
struct Rows {
    rows: i64,
    n: i64,
    groups: i64,
    size: i64,
}

impl Rows {
    fn plain(x: &Tensor, n: usize) -> Self {
        let n = n as i64;
        Self {
            rows: if n == 0 { 0 } else { x.numel() / n },
            n,
            groups: 1,
            size: 1,
        }
    }

    fn grouped([batch, groups, per, size]: [usize; 4]) -> Self {
        let [batch, groups, per, size] = [batch, groups, per, size].map(|v| v as i64);
        Self {
            rows: batch * groups,
            n: per * size,
            groups,
            size,
        }
    }

    /// Starts a kernel of rows of some tensors.
    fn run(self, job: Job, all: &[&Tensor], eps: Option<f64>) -> Result<()> {
        // Elements of a pack have a parameter each, or one together.
        let alike = if self.size > 1 { self.size } else { self.n };
        let pack = pack(alike, all);
        let Shares { width, held } = Shares::of(self.n, pack);
        let job = job
            .define("HELD", held)
            .define("PACK", pack)
            .int(self.rows)
            .int(self.n)
            .int(self.groups)
            .int(self.size.max(1))
            .int(width);
        let each = 256 / width;
        eps.into_iter().fold(job, Job::real).blocks(
            all[0],
            if self.n == 0 {
                0
            } else {
                (self.rows + each - 1) / each
            },
        )
    }
}

pub(super) fn maybe(t: Option<&Tensor>, d: DType) -> Result<Option<Tensor>> {
    t.map(|t| converted(t, d)).transpose()
}

/// A normalisation of rows: result, means and inverse deviations, as far as they are asked for.
fn forward(
    [out, mean, rstd]: [Option<&Tensor>; 3],
    x: &Tensor,
    [w, b]: [Option<&Tensor>; 2],
    rows: Rows,
    eps: f64,
    centred: bool,
) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    let x = dense(x)?;
    let p = rstd.map_or(compute_type(x.dtype()), Tensor::dtype);
    let (w, b) = (maybe(w, p)?, maybe(b, p)?);
    placed(out, |out| {
        let job = Job::new(kernel("forward"))
            .ty("T", x.dtype())
            .ty("P", p)
            .define("CENTRED", u8::from(centred));
        let job = job.at(out).maybe(mean).maybe(rstd).at(&x);
        let job = job.maybe(w.as_ref()).maybe(b.as_ref());
        rows.run(job, &[out, &x], Some(eps))
    })
}

/// See [`cpu::norm::layer_norm`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn layer_norm(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    n: usize,
    eps: f64,
) -> Result<()> {
    if on_host(x) {
        return cpu::norm::layer_norm(outs, x, w, b, n, eps);
    }
    let outs = [0, 1, 2].map(|k| outs.get(k));
    forward(outs, x, [w, b], Rows::plain(x, n), eps, true)
}

/// See [`cpu::norm::rms_norm`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn rms_norm(
    out: &Tensor,
    rstd: Option<&Tensor>,
    x: &Tensor,
    w: Option<&Tensor>,
    n: usize,
    eps: f64,
) -> Result<()> {
    if on_host(x) {
        return cpu::norm::rms_norm(out, rstd, x, w, n, eps);
    }
    forward(
        [Some(out), None, rstd],
        x,
        [w, None],
        Rows::plain(x, n),
        eps,
        false,
    )
}

/// See [`cpu::norm::group_norm`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn group_norm(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    sizes: [usize; 4],
    eps: f64,
) -> Result<()> {
    if on_host(x) {
        return cpu::norm::group_norm(outs, x, w, b, sizes, eps);
    }
    let outs = [0, 1, 2].map(|k| outs.get(k));
    forward(outs, x, [w, b], Rows::grouped(sizes), eps, true)
}

/// What a gradient needs, row-major and in the type that it is computed in.
pub(super) struct Ready {
    pub(super) g: Tensor,
    pub(super) x: Tensor,
    pub(super) mean: Option<Tensor>,
    pub(super) rstd: Tensor,
    pub(super) w: Option<Tensor>,
    pub(super) compute: DType,
}

impl Ready {
    pub(super) fn new(s: &Saved, g: Tensor, x: Tensor) -> Result<Self> {
        let compute = compute_type(x.dtype());
        Ok(Self {
            g,
            x,
            mean: maybe(s.mean, compute)?,
            rstd: converted(s.rstd, compute)?,
            w: maybe(s.weight, compute)?,
            compute,
        })
    }

    pub(super) fn job(&self, name: &'static str) -> Job {
        Job::new(kernel(name))
            .ty("T", self.x.dtype())
            .ty("P", self.compute)
            .define("CENTRED", u8::from(self.mean.is_some()))
    }

    /// Sums of parts, added up in order.
    fn parts(&self, splits: i64, n: i64) -> Result<[Tensor; 2]> {
        let make = || Tensor::empty(&[splits, n], self.compute, self.x.device());
        Ok([make()?, make()?])
    }

    fn add(&self, parts: &Tensor) -> Result<Tensor> {
        let n = parts.shape()[1];
        let out = Tensor::empty(&[n], self.compute, self.x.device())?;
        accelerator()?.fold(Kind::Sum, &out, parts, &[0], 0.0, Post::None)?;
        Ok(out)
    }

    /// The gradients of factors and offsets of columns; statistics are of rows, or of the columns.
    fn columns(&self, r: Rows, own: bool) -> Result<[Tensor; 2]> {
        let blocks = (r.n + 31) / 32;
        let (splits, chunk) = split(r.rows, BUSY / blocks.max(1), 64);
        let [dw, db] = self.parts(splits, r.n)?;
        let job = self
            .job("by_columns")
            .at(&dw)
            .at(&db)
            .at(&self.g)
            .at(&self.x);
        let job = job.maybe(self.mean.as_ref()).at(&self.rstd);
        job.int(r.rows)
            .int(r.n)
            .int(chunk)
            .int(i64::from(own))
            .blocks(&self.x, blocks * splits)?;
        Ok([self.add(&dw)?, self.add(&db)?])
    }

    /// The gradients of factors and offsets of channels.
    pub(super) fn channels(
        &self,
        [batch, channels, size]: [i64; 3],
        per: i64,
    ) -> Result<[Tensor; 2]> {
        if size == 1 && per == 0 {
            let rows = Rows {
                rows: batch,
                n: channels,
                groups: 1,
                size: 1,
            };
            return self.columns(rows, true);
        }
        let (splits, chunk) = split(batch * size, BUSY / channels.max(1), 1024);
        let [dw, db] = self.parts(splits, channels)?;
        let job = self
            .job("by_channels")
            .at(&dw)
            .at(&db)
            .at(&self.g)
            .at(&self.x);
        let job = job.maybe(self.mean.as_ref()).at(&self.rstd);
        job.int(batch)
            .int(channels)
            .int(size)
            .int(per)
            .int(chunk)
            .blocks(&self.x, channels * splits)?;
        Ok([self.add(&dw)?, self.add(&db)?])
    }
}

/// Work of `n` elements in at most `most` parts that are not too short: how many, and how long.
pub(super) fn split(n: i64, most: i64, least: i64) -> (i64, i64) {
    let parts = most.min(n / least).clamp(1, 64);
    let chunk = ((n + parts - 1) / parts).max(1);
    (((n + chunk - 1) / chunk).max(1), chunk)
}

pub(super) fn zeros(outs: Asked) -> Result<()> {
    outs.into_iter()
        .flatten()
        .try_for_each(|out| super::fill(out, Scalar::Int(0)))
}

/// See [`cpu::norm_backward::rows`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn rows_backward(outs: Asked, s: &Saved, n: usize) -> Result<()> {
    if on_host(s.x) {
        return cpu::norm_backward::rows(outs, s, n);
    }
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let rows = Rows::plain(s.x, n);
    let ready = Ready::new(s, dense(s.g)?, dense(s.x)?)?;
    by_input(outs[0], &ready, rows)?;
    if outs[1].is_some() || outs[2].is_some() {
        given(outs, &ready.columns(rows, false)?)?;
    }
    Ok(())
}

/// See [`cpu::group_backward::groups`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn groups_backward(outs: Asked, s: &Saved, sizes: [usize; 4]) -> Result<()> {
    if on_host(s.x) {
        return cpu::group_backward::groups(outs, s, sizes);
    }
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let ready = Ready::new(s, dense(s.g)?, dense(s.x)?)?;
    by_input(outs[0], &ready, Rows::grouped(sizes))?;
    if outs[1].is_some() || outs[2].is_some() {
        let [batch, groups, per, size] = sizes.map(|v| v as i64);
        given(outs, &ready.channels([batch, groups * per, size], per)?)?;
    }
    Ok(())
}

fn by_input(out: Option<&Tensor>, r: &Ready, rows: Rows) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    placed(out, |out| {
        let job = r.job("by_input").at(out).at(&r.g).at(&r.x);
        let job = job.maybe(r.mean.as_ref()).at(&r.rstd).maybe(r.w.as_ref());
        rows.run(job, &[out, &r.x, &r.g], None)
    })
}

/// Brings the gradients of factors and offsets to their places.
pub(super) fn given(outs: Asked, made: &[Tensor; 2]) -> Result<()> {
    for (out, made) in outs[1..].iter().zip(made) {
        if let Some(out) = out {
            let plan = crate::plan::ViewPlan::with(
                made,
                out.shape().clone(),
                dims::contiguous_strides(out.shape()),
                0,
            );
            super::copy(out, &made.raw_view(&plan))?;
        }
    }
    Ok(())
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if !d.is_float() {
        return Vec::new();
    }
    let job = |p, centred: u8| {
        Job::new(kernel("forward"))
            .ty("T", d)
            .ty("P", p)
            .define("CENTRED", centred)
            .define("PACK", 16 / d.size())
            .define("HELD", 4 * i64::from(centred))
    };
    vec![job(compute_type(d), 1), job(d, 0), job(d, 1)]
}
