//! Resampling and its gradient, by where the data is: one dimension after the other.

use super::job::{Job, Kernel, computed};
use super::{accelerator, copy, dense, on_host, tables};
use crate::cpu::adjoint::Adjoint;
use crate::cpu::resize::Resampling;
use crate::cpu::rows::Operand;
use crate::{DType, Result, Tensor};

const ALONG: Kernel = Kernel {
    file: include_str!("../cuda/kernels/resize.cu"),
    name: "along",
};

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if d.is_complex() {
        Vec::new()
    } else {
        vec![Job::new(ALONG).ty("T", d).ty("O", computed(d))]
    }
}

/// Weighted sums along dimension `dim` of a row-major tensor.
fn along(x: &Tensor, dim: usize, sums: &Adjoint, to: DType) -> Result<Tensor> {
    let (starts, parts) = sums.parts();
    let count = starts.len() as i64 - 1;
    let out = Tensor::empty(&x.shape().with(dim, count), to, x.device())?;
    let there = |list: Vec<i64>| tables::there(list, x.device());
    let starts = there(starts.iter().map(|&i| i as i64).collect())?;
    let places = there(parts.iter().map(|p| p.0 as i64).collect())?;
    let weights = there(parts.iter().map(|p| p.1.to_bits() as i64).collect())?;
    let inner: i64 = x.shape()[dim + 1..].iter().product();
    let job = Job::new(ALONG)
        .ty("T", x.dtype())
        .ty("O", to)
        .at(&out)
        .at(x);
    let job = job.at(&starts).at(&places).at(&weights).int(out.numel());
    job.int(x.shape()[dim])
        .int(count)
        .int(inner)
        .each(&out, out.numel())?;
    Ok(out)
}

/// The type that sums are kept in between dimensions.
fn between(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

/// See [`Resampling::run`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn run(r: &Resampling, x: &Tensor, out: &Tensor) -> Result<()> {
    if on_host(x) {
        return r.run(x, out);
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let mut sum = dense(x)?;
    for (i, &axis) in r.axes.iter().enumerate() {
        sum = along(
            &sum,
            2 + i,
            &Adjoint::of_outputs(&r.taps(axis)?),
            between(x.dtype()),
        )?;
    }
    if out.dtype().is_integral(false) {
        // To the nearest of the numbers there are.
        let operands = [Operand::Tensor(&sum)];
        let text = "min_(max_(round_(a), T(0)), T(255))";
        return accelerator()?.map(text, &operands, sum.dtype(), &Default::default(), out);
    }
    copy(out, &sum)
}

/// See [`Resampling::run_backward`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn run_backward(r: &Resampling, grad: &Tensor, out: &Tensor) -> Result<()> {
    if on_host(out) {
        return r.run_backward(grad, out);
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let mut sum = dense(grad)?;
    for (i, &axis) in r.axes.iter().enumerate() {
        let adjoint = Adjoint::of(&r.taps(axis)?, axis.size as usize);
        sum = along(&sum, 2 + i, &adjoint, between(grad.dtype()))?;
    }
    copy(out, &sum)
}
