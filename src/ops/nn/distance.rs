//! Distances and similarities between vectors.

use crate::dtype::promote;
use crate::ops::core::op::{F, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::{DType, Result, Tensor, cpu, dims, ensure, err};
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
    ).samples("f32[5, 5], f32[5, 5]"),
    compose(
        "pairwise_distance",
        "(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False)",
        F,
        pairwise,
        "The distances of vectors in pairs.",
    ).samples("f32[3], f32[3], keepdim=True"),
    kernel(
        "pdist",
        "(Tensor self, float p=2.0)",
        F,
        body!(rule_pdist, run_pdist),
        "The distances between all pairs of rows.",
    ).samples("f32[3, 4]; f32[3, 4], p=inf"),
    kernel(
        "cdist",
        "(Tensor x1, Tensor x2, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary')",
        F,
        body!(rule_cdist, run_cdist),
        "The distances between all rows of two matrices.",
    ).samples("f32[0, 4, 5], f32[3, 5], 1.5, 'use_mm_for_euclid_dist'"),
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
    let unit = |t: &Tensor, norm: &Tensor| f::div(t, &f::_nn_clamp_min(norm, a.eps)?);
    let product = f::mul(&unit(&x, &x_norm)?, &unit(&y, &y_norm)?)?;
    f::sum_dim(&product, &dim[..])
}

fn pairwise(a: &calls::PairwiseDistance) -> Result<Tensor> {
    let diff = f::add(&f::sub(a.x1, a.x2)?, a.eps)?;
    f::LinalgVectorNorm::new(&diff)
        .ord(a.p)
        .dim(&[-1][..])
        .keepdim(a.keepdim)
        .call()
}

fn rule_pdist(a: &calls::Pdist) -> Result<Plan> {
    let (x, p) = (a.input, a.p);
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
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "pdist")?;
    let n = x.shape()[0];
    Ok(Plan::contiguous(&[n * (n - 1).max(0) / 2], x.dtype()))
}

fn run_pdist(a: &calls::Pdist, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::loss::pair_distances(&outs[0], a.input, a.p)
}

fn rule_cdist(a: &calls::Cdist) -> Result<Plan> {
    let (x, y, p, mode) = (a.x1, a.x2, a.p, a.compute_mode);
    ensure!(
        matches!(
            mode,
            "use_mm_for_euclid_dist_if_necessary"
                | "use_mm_for_euclid_dist"
                | "donot_use_mm_for_euclid_dist"
        ),
        Value,
        "{mode} is not a valid value for compute_mode"
    );
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
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), "cdist")?;
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "expected scalar type {} but found {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    let batch = dims::broadcast(&x.shape()[..x.ndim() - 2], &y.shape()[..y.ndim() - 2])?;
    Ok(Plan::contiguous(
        &batch.concat(&[x.shape()[x.ndim() - 2], y.shape()[y.ndim() - 2]]),
        x.dtype(),
    ))
}

fn run_cdist(a: &calls::Cdist, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::loss::cross_distances(&outs[0], a.x1, a.x2, a.p)
}
