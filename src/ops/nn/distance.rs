//! Distances and similarities between vectors.

use crate::dtype::promote;
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, err};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "cosine_similarity",
        "(Tensor x1, Tensor x2, int dim=1, float eps=1e-08)",
        F,
        cosine_similarity,
        "The cosine of the angle between vectors.",
    ).samples("f32[5, 5], f32[5, 5]")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "pairwise_distance",
        "(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False)",
        F,
        pairwise,
        "The distances of vectors in pairs.",
    ).samples("f32[3], f32[3], keepdim=True"),
    compose(
        "_nn.norm",
        "(Tensor self, float p, bool keepdim)",
        0,
        |a| {
            let call = f::LinalgVectorNorm::new(a.input).ord(a.p);
            call.dim(&[-1][..]).keepdim(a.keepdim).call()
        },
        "The norms of the last dimension.",
    ).samples("f32[3, 4], 2.0, False; f64[3], 1.0, True")
    .grad("NormBackward1 | self: None if p == 0 else _grad.vector_norm(grad, self, p, result, [-1], keepdim)"),
    kernel(
        "_pdist_forward",
        "(Tensor self, float p=2.0)",
        0,
        body!(rule_pdist, run_pdist, scratch: |a, _, outs, room| cpu::distance::pairs_room(room, &outs[0], a.input, a.p)),
        "The distances between all pairs of rows.",
    ).samples("f32[3, 4]; f64[3, 4], 1.5")
    .grad("PdistBackward0 | self: _pdist_backward(grad, self, p, result)"),
    compose(
        "pdist",
        "(Tensor self, float p=2.0)",
        F,
        |a| {
            check_pdist(a.input, a.p)?;
            f::_PdistForward::new(&a.input.contiguous()?).p(a.p).call()
        },
        "The distances between all pairs of rows.",
    ).samples("f32[3, 4]; f32[3, 4], p=inf")
    .grad("self: _pdist_backward(grad, self, p, result)")
    .amp(Cast::Kept, Cast::Single),
    kernel(
        "_cdist_forward",
        "(Tensor x1, Tensor x2, float p, int? compute_mode)",
        0,
        body!(rule_cdist, run_cdist, scratch: |a, _, outs, room| match a.x1.numel().min(a.x2.numel()) {
            0 => Ok(()),
            _ => cpu::distance::cross_room(room, &outs[0], a.x1, a.x2, a.p),
        }),
        "The distances between all rows of two matrices.",
    ).samples("f32[3, 4], f32[5, 4], 2.0, None; f64[2, 3, 4], f64[5, 4], 0.5, 0")
    .grad("CdistBackward0 | x1: _cdist_backward(grad, x1, x2, p, result); x2: _cdist_backward(grad.transpose(-2, -1).contiguous(), x2, x1, p, result.transpose(-2, -1).contiguous())")
    .batch(Batch::Broadcasting(&[2, 2])),
    compose(
        "_euclidean_dist",
        "(Tensor x1, Tensor x2)",
        F,
        |a| euclidean(a.x1, a.x2),
        "The Euclidean distances between all rows of two matrices, by a product.",
    ).samples("f32[3, 4], f32[5, 4]; f64[2, 3, 4], f64[2, 5, 4]")
    .grad("EuclideanDistBackward0 | x1: _grad.euclidean_dist(grad, x1, x2, result); x2: _grad.euclidean_dist(grad.transpose(-2, -1), x2, x1, result.transpose(-2, -1))"),
    compose(
        "cdist",
        "(Tensor x1, Tensor x2, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary')",
        F,
        cdist,
        "The distances between all rows of two matrices.",
    ).samples("f32[0, 4, 5], f32[3, 5], 1.5, 'use_mm_for_euclid_dist'; f32[3, 4], f32[5, 4], 2.0, 'use_mm_for_euclid_dist'")
    .amp(Cast::Single, Cast::Single),
];

fn cosine_similarity(a: &calls::CosineSimilarity) -> Result<Tensor> {
    let (x, y) = (a.x1, a.x2);
    let common = promote(x.dtype(), y.dtype()).ok_or_else(|| {
        err!(
            Runtime,
            "no common dtype of {} and {}",
            x.dtype(),
            y.dtype()
        )
    })?;
    ensure!(
        common.is_float(),
        Runtime,
        "expected common dtype to be floating point, yet common dtype is {}",
        common.scalar_type()
    );
    let shape = dims::broadcast(x.shape(), y.shape())?;
    let dim = [dims::wrap_dim(a.dim, shape.len())? as i64];
    let spread = |t: &Tensor| {
        let t = t.to_dtype(common)?;
        if *t.shape() == shape {
            Ok(t)
        } else {
            f::expand(&t, &shape)
        }
    };
    let norm = |t: &Tensor| {
        f::LinalgVectorNorm::new(t)
            .dim(&dim[..])
            .keepdim(true)
            .call()
    };
    let (x, y) = (spread(x)?, spread(y)?);
    let (x_norm, y_norm) = (norm(&x)?, norm(&y)?);
    let unit = |t: &Tensor, norm: &Tensor| f::div(t, &f::_nn_bounded(norm, a.eps)?);
    let product = f::mul(&unit(&x, &x_norm)?, &unit(&y, &y_norm)?)?;
    f::sum_dim(&product, &dim[..])
}

fn pairwise(a: &calls::PairwiseDistance) -> Result<Tensor> {
    let diff = f::_add_number(&f::sub(a.x1, a.x2)?, a.eps)?;
    f::_nn_norm(&diff, a.p, a.keepdim)
}

