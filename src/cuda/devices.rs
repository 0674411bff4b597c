//! GPUs as devices that the rest of the crate can use.

use super::{alloc, blas, copy, dnn, driver, fft, launch, map, random, reduce};
use crate::cpu::map::Ctx;
use crate::cpu::reduce::{Kind, Post};
use crate::cpu::rows::Operand;
use crate::kernels::conv::Work;
use crate::kernels::job::Job;
use crate::kernels::{Accelerator, Properties, Stats};
use crate::random::{Distribution, SharedGenerator};
use crate::{DType, Device, Result, Scalar, Storage, Tensor};

/// All GPUs.
pub struct Gpus;

impl Accelerator for Gpus {
    fn count(&self) -> usize {
        driver::count()
    }

    fn is_open(&self) -> bool {
        driver::opened()
    }

    fn check(&self, device: Device) -> Result<()> {
        driver::check(device)
    }

    fn properties(&self, device: Device) -> Result<Properties> {
        driver::check(device)?;
        let g = driver::gpu(device)?;
        Ok(Properties {
            name: g.name()?,
            capability: g.arch,
            total_memory: g.total_memory()?,
            processors: g.processors,
            threads: g.threads,
        })
    }

    fn memory(&self, device: Device) -> Result<(usize, usize)> {
        driver::check(device)?;
        driver::gpu(device)?.memory()
    }

    fn stats(&self, index: usize) -> Stats {
        alloc::stats(index)
    }

    fn empty_cache(&self) -> Result<()> {
        alloc::empty_cache()
    }

    fn synchronize(&self, device: Device) -> Result<()> {
        driver::check(device)?;
        driver::gpu(device)?.wait()
    }

    fn generator(&self, device: Device) -> Result<SharedGenerator> {
        Ok(driver::gpu(device.canonical())?.generator.clone())
    }

    fn seed(&self, seed: u64) {
        random::seed(seed);
    }

    fn allocate(&self, nbytes: usize, device: Device) -> Result<Storage> {
        alloc::empty_storage(nbytes, device)
    }

    fn start(&self, job: &mut Job, device: Device, blocks: u32) -> Result<()> {
        launch::start(job, device, blocks)
    }

    fn fill(&self, t: &Tensor, value: Scalar) -> Result<()> {
        map::fill_with(t, value)
    }

    fn copy(&self, dst: &Tensor, src: &Tensor) -> Result<()> {
        copy::copy_into(dst, src)
    }

    fn dense(&self, t: &Tensor, dtype: DType) -> Result<Tensor> {
        copy::dense(t, dtype)
    }

    fn map(
        &self,
        expression: &str,
        operands: &[Operand],
        compute: DType,
        ctx: &Ctx,
        out: &Tensor,
    ) -> Result<()> {
        map::run(expression, operands, compute, ctx, out)
    }

    fn choose(&self, out: &Tensor, operands: [Operand; 3]) -> Result<()> {
        map::run(map::CHOOSE, &operands, out.dtype(), &Ctx::default(), out)
    }

    fn fold(
        &self,
        kind: Kind,
        out: &Tensor,
        input: &Tensor,
        dims: &[usize],
        p: f64,
        post: Post,
    ) -> Result<()> {
        reduce::run_kind(kind, out, input, dims, p, post)
    }

    fn arg_extreme(
        &self,
        values: Option<&Tensor>,
        indices: &Tensor,
        input: &Tensor,
        dims: &[usize],
        max: bool,
    ) -> Result<()> {
        reduce::arg_extreme(values, indices, input, dims, max)
    }

    fn moments(
        &self,
        var: &Tensor,
        mean: Option<&Tensor>,
        input: &Tensor,
        dims: &[usize],
        correction: f64,
        root: bool,
    ) -> Result<()> {
        reduce::moments(var, mean, input, dims, correction, root)
    }

    fn product(
        &self,
        c: &Tensor,
        a: &Tensor,
        b: &Tensor,
        alpha: Scalar,
        beta: Scalar,
        bias: Option<&Tensor>,
    ) -> Result<()> {
        blas::product(c, a, b, alpha, beta, bias)
    }

    fn convolve(&self, work: &Work) -> Result<bool> {
        dnn::convolve(work)
    }

    fn transform(&self, out: &Tensor, from: &Tensor, rank: usize, forward: bool) -> Result<bool> {
        fft::transform(out, from, rank, forward)
    }

    fn draw(&self, d: &Distribution, by: Option<&SharedGenerator>, out: &Tensor) -> Result<()> {
        random::fill(d, by, out)
    }
}
