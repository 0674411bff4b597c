//! Attention and its gradients, by where the data is. On a GPU scores are made for so many heads at a time as its cache holds.

use super::job::{Job, Kernel, View};
use super::{accelerator, copy, dense, fill, flash, on_host, placed};
use crate::cpu::attention::{Inputs, Shapes};
use crate::cpu::attention_backward::Known;
use crate::plan::ViewPlan;
use crate::{DType, Dims, Result, Scalar, Tensor, cpu, dims};

const FILE: &str = include_str!("../cuda/kernels/attention.cu");

/// Bytes of scores at a time.
const SCORES: i64 = 24 << 20;

fn head(name: &'static str, d: DType, mask: Option<DType>) -> Job {
    let kind = match mask {
        None => 0,
        Some(DType::Bool) => 1,
        Some(_) => 2,
    };
    Job::new(Kernel { file: FILE, name })
        .ty("T", d)
        .ty("M", mask.unwrap_or(DType::Bool))
        .define("MASK", kind)
        .define("WIDE", u8::from(d == DType::F64))
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if !d.is_float() {
        return Vec::new();
    }
    let mut jobs = vec![
        head("weigh", d, Some(DType::Bool)),
        head("unweigh", d, Some(d)),
    ];
    if matches!(d, DType::F16 | DType::BF16) {
        jobs.extend(flash::samples(d));
    }
    jobs
}

/// An attention of `heads` matrices, each of `rows` queries: those of several heads may share their keys.
struct Work<'a> {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<&'a Tensor>,
    heads: i64,
    rows: i64,
    queries: i64,
    keys: i64,
    causal: bool,
    scale: f64,
    wide: DType,
}

/// A tensor expanded to `shape`, read as `[n, rows, columns]`, with dense columns and no steps back.
fn flat(t: &Tensor, shape: &[i64], to: [i64; 3]) -> Result<Tensor> {
    let t = t.raw_view(&ViewPlan::expanded(t, shape));
    let strides = dims::view_strides(t.shape(), t.strides(), &to);
    match strides.filter(|s| s[2] == 1 && s[0] >= 0) {
        Some(strides) => Ok(t.raw_view(&ViewPlan::with(&t, Dims::new(&to), strides, t.offset()))),
        None => {
            let t = dense(&t)?;
            Ok(t.raw_view(&ViewPlan::with(
                &t,
                Dims::new(&to),
                dims::contiguous_strides(&to),
                t.offset(),
            )))
        }
    }
}

/// Some matrices of several.
fn some(t: &Tensor, first: i64, n: i64) -> Tensor {
    t.raw_view(&ViewPlan::of(t).narrowed(0, first, n))
}

fn turned(t: &Tensor) -> Tensor {
    t.raw_view(&ViewPlan::of(t).swapped(1, 2))
}

fn multiply(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    accelerator()?.product(c, a, b, Scalar::Int(1), Scalar::Int(0), None)
}

impl<'a> Work<'a> {
    /// `each` heads of queries share one of keys.
    fn new(i: &Inputs<'a>, s: &Shapes, each: i64) -> Result<Self> {
        let batch = dims::numel(&s.batch)?;
        let heads = batch / each.max(1);
        let mut shared = s.batch.clone();
        if each > 1 {
            shared[1] /= each;
        }
        let rows = each * s.queries;
        Ok(Self {
            q: flat(
                i.query,
                &s.batch.concat(&[s.queries, s.width]),
                [heads, rows, s.width],
            )?,
            k: flat(
                i.key,
                &shared.concat(&[s.keys, s.width]),
                [heads, s.keys, s.width],
            )?,
            v: flat(
                i.value,
                &shared.concat(&[s.keys, s.values]),
                [heads, s.keys, s.values],
            )?,
            mask: i.mask,
            heads,
            rows,
            queries: s.queries,
            keys: s.keys,
            causal: i.causal,
            scale: i.scale,
            wide: if i.query.dtype() == DType::F64 {
                DType::F64
            } else {
                DType::F32
            },
        })
    }

    /// The mask as the kernels read it.
    fn seen(&self, s: &Shapes) -> Result<View> {
        match self.mask {
            Some(m) => {
                let shape = s.batch.concat(&[s.queries, s.keys]);
                View::with(m, &shape, &m.strides_for(&shape))
            }
            None => View::with(&self.q, &[], &[]),
        }
    }

    /// How many heads have their scores in memory at a time.
    fn step(&self) -> i64 {
        let one = self.rows * self.keys * self.wide.size() as i64;
        (SCORES / one.max(1)).clamp(1, self.heads.max(1))
    }

    fn matrix(&self, n: i64, d: DType) -> Result<Tensor> {
        Tensor::empty(&[n, self.rows, self.keys], d, self.q.device())
    }

    fn pass(&self, job: Job, first: i64) -> Job {
        job.int(first * self.rows)
            .int(self.queries)
            .int(self.keys)
            .int(i64::from(self.causal))
            .real(self.scale)
    }

    fn forward(&self, out: &Tensor, sums: Option<&Tensor>, s: &Shapes) -> Result<()> {
        let (d, step, mask) = (self.q.dtype(), self.step(), self.seen(s)?);
        let (scores, weights) = (self.matrix(step, self.wide)?, self.matrix(step, d)?);
        let mut first = 0;
        while first < self.heads {
            let n = step.min(self.heads - first);
            multiply(
                &some(&scores, 0, n),
                &some(&self.q, first, n),
                &turned(&some(&self.k, first, n)),
            )?;
            let job = head("weigh", d, self.mask.map(Tensor::dtype));
            let job = job.at(&weights).maybe(sums).at(&scores).view(&mask);
            self.pass(job, first).blocks(out, n * self.rows)?;
            multiply(
                &some(out, first, n),
                &some(&weights, 0, n),
                &some(&self.v, first, n),
            )?;
            first += n;
        }
        Ok(())
    }
}