/// The checks of pdist that come before its operator.
fn check_pdist(x: &Tensor, p: f64) -> Result<()> {
    ensure!(
        x.ndim() == 2,
        Runtime,
        "pdist only supports 2D tensors, got: {}D",
        x.ndim()
    );
    ensure!(
        x.dtype().is_float(),
        Runtime,
        "pdist only supports floating-point dtypes"
    );
    ensure!(
        p >= 0.0,
        Runtime,
        "pdist only supports non-negative p values"
    );
    Ok(())
}

/// How many pairs there are among so many rows.
pub(in crate::ops) fn pairs(n: i64) -> Result<i64> {
    let count = i128::from(n) * i128::from(n - 1).max(0) / 2;
    i64::try_from(count).map_err(|_| err!(Runtime, "pdist: the size of the result overflows"))
}

fn rule_pdist(a: &calls::_PdistForward) -> Result<Plan> {
    let x = a.input;
    check_pdist(x, a.p)?;
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "pdist")?;
    Ok(Plan::contiguous(&[pairs(x.shape()[0])?], x.dtype()))
}

fn run_pdist(a: &calls::_PdistForward, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::distance::pairs(&outs[0], a.input, a.p)
}

/// Whether few enough rows are compared for the differences to be worth their time.
fn few(x: &Tensor, y: &Tensor) -> bool {
    let rows = |t: &Tensor| t.shape()[t.ndim() - 2];
    rows(x) <= 25 && rows(y) <= 25
}

fn cdist(a: &calls::Cdist) -> Result<Tensor> {
    let (x, y) = (a.x1, a.x2);
    let mode = match a.compute_mode {
        "use_mm_for_euclid_dist_if_necessary" => 0,
        "use_mm_for_euclid_dist" => 1,
        "donot_use_mm_for_euclid_dist" => 2,
        mode => bail!(Value, "{mode} is not a valid value for compute_mode"),
    };
    let batch = check_cdist(x, y, a.p)?;
    let product = a.p == 2.0 && (mode == 1 || mode == 0 && !few(x, y));
    if !product || x.numel() == 0 || y.numel() == 0 {
        return f::_cdist_forward(x, y, a.p, mode);
    }
    let spread = |t: &Tensor| f::expand(t, &batch.concat(&t.shape()[t.ndim() - 2..]));
    let made = f::_euclidean_dist(&spread(x)?, &spread(y)?)?;
    // PyTorch's graph has the batch's view, though it changes nothing here.
    f::view(&made, made.shape())
}

/// Distances by the squares of rows and a product of matrices.
fn euclidean(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let norm = |t: &Tensor| {
        f::SumDim::new(&f::pow(t, 2i64)?, &[-1][..])
            .keepdim(true)
            .call()
    };
    let (x_norm, y_norm) = (norm(x)?, norm(y)?);
    let joined = |parts: [&Tensor; 3]| f::Cat::new(&parts).dim(-1).call();
    let left = joined([&f::mul(x, -2i64)?, &x_norm, &f::ones_like(&x_norm)?])?;
    let right = joined([y, &f::ones_like(&y_norm)?, &y_norm])?;
    let squares = f::matmul(&left, &f::transpose(&right, -2, -1)?)?;
    f::ClampMin::new(&squares, 0i64).call_()?;
    f::Sqrt::new(&squares).call_()?;
    Ok(squares)
}

fn rule_cdist(a: &calls::_CdistForward) -> Result<Plan> {
    let (x, y) = (a.x1, a.x2);
    if let Some(mode) = a.compute_mode {
        ensure!(
            (0..=2).contains(&mode),
            Runtime,
            "possible modes: 0, 1, 2, but was: {mode}"
        );
    }
    let batch = check_cdist(x, y, a.p)?;
    if x.numel() != 0 && y.numel() != 0 {
        x.dtype()
            .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "cdist")?;
        x.dtype().check_same(y.dtype())?;
    }
    let rows = [x.shape()[x.ndim() - 2], y.shape()[y.ndim() - 2]];
    Ok(Plan::contiguous(&batch.concat(&rows), x.dtype()))
}

/// The checks of cdist; gives the dimensions of both batches.
fn check_cdist(x: &Tensor, y: &Tensor, p: f64) -> Result<Dims> {
    ensure!(
        x.ndim() >= 2,
        Runtime,
        "cdist only supports at least 2D tensors, X1 got: {}D",
        x.ndim()
    );
    ensure!(
        y.ndim() >= 2,
        Runtime,
        "cdist only supports at least 2D tensors, X2 got: {}D",
        y.ndim()
    );
    let (c1, c2) = (x.shape()[x.ndim() - 1], y.shape()[y.ndim() - 1]);
    ensure!(
        c1 == c2,
        Runtime,
        "X1 and X2 must have the same number of columns. X1: {c1} X2: {c2}"
    );
    for (name, t) in [("X1", x), ("X2", y)] {
        ensure!(
            t.dtype().is_float(),
            Runtime,
            "cdist only supports floating-point dtypes, {name} got: {}",
            t.dtype().scalar_type()
        );
    }
    ensure!(
        p >= 0.0,
        Runtime,
        "cdist only supports non-negative p values"
    );
    dims::broadcast(&x.shape()[..x.ndim() - 2], &y.shape()[..y.ndim() - 2])
}

fn run_cdist(a: &calls::_CdistForward, (): &(), outs: &[Tensor]) -> Result<()> {
    if a.x1.numel() == 0 || a.x2.numel() == 0 {
        return cpu::fill(&outs[0], Scalar::Int(0));
    }
    cpu::distance::cross(&outs[0], a.x1, a.x2, a.p)
}
