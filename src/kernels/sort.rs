//! Sorting and the best few, by where the data is: a bitonic network on a GPU, whose ties go by position, so that it is stable.

use super::job::{Job, Kernel, computed};
use super::{copy, dense, on_host};
use crate::plan::ViewPlan;
use crate::{DType, Result, Tensor, cpu, ensure};

const FILE: &str = include_str!("../cuda/kernels/sort.cu");

/// Elements that a block sorts in its shared memory; as in the kernels.
const CHUNK: i64 = 2048;

fn head(name: &'static str, d: DType, down: bool) -> Job {
    let wide = computed(d).size() == 8;
    Job::new(Kernel { file: FILE, name })
        .ty("T", d)
        .define("K", if wide { "u64" } else { "u32" })
        .define("WIDE", u8::from(wide))
        .define("DOWN", u8::from(down))
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if d.is_complex() {
        Vec::new()
    } else {
        let search = Job::new(SEARCH).ty("T", d).ty("O", DType::I64);
        vec![head("load", d, true), search.define("RIGHT", 1)]
    }
}

const SEARCH: Kernel = Kernel {
    file: include_str!("../cuda/kernels/search.cu"),
    name: "search",
};

/// Where values would be put into sorted lists, on a device beside the host: `edges` are one list for all, or as many as there are
/// lines of values. All are row-major.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn search(
    out: &Tensor,
    edges: &Tensor,
    values: &Tensor,
    sorter: Option<&Tensor>,
    right: bool,
) -> Result<()> {
    let n = edges.shape().last().copied().unwrap_or(1);
    let each = values.shape().last().copied().unwrap_or(1);
    super::placed(out, |out| {
        let job = Job::new(SEARCH).ty("T", edges.dtype()).ty("O", out.dtype());
        let job = job
            .define("RIGHT", u8::from(right))
            .at(out)
            .at(edges)
            .maybe(sorter)
            .at(values);
        let total = values.numel();
        job.int(total)
            .int(n)
            .int(each)
            .int(i64::from(edges.ndim() <= 1))
            .flag()
            .each(out, total)
    })
}

/// A tensor with a dimension last.
fn last(t: &Tensor, dim: usize) -> Tensor {
    if t.ndim() == 0 {
        return t.clone();
    }
    let order: Vec<usize> = (0..t.ndim()).filter(|&d| d != dim).chain([dim]).collect();
    t.raw_view(&ViewPlan::of(t).permuted(&order))
}

/// Has row-major values and positions filled, with the dimension last, and brings them to their places.
fn placed(
    values: &Tensor,
    indices: &Tensor,
    dim: usize,
    fill: impl FnOnce(&Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let (values, indices) = (last(values, dim), last(indices, dim));
    super::placed(&values, |values| {
        super::placed(&indices, |indices| fill(values, indices))
    })
}

/// See [`cpu::sort::sort`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn sort(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    descending: bool,
) -> Result<()> {
    if on_host(input) {
        return cpu::sort::sort(values, indices, input, dim, descending);
    }
    if input.numel() == 0 {
        return Ok(());
    }
    let x = dense(&last(input, dim))?;
    let n = x.shape().last().copied().unwrap_or(1);
    ensure!(
        n < i64::from(i32::MAX),
        NotImplemented,
        "sort() on CUDA takes dimensions of less than 2^31 elements"
    );
    let lines = x.numel() / n;
    let padded = (n as u64).next_power_of_two() as i64;
    let total = lines * padded;
    let job = |name| head(name, x.dtype(), descending);
    let wide = computed(x.dtype()).size() == 8;
    let keys = Tensor::empty(
        &[total],
        if wide { DType::I64 } else { DType::I32 },
        x.device(),
    )?;
    let at = Tensor::empty(&[total], DType::I32, x.device())?;
    job("load")
        .at(&keys)
        .at(&at)
        .at(&x)
        .int(total)
        .int(n)
        .int(padded)
        .each(&x, total)?;
    let chunk = padded.clamp(2, CHUNK);
    let within = |step: i64| {
        let job = job("within")
            .at(&keys)
            .at(&at)
            .int(padded)
            .int(chunk)
            .int(step);
        job.blocks(&x, total / chunk)
    };
    if padded > 1 {
        within(0)?;
    }
    let mut size = CHUNK * 2;
    while size <= padded {
        let mut half = size / 2;
        while half >= CHUNK {
            let job = job("across").at(&keys).at(&at).int(total).int(padded);
            job.int(size).int(half).each(&x, total / 2)?;
            half /= 2;
        }
        within(size)?;
        size *= 2;
    }
    placed(values, indices, dim, |values, indices| {
        let job = job("store").at(values).at(indices).at(&x).at(&at);
        job.int(x.numel()).int(n).int(padded).each(&x, x.numel())
    })
}

/// See [`cpu::sort::topk`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn topk(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    k: usize,
    largest: bool,
) -> Result<()> {
    if on_host(input) {
        return cpu::sort::topk(values, indices, input, dim, k, largest);
    }
    if values.numel() == 0 {
        return Ok(());
    }
    let k = k as i64;
    if k > CHUNK {
        let make = |d| Tensor::empty(input.shape(), d, input.device());
        let (all, places) = (make(input.dtype())?, make(DType::I64)?);
        sort(&all, &places, input, dim, largest)?;
        let front = |t: &Tensor| t.raw_view(&ViewPlan::of(t).narrowed(dim, 0, k));
        copy(values, &front(&all))?;
        return copy(indices, &front(&places));
    }
    let x = dense(&last(input, dim))?;
    let n = x.shape().last().copied().unwrap_or(1);
    placed(values, indices, dim, |values, indices| {
        let job = head("first", x.dtype(), largest)
            .at(values)
            .at(indices)
            .at(&x);
        job.int(n).int(k).blocks(&x, x.numel() / n)
    })
}
