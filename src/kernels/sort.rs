//! Sorting and the best few, by where the data is. On a GPU short lines are sorted by a bitonic network whose ties go by position,
//! longer ones digit by digit: both are stable.

use super::job::{Job, Kernel, computed};
use super::{copy, dense, on_host};
use crate::plan::ViewPlan;
use crate::{DType, Result, Tensor, cpu, ensure};

const FILE: &str = include_str!("../cuda/kernels/sort.cu");

/// Elements that a block sorts in its shared memory; as in the kernels.
const CHUNK: i64 = 2048;
/// Lines up to this length are sorted by a network.
const SHORT: i64 = 512;

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
    t.raw_view(&ViewPlan::of(t).permuted(&cpu::lines::order(t.ndim(), &[dim])))
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
    placed(values, indices, dim, |values, indices| {
        let job = |name| head(name, x.dtype(), descending);
        let lines = x.numel() / n;
        match n {
            ..=SHORT => by_network([values, indices], &x, job, n),
            _ if n <= tile(x.dtype()) => job("line")
                .at(values)
                .at(indices)
                .at(&x)
                .int(n)
                .int(lowest(x.dtype()))
                .blocks(&x, lines),
            _ => by_digits([values, indices], &x, job, n),
        }
    })
}

/// Room for the keys and positions of as many elements.
fn room(x: &Tensor, total: i64) -> Result<[Tensor; 2]> {
    let wide = computed(x.dtype()).size() == 8;
    let key = if wide { DType::I64 } else { DType::I32 };
    let make = |d| Tensor::empty(&[total], d, x.device());
    Ok([make(key)?, make(DType::I32)?])
}

/// Keys and positions of lines of `n` elements, each filled up to `padded`.
fn loaded(x: &Tensor, job: Job, n: i64, padded: i64) -> Result<[Tensor; 2]> {
    let total = x.numel() / n * padded;
    let [keys, at] = room(x, total)?;
    let job = job.at(&keys).at(&at).at(x);
    job.int(total).int(n).int(padded).each(x, total)?;
    Ok([keys, at])
}

/// Writes values and positions in the order of what [`loaded`] gave.
fn stored(
    [values, indices]: [&Tensor; 2],
    x: &Tensor,
    job: Job,
    at: &Tensor,
    [n, padded]: [i64; 2],
) -> Result<()> {
    let job = job.at(values).at(indices).at(x).at(at);
    job.int(x.numel()).int(n).int(padded).each(x, x.numel())
}

/// Elements that a block sorts by digits; as in the kernels.
fn tile(d: DType) -> i64 {
    256 * if computed(d).size() == 8 { 8 } else { 16 }
}

/// The first digit of a key that tells elements apart, in bits: keys of 16-bit numbers are those of the single ones that they are.
fn lowest(d: DType) -> i64 {
    match d {
        DType::BF16 => 16,
        DType::F16 => 8,
        _ => 0,
    }
}

/// Short lines, several in a chunk.
fn by_network(
    out: [&Tensor; 2],
    x: &Tensor,
    job: impl Fn(&'static str) -> Job,
    n: i64,
) -> Result<()> {
    let padded = (n as u64).next_power_of_two() as i64;
    let [keys, at] = loaded(x, job("load"), n, padded)?;
    if padded > 1 {
        let total = keys.numel();
        // A chunk has whole lines, and all chunks are alike.
        let chunk = (total & total.wrapping_neg()).min(CHUNK);
        let job = job("within").at(&keys).at(&at).int(padded).int(chunk);
        job.blocks(x, total / chunk)?;
    }
    stored(out, x, job("store"), &at, [n, padded])
}

/// Long lines: digit by digit, each keeping the order of the one before.
fn by_digits(
    out: [&Tensor; 2],
    x: &Tensor,
    job: impl Fn(&'static str) -> Job,
    n: i64,
) -> Result<()> {
    let (total, lines) = (x.numel(), x.numel() / n);
    let tiles = (n + tile(x.dtype()) - 1) / tile(x.dtype());
    let (mut now, mut next) = (loaded(x, job("load"), n, n)?, room(x, total)?);
    let make = |n| Tensor::empty(&[n], DType::I32, x.device());
    let (counts, sums) = (make(lines * 256 * tiles)?, make(lines * 256)?);
    let bits = 8 * now[0].dtype().size() as i64;
    for shift in (lowest(x.dtype())..bits).step_by(8) {
        let digits = job("digits").at(&counts).at(&now[0]);
        digits
            .int(n)
            .int(tiles)
            .int(shift)
            .blocks(x, lines * tiles)?;
        let starts = job("starts").at(&counts).at(&sums).int(tiles);
        starts.blocks(x, lines * 256)?;
        let moves = job("move").at(&next[0]).at(&next[1]);
        let moves = moves.at(&now[0]).at(&now[1]).at(&counts).at(&sums);
        moves
            .int(n)
            .int(tiles)
            .int(shift)
            .blocks(x, lines * tiles)?;
        std::mem::swap(&mut now, &mut next);
    }
    stored(out, x, job("store"), &now[1], [n, n])
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
    sorted: bool,
) -> Result<()> {
    if on_host(input) {
        return cpu::sort::topk(values, indices, input, dim, k, largest, sorted);
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
