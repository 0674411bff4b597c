//! Gradients of distances between rows.

use crate::cpu::distance_backward::scratch;
use crate::ops::core::op::{OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::distance::pairs;
use crate::{DType, Result, Tensor, cpu, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.euclidean_dist",
        "(Tensor grad, Tensor x1, Tensor x2, Tensor result)",
        0,
        |a| {
            // Rows that are equal have no direction.
            let ratio = f::div(a.grad, a.result)?;
            let ratio = f::masked_fill(&ratio, &f::eq(a.result, 0i64)?, 0i64)?;
            let sums = f::SumDim::new(&ratio, &[-1][..]).keepdim(true).call()?;
            f::sub(&f::mul(a.x1, &sums)?, &f::matmul(&ratio, a.x2)?)
        },
        "The gradient of Euclidean distances by their first matrix.",
    )
    .samples("f32[3, 5], f32[3, 4], f32[5, 4], f32[3, 5]"),
    kernel(
        "_grad._cdist_backward",
        "(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist)",
        0,
        body!(rule_cdist, run_cdist, scratch: |a, _, outs, room| scratch(room, &outs[0], [a.grad, a.cdist], [Some(a.x1), Some(a.x2)])),
        "The gradient of cdist by its first matrix.",
    ).samples("f32[3, 5], f32[3, 4], f32[5, 4], 1.5, f32[3, 5].pos; f64[2, 3, 5], f64[3, 4], f64[2, 5, 4], 2.0, f64[2, 3, 5].pos; f32[3, 5], f32[3, 4], f32[5, 4], inf, f32[3, 5]")
    .grad("grad, x1, x2, cdist: refused"),
    kernel(
        "_grad._pdist_backward",
        "(Tensor grad, Tensor self, float p, Tensor pdist)",
        0,
        body!(rule_pdist, run_pdist, scratch: |a, _, outs, room| scratch(room, &outs[0], [a.grad, a.pdist], [Some(a.input), None])),
        "The gradient of pdist.",
    ).samples("f32[6], f32[4, 3], 2.0, f32[6].pos; f64[3], f64[3, 2], 0.5, f64[3].pos")
    .grad("grad, self, pdist: refused"),
    compose(
        "_grad._euclidean_dist_backward",
        "(Tensor grad, Tensor x1, Tensor x2, Tensor res) -> (Tensor, Tensor)",
        0,
        euclidean,
        "The gradients of _euclidean_dist.",
    ).samples("f32[3, 5], f32[3, 4], f32[5, 4], f32[3, 5].pos"),
];

fn check_type(t: &Tensor, kernel: &str) -> Result<()> {
    t.dtype()
        .check_kernel(matches!(t.dtype(), DType::F32 | DType::F64), kernel)
}

fn rule_cdist(a: &calls::_GradCdistBackward) -> Result<Plan> {
    let (g, x, y) = (a.grad, a.x1, a.x2);
    check_type(x, "cdist_backward")?;
    ensure!(
        x.ndim() >= 2 && y.ndim() >= 2,
        Runtime,
        "cdist_backward needs matrices, but got {} and {}",
        x.shape(),
        y.shape()
    );
    let (xs, ys) = (
        x.shape().split_at(x.ndim() - 2),
        y.shape().split_at(y.ndim() - 2),
    );
    let batch = dims::broadcast(xs.0, ys.0)?;
    let pairs = batch.concat(&[xs.1[0], ys.1[0]]);
    ensure!(
        xs.1[1] == ys.1[1],
        Runtime,
        "X1 and X2 must have the same number of columns. X1: {} X2: {}",
        xs.1[1],
        ys.1[1]
    );
    for t in [g, a.cdist] {
        ensure!(
            *t.shape() == pairs && t.dtype() == x.dtype() && y.dtype() == x.dtype(),
            Runtime,
            "cdist_backward: expected {} distances of {}, but got {} of {}",
            pairs,
            x.dtype().scalar_type(),
            t.shape(),
            t.dtype().scalar_type()
        );
    }
    Ok(Plan::contiguous(&batch.concat(xs.1), x.dtype()))
}

fn run_cdist(a: &calls::_GradCdistBackward, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::distance_backward::cross(&outs[0], [a.grad, a.cdist], [a.x1, a.x2], a.p)
}

fn rule_pdist(a: &calls::_GradPdistBackward) -> Result<Plan> {
    let x = a.input;
    check_type(x, "pdist_backward")?;
    ensure!(
        x.ndim() == 2,
        Runtime,
        "pdist only supports 2D tensors, got: {}D",
        x.ndim()
    );
    let n = x.shape()[0];
    let pairs = pairs(n)?;
    for t in [a.grad, a.pdist] {
        ensure!(
            t.ndim() == 1 && t.numel() == pairs && t.dtype() == x.dtype(),
            Runtime,
            "pdist_backward: expected {pairs} distances of {}, but got {} of {}",
            x.dtype().scalar_type(),
            t.shape(),
            t.dtype().scalar_type()
        );
    }
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn run_pdist(a: &calls::_GradPdistBackward, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::distance_backward::pairs(&outs[0], [a.grad, a.pdist], a.input, a.p)
}

/// Rows pull at each other by the gradient over their distance; rows at the same place do not.
fn euclidean(a: &calls::_GradEuclideanDistBackward) -> Result<Ret> {
    let (x1, x2) = (a.x1, a.x2);
    let ratio = f::div(a.grad, a.res)?;
    f::MaskedFill::new(&ratio, &f::eq(a.res, 0i64)?, 0i64).call_()?;
    let sums = |dim: i64| f::unsqueeze(&f::sum_dim(&ratio, &[dim][..])?, -1);
    let turned = f::transpose(&ratio, -2, -1)?;
    Ok(Ret::Tuple(vec![
        f::sub(&f::mul(x1, &sums(-1)?)?, &f::matmul(&ratio, x2)?)?,
        f::sub(&f::mul(x2, &sums(-2)?)?, &f::matmul(&turned, x1)?)?,
    ]))
}
