//! Results so far along a dimension, and moments over dimensions, by where the data is.

use super::job::{Job, Kernel, computed, storage_type};
use super::{accelerator, converted, dense, on_host, placed};
use crate::cpu::reduce::{self, Post};
use crate::cpu::rows::Operand;
use crate::cpu::scan::Kind;
use crate::{DType, Result, Tensor, cpu};

const FILE: &str = include_str!("../cuda/kernels/scan.cu");
const SIDE_BY_SIDE: Kernel = Kernel {
    file: FILE,
    name: "side_by_side",
};
const ONE_BY_ONE: Kernel = Kernel {
    file: FILE,
    name: "one_by_one",
};

fn run(
    job: impl Fn(Kernel) -> Job,
    out: &Tensor,
    index: Option<&Tensor>,
    x: &Tensor,
    dim: usize,
) -> Result<()> {
    let (n, inner) = if x.ndim() == 0 {
        (1, 1)
    } else {
        (x.shape()[dim], x.shape()[dim + 1..].iter().product())
    };
    let lines = if n == 0 { 0 } else { x.numel() / n };
    if inner >= 32 && lines >= 4096 || n <= 32 {
        let job = job(SIDE_BY_SIDE).at(out).maybe(index).at(x);
        return job.int(lines).int(n).int(inner).each(out, lines);
    }
    let job = job(ONE_BY_ONE).at(out).maybe(index).at(x);
    job.int(n).int(inner).blocks(out, lines)
}

/// See [`cpu::scan::scan`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn scan(out: &Tensor, input: &Tensor, dim: usize, kind: Kind) -> Result<()> {
    if on_host(out) {
        return cpu::scan::scan(out, input, dim, kind);
    }
    let input = converted(input, out.dtype())?;
    let made = |kernel| scanning(kernel, input.dtype(), out.dtype(), kind);
    placed(out, |out| run(made, out, None, &input, dim))
}

fn scanning(kernel: Kernel, input: DType, out: DType, kind: Kind) -> Job {
    let carried = match out {
        d if d.is_integral(true) => DType::I64,
        d => computed(d),
    };
    let (nothing, join) = match kind {
        Kind::Sum => ("V(0)", "((a) + (b))"),
        Kind::Prod => ("V(1)", "((a) * (b))"),
        Kind::LogSumExp if carried.is_complex() => ("V(-INF_D)", "log_add((a), (b))"),
        Kind::LogSumExp => ("least<V>()", "log_add((a), (b))"),
    };
    let job = Job::new(kernel)
        .ty("T", input)
        .ty("O", out)
        .define("ARG", 0)
        .define("V", storage_type(carried).unwrap_or("float"))
        .define("NOTHING", nothing)
        .define("JOIN(a, b)", join);
    if kind == Kind::LogSumExp {
        job.define("LOG_ADD", 1)
    } else {
        job
    }
}

fn ranking(kernel: Kernel, input: DType, out: DType, max: bool) -> Job {
    Job::new(kernel)
        .ty("T", input)
        .ty("O", out)
        .define("ARG", 1)
        .define("JOIN(a, b)", if max { "(a) >= (b)" } else { "(a) <= (b)" })
}

/// The largest or smallest so far along a dimension of a tensor beside the host, and where it is: the last of equals.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn extreme(out: &Tensor, index: &Tensor, input: &Tensor, dim: usize, max: bool) -> Result<()> {
    let input = dense(input)?;
    let made = |kernel| ranking(kernel, input.dtype(), out.dtype(), max);
    placed(out, |out| {
        placed(index, |index| run(made, out, Some(index), &input, dim))
    })
}

/// See [`cpu::select::logsumexp`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn logsumexp(out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    if on_host(input) {
        return cpu::select::logsumexp(out, input, dims);
    }
    let gpu = accelerator()?;
    let wide = computed(out.dtype());
    let input = converted(input, wide)?;
    let shape = crate::dims::reduced_shape(input.shape(), dims, true);
    let make = |shape: &[i64], d| Tensor::empty(shape, d, input.device());
    // Complex numbers are brought down by the largest real part; what is not finite stays.
    let top = make(&shape, wide.to_real())?;
    let real = make(input.shape(), wide.to_real())?;
    let map = |text: &str, operands: &[Operand], d, to: &Tensor| {
        gpu.map(text, operands, d, &Default::default(), to)
    };
    let parts = if wide.is_complex() { "a.re" } else { "a" };
    map(parts, &[Operand::Tensor(&input)], wide, &real)?;
    gpu.fold(reduce::Kind::Max, &top, &real, dims, 0.0, Post::None)?;
    map(
        "isinf_(a) ? T(0) : a",
        &[Operand::Tensor(&top)],
        top.dtype(),
        &top,
    )?;
    let powers = make(input.shape(), wide)?;
    let operands = [Operand::Tensor(&input), Operand::Tensor(&top)];
    map("exp(a - b)", &operands, wide, &powers)?;
    let sum = make(&shape, wide)?;
    gpu.fold(reduce::Kind::Sum, &sum, &powers, dims, 0.0, Post::None)?;
    map(
        "log(a) + b",
        &[Operand::Tensor(&sum), Operand::Tensor(&top)],
        wide,
        &sum,
    )?;
    let strides = crate::dims::contiguous_strides(out.shape());
    let plan = crate::plan::ViewPlan::with(&sum, out.shape().clone(), strides, 0);
    super::copy(out, &sum.raw_view(&plan))
}

/// See [`cpu::moments::variance`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn variance(
    var: &Tensor,
    mean: Option<&Tensor>,
    input: &Tensor,
    dims: &[usize],
    correction: f64,
    root: bool,
) -> Result<()> {
    if on_host(input) {
        return cpu::moments::variance(var, mean, input, dims, correction, root);
    }
    let gpu = accelerator()?;
    if !input.dtype().is_complex() {
        return gpu.moments(var, mean, input, dims, correction, root);
    }
    let wide = computed(input.dtype());
    let shape = crate::dims::reduced_shape(input.shape(), dims, true);
    let n: i64 = dims.iter().map(|&d| input.shape()[d]).product();
    let centre = Tensor::empty(&shape, wide, input.device())?;
    let over = Post::Over(n as f64);
    gpu.fold(reduce::Kind::Sum, &centre, input, dims, 0.0, over)?;
    let apart = Tensor::empty(input.shape(), wide, input.device())?;
    let operands = [Operand::Tensor(input), Operand::Tensor(&centre)];
    gpu.map("a - b", &operands, wide, &Default::default(), &apart)?;
    let post = Post::Over((n as f64 - correction).max(0.0));
    let spread = Tensor::empty(var.shape(), wide.to_real(), var.device())?;
    gpu.fold(reduce::Kind::SqSum, &spread, &apart, dims, 0.0, post)?;
    let text = if root { "sqrt(a)" } else { "a" };
    let operands = [Operand::Tensor(&spread)];
    gpu.map(text, &operands, spread.dtype(), &Default::default(), var)?;
    match mean {
        Some(mean) => gpu.fold(reduce::Kind::Sum, mean, input, dims, 0.0, over),
        None => Ok(()),
    }
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    let mut jobs: Vec<Job> = [Kind::Sum, Kind::Prod, Kind::LogSumExp]
        .into_iter()
        .filter(|kind| *kind != Kind::LogSumExp || !d.is_integral(true))
        .map(|kind| scanning(SIDE_BY_SIDE, d, d, kind))
        .collect();
    if !d.is_complex() {
        jobs.push(ranking(ONE_BY_ONE, d, d, true));
    }
    jobs
}
