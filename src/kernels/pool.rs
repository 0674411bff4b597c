//! Pooling and its gradients, by where the data is.

use super::job::{Job, Kernel, storage_type};
use super::{converted, copy, fill, on_host, placed, tables};
use crate::cpu::pooling::{self, Rule, Windows};
use crate::cpu::pooling_backward::{Spread, To};
use crate::{DType, Result, Scalar, Tensor};

const FILE: &str = include_str!("../cuda/kernels/pool.cu");
const POOL: Kernel = Kernel {
    file: FILE,
    name: "pool",
};
const BACK: Kernel = Kernel {
    file: FILE,
    name: "back",
};

/// The type that a dtype is pooled in.
fn working(d: DType) -> DType {
    match d {
        DType::F64 => DType::F64,
        d if d.is_float() => DType::F32,
        _ => DType::I64,
    }
}

fn head(kernel: Kernel, from: DType, out: DType, max: bool) -> Job {
    Job::new(kernel)
        .ty("T", from)
        .ty("O", out)
        .define("V", storage_type(working(from)).unwrap_or("float"))
        .define("MAX", u8::from(max))
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if d.is_complex() || d == DType::Bool {
        return Vec::new();
    }
    if !d.is_float() {
        return vec![head(POOL, d, d, true)];
    }
    vec![head(POOL, d, d, true), head(BACK, d, d, false)]
}

/// The last `n` sizes as three; the leading ones are 1.
fn triple(t: &Tensor, n: usize) -> [i64; 3] {
    let s = &t.shape()[t.ndim() - n..];
    std::array::from_fn(|i| if i + n < 3 { 1 } else { s[i + n - 3] })
}

/// Windows as the kernels read them.
fn table(list: &[Windows]) -> Vec<i64> {
    let windows = list.iter().flatten().flatten();
    windows
        .flat_map(|w| [w.start, w.end, w.step, w.padded].map(|v| v as i64))
        .collect()
}

/// Sizes of planes, and how means are made.
struct Planes {
    size: [i64; 3],
    out: [i64; 3],
    shared: bool,
    divisor: Option<i64>,
    padding: bool,
}

impl Planes {
    fn pass(&self, job: Job) -> Job {
        let more = [
            i64::from(self.shared),
            self.divisor.unwrap_or(0),
            i64::from(self.padding),
        ];
        job.group([], self.size.into_iter().chain(self.out).chain(more))
    }
}

/// See [`pooling::Job::run`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn run(job: &pooling::Job, x: &Tensor, outs: &[Tensor]) -> Result<()> {
    if on_host(x) {
        return job.run(x, outs);
    }
    let out = &outs[0];
    if out.numel() == 0 {
        return Ok(());
    }
    let x = super::dense(x)?;
    let (max, divisor, padding) = match job.rule {
        Rule::Max => (true, None, false),
        Rule::Mean { divisor, padding } => (false, divisor, padding),
    };
    let planes = Planes {
        size: triple(&x, job.n),
        out: triple(out, job.n),
        shared: job.shared,
        divisor,
        padding,
    };
    let count = if job.shared {
        1
    } else {
        (out.numel() / planes.out.iter().product::<i64>()) as usize
    };
    let windows: Vec<Windows> = (0..count).map(job.windows).collect();
    let table = tables::there(table(&windows), x.device())?;
    placed(out, |out| {
        let write = |at: Option<&Tensor>| {
            let job = head(POOL, x.dtype(), out.dtype(), max)
                .at(out)
                .maybe(at)
                .at(&x)
                .at(&table);
            planes.pass(job.int(out.numel())).each(out, out.numel())
        };
        match outs.get(1) {
            Some(at) => placed(at, |at| write(Some(at))),
            None => write(None),
        }
    })
}

/// See [`Spread::run`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn back(spread: &Spread, out: &Tensor, grad: &Tensor) -> Result<()> {
    if on_host(out) {
        return spread.run(out, grad);
    }
    let wide = working(out.dtype());
    let sum = Tensor::empty(out.shape(), wide, out.device())?;
    fill(&sum, Scalar::Int(0))?;
    if grad.numel() > 0 && out.numel() > 0 {
        let grad = super::dense(grad)?;
        let planes = |divisor, padding| Planes {
            size: triple(out, spread.n),
            out: triple(&grad, spread.n),
            shared: true,
            divisor,
            padding,
        };
        let n = grad.numel();
        let job = |max| {
            head(BACK, grad.dtype(), grad.dtype(), max)
                .at(&sum)
                .at(&grad)
        };
        match &spread.to {
            To::Places(at) => {
                let at = converted(at, DType::I64)?;
                let job = job(true).at(&at).maybe(None).int(n);
                planes(None, false).pass(job).flag().each(out, n)?;
            }
            To::Windows {
                windows,
                divisor,
                padding,
            } => {
                let table = tables::there(table(std::slice::from_ref(*windows)), out.device())?;
                let job = job(false).maybe(None).at(&table).int(n);
                planes(*divisor, *padding).pass(job).flag().each(out, n)?;
            }
        }
    }
    copy(out, &sum)
}
