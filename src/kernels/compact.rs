//! The elements that are not zero, in order, on a device beside the host: how many there are, where, and others at their places.

use super::job::{Job, Kernel, View};
use super::placed;
use crate::plan::ViewPlan;
use crate::{DType, Result, Tensor, ensure};

const fn kernel(name: &'static str) -> Kernel {
    Kernel {
        file: include_str!("../cuda/kernels/compact.cu"),
        name,
    }
}

/// Elements of a block; as in the kernels.
const CHUNK: i64 = 2048;

/// Dimensions that coordinates can have.
const DIMS: usize = 8;

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    vec![job("count", d, d)]
}

fn job(name: &'static str, asked: DType, taken: DType) -> Job {
    Job::new(kernel(name)).ty("T", asked).ty("S", taken)
}

/// Elements of a tensor, expanded to a shape, that are asked whether they are zero.
struct Asked<'a> {
    t: &'a Tensor,
    view: View,
    n: i64,
    blocks: i64,
}

impl<'a> Asked<'a> {
    fn new(t: &'a Tensor, shape: &[i64]) -> Result<Self> {
        let n = shape.iter().product::<i64>();
        Ok(Self {
            t,
            view: View::with(t, shape, &t.strides_for(shape))?,
            n,
            blocks: (n + CHUNK - 1) / CHUNK,
        })
    }

    /// Where each block's elements begin, and how many there are in all.
    fn offsets(&self) -> Result<Tensor> {
        let counts = Tensor::empty(&[self.blocks + 1], DType::I64, self.t.device())?;
        let d = self.t.dtype();
        let count = job("count", d, d).at(&counts).int(self.n).view(&self.view);
        count.blocks(self.t, self.blocks)?;
        let scan = job("offsets", d, d).at(&counts).int(self.blocks);
        scan.blocks(self.t, 1)?;
        Ok(counts)
    }

    /// How many there are, by their offsets.
    fn all(&self, counts: &Tensor) -> Result<i64> {
        let last = counts.raw_view(&ViewPlan::of(counts).selected(0, self.blocks));
        Ok(super::read(&last)?.to_i64())
    }

    /// Writes coordinates, a row each, as many as `out` has rows.
    fn places(&self, out: &Tensor, counts: &Tensor) -> Result<()> {
        let t = self.t;
        ensure!(
            t.ndim() <= DIMS,
            NotImplemented,
            "CUDA kernels take tensors of up to {DIMS} dimensions"
        );
        let mut shape = [0; DIMS + 3];
        shape[0] = t.ndim() as i64;
        shape[1..=t.ndim()].copy_from_slice(t.shape());
        shape[DIMS + 1..].copy_from_slice(out.strides());
        let job = job("places", t.dtype(), t.dtype()).at(out).at(counts);
        job.int(self.n)
            .int(out.shape()[0])
            .view(&self.view)
            .group([], shape)
            .blocks(out, self.blocks)
    }
}

/// How many elements are not zero. Waits for the device.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn count(t: &Tensor) -> Result<i64> {
    if t.numel() == 0 {
        return Ok(0);
    }
    let asked = Asked::new(t, t.shape())?;
    asked.all(&asked.offsets()?)
}

/// The coordinates of the elements of `t` that are not zero, a row each, as many as `out` has rows.
///
/// # Errors
/// If a kernel or memory cannot be had, or there are too many dimensions.
pub fn places(out: &Tensor, t: &Tensor) -> Result<()> {
    if out.numel() == 0 || t.numel() == 0 {
        return Ok(());
    }
    let asked = Asked::new(t, t.shape())?;
    asked.places(out, &asked.offsets()?)
}

/// The coordinates of the elements of `t` that are not zero, a list for each dimension. Waits for the device.
///
/// # Errors
/// As [`places`].
pub fn coordinates(t: &Tensor) -> Result<Vec<Tensor>> {
    let (asked, dims) = (Asked::new(t, t.shape())?, t.ndim() as i64);
    let counts = asked.offsets()?;
    let lists = Tensor::empty(&[dims, asked.all(&counts)?], DType::I64, t.device())?;
    if lists.numel() > 0 {
        let rows = lists.raw_view(&ViewPlan::of(&lists).swapped(0, 1));
        asked.places(&rows, &counts)?;
    }
    let list = |d| lists.raw_view(&ViewPlan::of(&lists).selected(0, d));
    Ok((0..dims).map(list).collect())
}

/// The elements of `t` where `mask` is not zero, both expanded to a shape.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn chosen(out: &Tensor, t: &Tensor, mask: &Tensor, shape: &[i64]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let asked = Asked::new(mask, shape)?;
    let counts = asked.offsets()?;
    let values = View::with(t, shape, &t.strides_for(shape))?;
    placed(out, |out| {
        let job = job("chosen", mask.dtype(), super::index::bits(t)).at(out);
        job.at(&counts)
            .int(asked.n)
            .int(out.numel())
            .view(&asked.view)
            .view(&values)
            .blocks(out, asked.blocks)
    })
}