/// A row-major result read as matrices.
fn as_matrices(t: &Tensor, shape: [i64; 3]) -> Tensor {
    t.raw_view(&ViewPlan::with(
        t,
        Dims::new(&shape),
        dims::contiguous_strides(&shape),
        t.offset(),
    ))
}

fn run(out: &Tensor, sums: Option<&Tensor>, i: &Inputs, s: &Shapes, each: i64) -> Result<()> {
    if s.keys == 0 {
        sums.map_or(Ok(()), |t| fill(t, Scalar::Int(0)))?;
        return fill(out, Scalar::Int(0));
    }
    if out.numel() == 0 && sums.is_none_or(|t| t.numel() == 0) {
        return Ok(());
    }
    if flash::forward(out, sums, i, s)? {
        return Ok(());
    }
    let work = Work::new(i, s, each)?;
    placed(out, |out| {
        let out = as_matrices(out, [work.heads, work.rows, s.values]);
        match sums {
            None => work.forward(&out, None, s),
            Some(t) if t.dtype() == work.wide => placed(t, |t| work.forward(&out, Some(t), s)),
            Some(t) => {
                let wide = Tensor::empty(t.shape(), work.wide, t.device())?;
                work.forward(&out, Some(&wide), s)?;
                copy(t, &wide)
            }
        }
    })
}

/// See [`cpu::attention_backward::alone`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn attention(out: &Tensor, i: &Inputs, s: &Shapes) -> Result<()> {
    if on_host(out) {
        return cpu::attention_backward::alone(out, i, s);
    }
    let shared = cpu::attention::share_heads(i.query, i.key, i.value);
    run(out, None, i, s, if shared { sharing(i) } else { 1 })
}

/// How many heads of queries share one of keys.
fn sharing(i: &Inputs) -> i64 {
    i.query.shape()[1]
        .checked_div(i.key.shape()[1])
        .unwrap_or(1)
        .max(1)
}

/// See [`cpu::attention_backward::forward`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn forward(outs: &[Tensor], i: &Inputs, s: Shapes) -> Result<()> {
    if on_host(&outs[0]) {
        return cpu::attention_backward::forward(outs, i, s);
    }
    run(&outs[0], Some(&outs[1]), i, &s, sharing(i))
}

/// See [`cpu::attention_backward::backward`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn backward(outs: &[Tensor], known: &Known, i: &Inputs, s: &Shapes) -> Result<()> {
    if on_host(&outs[0]) {
        return cpu::attention_backward::backward(outs, known, i, s);
    }
    if s.keys == 0 || s.queries == 0 || dims::numel(&s.batch)? == 0 {
        return outs.iter().try_for_each(|o| fill(o, Scalar::Int(0)));
    }
    if flash::backward(outs, known, i, s)? {
        return Ok(());
    }
    let w = Work::new(i, s, sharing(i))?;
    let (d, step, mask) = (w.q.dtype(), w.step(), w.seen(s)?);
    let values = [w.heads, w.rows, s.values];
    let shape = s.batch.concat(&[s.queries, s.values]);
    let grad = as_matrices(
        &dense(&known.grad.raw_view(&ViewPlan::expanded(known.grad, &shape)))?,
        values,
    );
    let out = dense(known.out)?;
    let sums = super::converted(known.sums, w.wide)?;
    let means = Tensor::empty(sums.shape(), w.wide, sums.device())?;
    let job = head("rows", d, None).at(&means).at(&grad).at(&out);
    let count = w.heads * w.rows;
    job.int(count)
        .int(s.values)
        .blocks(&means, (count + 7) / 8)?;
    let make = |rows, columns| Tensor::empty(&[w.heads, rows, columns], d, grad.device());
    let made = [
        make(w.rows, s.width)?,
        make(s.keys, s.width)?,
        make(s.keys, s.values)?,
    ];
    let (scores, grads) = (w.matrix(step, w.wide)?, w.matrix(step, w.wide)?);
    let (weights, by_score) = (w.matrix(step, d)?, w.matrix(step, d)?);
    let mut first = 0;
    while first < w.heads {
        let n = step.min(w.heads - first);
        let now = |t: &Tensor| some(t, first, n);
        let front = |t: &Tensor| some(t, 0, n);
        multiply(&front(&scores), &now(&w.q), &turned(&now(&w.k)))?;
        multiply(&front(&grads), &now(&grad), &turned(&now(&w.v)))?;
        let job = head("unweigh", d, w.mask.map(Tensor::dtype))
            .at(&weights)
            .at(&by_score);
        let job = job.at(&scores).at(&grads).at(&sums).at(&means).view(&mask);
        w.pass(job, first).blocks(&weights, n * w.rows)?;
        multiply(&now(&made[0]), &front(&by_score), &now(&w.k))?;
        multiply(&now(&made[1]), &turned(&front(&by_score)), &now(&w.q))?;
        multiply(&now(&made[2]), &turned(&front(&weights)), &now(&grad))?;
        first += n;
    }
    for (out, made) in outs.iter().zip(&made) {
        let shape = out.shape().clone();
        let strides = dims::contiguous_strides(&shape);
        copy(
            out,
            &made.raw_view(&ViewPlan::with(made, shape, strides, 0)),
        )?;
    }
    Ok(())
}
