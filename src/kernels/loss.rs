//! Losses that read class numbers, by where the data is.

use super::job::{Job, Kernel, computed};
use super::{accelerator, converted, copy, fill, on_host, placed};
use crate::cpu::reduce::{Kind, Post};
use crate::cpu::rows::Operand;
use crate::{DType, Result, Scalar, Tensor, cpu};

const FILE: &str = include_str!("../cuda/kernels/loss.cu");
const NLL: Kernel = Kernel {
    file: FILE,
    name: "nll",
};
const NLL_BACKWARD: Kernel = Kernel {
    file: FILE,
    name: "nll_backward",
};

/// How many classes there are, and positions of a sample.
fn sizes(x: &Tensor) -> (i64, i64) {
    let classes = x.shape()[usize::from(x.ndim() > 1)];
    (classes, x.shape().iter().skip(2).product())
}

/// See [`cpu::loss::nll`].
///
/// # Errors
/// If a class number is out of range on the host, or a kernel or memory cannot be had.
pub fn nll(
    outs: &[Tensor],
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
    ignore: i64,
) -> Result<()> {
    if on_host(x) {
        return cpu::loss::nll(outs, x, target, weight, reduction, ignore);
    }
    let (classes, size) = sizes(x);
    let (x, target) = (converted(x, x.dtype())?, converted(target, DType::I64)?);
    let weight = weight.map(|w| converted(w, x.dtype())).transpose()?;
    let (n, wide) = (target.numel(), computed(x.dtype()));
    let list = || Tensor::empty(target.shape(), wide, x.device());
    let (losses, weights) = (list()?, list()?);
    let job = Job::new(NLL)
        .ty("T", x.dtype())
        .at(&losses)
        .at(&weights)
        .at(&x)
        .at(&target);
    let job = job.maybe(weight.as_ref()).int(n).int(classes).int(size);
    job.int(ignore).flag().each(&x, n)?;
    let all: Vec<usize> = (0..target.ndim()).collect();
    let gpu = accelerator()?;
    let sum = |t: &Tensor| -> Result<Tensor> {
        let out = Tensor::empty(&[], wide, x.device())?;
        gpu.fold(Kind::Sum, &out, t, &all, 0.0, Post::None)?;
        Ok(out)
    };
    let total = sum(&weights)?;
    copy(&outs[1], &total)?;
    match reduction {
        0 => copy(
            &outs[0],
            &losses.raw_view(&crate::plan::ViewPlan::with(
                &losses,
                outs[0].shape().clone(),
                crate::dims::contiguous_strides(outs[0].shape()),
                0,
            )),
        ),
        1 => {
            let losses = sum(&losses)?;
            let operands = [Operand::Tensor(&losses), Operand::Tensor(&total)];
            gpu.map("a / b", &operands, wide, &Default::default(), &outs[0])
        }
        _ => copy(&outs[0], &sum(&losses)?),
    }
}

/// See [`cpu::loss_backward::nll`].
///
/// # Errors
/// If a class number is out of range on the host, or a kernel or memory cannot be had.
pub fn nll_backward(
    out: &Tensor,
    g: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    total: Option<&Tensor>,
    ignore: i64,
) -> Result<()> {
    if on_host(out) {
        return cpu::loss_backward::nll(out, g, target, weight, total, ignore);
    }
    let (classes, size) = sizes(out);
    let d = out.dtype();
    let (g, target) = (converted(g, d)?, converted(target, DType::I64)?);
    let beside = |t: Option<&Tensor>| t.map(|t| converted(t, d)).transpose();
    let (weight, total) = (beside(weight)?, beside(total)?);
    placed(out, |out| {
        fill(out, Scalar::Int(0))?;
        let n = target.numel();
        let job = Job::new(NLL_BACKWARD).ty("T", d).at(out).at(&g).at(&target);
        let job = job
            .maybe(weight.as_ref())
            .maybe(total.as_ref())
            .int(n)
            .int(classes);
        job.int(size)
            .int(ignore)
            .int(i64::from(g.numel() == 1))
            .flag()
            .each(out, n)
    })
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    if d.is_float() {
        vec![Job::new(NLL).ty("T", d)]
    } else {
        Vec::new()
    }
}
