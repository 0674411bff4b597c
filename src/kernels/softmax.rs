//! Softmax, log_softmax and their gradients, by where the data is.

use super::job::{Job, Kernel};
use super::{Shares, on_host, pack, placed};
use crate::{DType, Result, Tensor, cpu};

const FILE: &str = include_str!("../cuda/kernels/softmax.cu");
const FORWARD: Kernel = Kernel {
    file: FILE,
    name: "forward",
};
const BACKWARD: Kernel = Kernel {
    file: FILE,
    name: "backward",
};

/// How many lines there are along a dimension, how long they are, and how far apart their elements lie in row-major order.
fn lines(t: &Tensor, dim: usize) -> [i64; 3] {
    if t.ndim() == 0 {
        return [1, 1, 1];
    }
    let (n, inner) = (t.shape()[dim], t.shape()[dim + 1..].iter().product());
    [if n == 0 { 0 } else { t.numel() / n }, n, inner]
}

/// Starts a kernel of this file for all lines of some tensors.
fn run(job: Job, out: &Tensor, [lines, n, inner]: [i64; 3], all: &[&Tensor]) -> Result<()> {
    let pack = if inner == 1 { pack(n, all) } else { 1 };
    let Shares { width, held } = if inner >= 32 {
        Shares::alone(n)
    } else {
        Shares::of(n, pack)
    };
    let each = 256 / width;
    job.define("HELD", held)
        .define("PACK", pack)
        .int(lines)
        .int(n)
        .int(inner)
        .int(width)
        .blocks(out, (lines + each - 1) / each)
}

/// See [`cpu::softmax::softmax`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn forward(out: &Tensor, x: &Tensor, dim: usize, log: bool) -> Result<()> {
    if on_host(out) {
        return cpu::softmax::softmax(out, x, dim, log);
    }
    let x = if x.dtype().is_float() {
        super::dense(x)?
    } else {
        super::converted(x, out.dtype())?
    };
    placed(out, |out| {
        let job = Job::new(FORWARD)
            .ty("T", x.dtype())
            .ty("O", out.dtype())
            .define("LOG", u8::from(log));
        run(job.at(out).at(&x), out, lines(&x, dim), &[&x, out])
    })
}

/// See [`cpu::softmax_backward::softmax`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn backward(out: &Tensor, g: &Tensor, y: &Tensor, dim: usize, log: bool) -> Result<()> {
    if on_host(out) {
        // GPUs alone have a kernel that rounds on the way.
        g.dtype().check_same(out.dtype())?;
        return cpu::softmax_backward::softmax(out, g, y, dim, log);
    }
    let (g, y) = (super::dense(g)?, super::dense(y)?);
    placed(out, |out| {
        let job = Job::new(BACKWARD)
            .ty("T", g.dtype())
            .ty("O", out.dtype())
            .define("LOG", u8::from(log));
        let all = [&g, &y, out];
        run(job.at(out).at(&g).at(&y), out, lines(&g, dim), &all)
    })
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if !d.is_float() {
        return Vec::new();
    }
    let job = |kernel, log: u8| {
        Job::new(kernel)
            .ty("T", d)
            .ty("O", d)
            .define("LOG", log)
            .define("HELD", 4 * i64::from(log))
            .define("PACK", 16 / d.size())
    };
    vec![job(FORWARD, 0), job(BACKWARD, 1)]
}
