//! Distances and similarities between vectors.

use crate::dtype::promote;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::core::rules;
use crate::{DType, Dims, Result, Tensor, cpu, dims, ensure, err, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "cosine_similarity",
        "(Tensor x1, Tensor x2, int dim=1, float eps=1e-08)",
        F,
        cosine_similarity,
        "The cosine of the angle between vectors.",
    ),
    old_compose(
        "nn.functional.cosine_similarity",
        "(Tensor x1, Tensor x2, int dim=1, float eps=1e-08)",
        F,
        cosine_similarity,
        "The cosine of the angle between vectors.",
    ),
    old_compose(
        "pairwise_distance",
        "(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False)",
        F,
        pairwise,
        "The distances of vectors in pairs.",
    ),
    old_compose(
        "nn.functional.pairwise_distance",
        "(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False)",
        F,
        pairwise,
        "The distances of vectors in pairs.",
    ),
    kernel(
        "pdist",
        "(Tensor self, float p=2.0)",
        F,
        KernelBody::new(infer_pdist, run_pdist),
        "The distances between all pairs of rows.",
    ),
    kernel(
        "nn.functional.pdist",
        "(Tensor self, float p=2.0)",
        F,
        KernelBody::new(infer_pdist, run_pdist),
        "The distances between all pairs of rows.",
    ),
    kernel(
        "cdist",
        "(Tensor x1, Tensor x2, float p=2.0, str compute_mode='use_mm_for_euclid_dist_if_necessary')",
        F,
        KernelBody::new(infer_cdist, run_cdist),
        "The distances between all rows of two matrices.",
    ),
];

fn cosine_similarity(a: &Args) -> Result<Ret> {
    let (x, y, eps) = (a.tensor(0)?, a.tensor(1)?, a.float(3)?);
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
    let (x, y) = (
        x.to_dtype(common)?.expand_to(&shape),
        y.to_dtype(common)?.expand_to(&shape),
    );
    let d = Dims::from([rules::dim(&x, a.int(2)?)? as i64]);
    let unit = |t: &Tensor| -> Result<Tensor> {
        let norm = run1!("linalg.vector_norm", t, 2i64, d.clone(), true)?;
        run1!("div", t, &run1!("_nn.clamp_min", &norm, eps)?)
    };
    run!(
        "sum#dim",
        &run1!("mul", &unit(&x)?, &unit(&y)?)?,
        d.clone(),
        false
    )
}

fn pairwise(a: &Args) -> Result<Ret> {
    let diff = run1!(
        "add",
        &run1!("sub", a.tensor(0)?, a.tensor(1)?)?,
        a.float(3)?
    )?;
    run!(
        "linalg.vector_norm",
        &diff,
        a.float(2)?,
        Dims::from([-1]),
        a.bool(4)
    )
}

fn infer_pdist(a: &Args) -> Result<Plan> {
    let (x, p) = (a.tensor(0)?, a.float(1)?);
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

fn run_pdist(a: &Args, outs: &[Tensor]) -> Result<()> {
    let x = a.tensor(0)?;
    let (n, m) = (x.shape()[0] as usize, x.shape()[1] as usize);
    if outs[0].numel() == 0 {
        return Ok(());
    }
    cpu::loss::distances(&outs[0], x, x, [n, n, m], a.float(1)?, true)
}

fn infer_cdist(a: &Args) -> Result<Plan> {
    let (x, y, p) = (a.tensor(0)?, a.tensor(1)?, a.float(2)?);
    let mode = a.str(3).unwrap_or_default();
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

fn run_cdist(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    if outs[0].numel() == 0 {
        return Ok(());
    }
    let n = outs[0].ndim();
    let batch = &outs[0].shape()[..n - 2];
    let spread = |t: &Tensor| t.expand_to(&Dims::new(batch).concat(&t.shape()[t.ndim() - 2..]));
    let (x, y) = (spread(x), spread(y));
    let sizes = [
        outs[0].shape()[n - 2] as usize,
        outs[0].shape()[n - 1] as usize,
        x.shape()[x.ndim() - 1] as usize,
    ];
    cpu::loss::distances(&outs[0], &x, &y, sizes, a.float(2)?, false)
}
