//! Order statistics: medians, k-th values, quantiles.

use crate::cpu::select::{self, Pick};
use crate::dims::reduced_shape;
use crate::dims::wrap_dim;
use crate::ops::core::args::Args;
use crate::ops::core::op::{FM, FMO, KernelBody, OpDef, Plan, X, kernel};
use crate::ops::core::rules::dim_list;
use crate::ops::reduce::sums::nonzero_dim;
use crate::{DType, Result, Scalar, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "median",
        "(Tensor self)",
        FM,
        KernelBody::new(infer_median_all, |a, o| pick_all(a, o, Pick::Median)),
        "The lower median of all elements.",
    ),
    kernel(
        "median#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(
            |a| infer_pick(a, 1, 2),
            |a, o| pick_cpu(a, o, 1, Pick::Median),
        ),
        "The lower median along a dimension and its index.",
    ),
    kernel(
        "nanmedian",
        "(Tensor self)",
        FM,
        KernelBody::new(infer_median_all, |a, o| pick_all(a, o, Pick::NanMedian)),
        "The lower median of all elements but NaN.",
    ),
    kernel(
        "nanmedian#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(
            |a| infer_pick(a, 1, 2),
            |a, o| pick_cpu(a, o, 1, Pick::NanMedian),
        ),
        "The lower median without NaN along a dimension and its index.",
    ),
    kernel(
        "mode",
        "(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(
            |a| infer_pick(a, 1, 2),
            |a, o| pick_cpu(a, o, 1, Pick::Mode),
        ),
        "The most frequent element along a dimension and an index of it.",
    ),
    kernel(
        "kthvalue",
        "(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_kth, |a, o| {
            pick_cpu(a, o, 2, Pick::Kth(a.int(1)?.max(0) as usize))
        }),
        "The k-th smallest element along a dimension and its index.",
    ),
    kernel(
        "quantile",
        "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        KernelBody::new(infer_quantile, quantile_cpu),
        "Quantiles of all elements or along a dimension.",
    ),
    kernel(
        "quantile#scalar",
        "(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        KernelBody::new(infer_quantile, quantile_cpu),
        "A quantile of all elements or along a dimension.",
    ),
    kernel(
        "nanquantile",
        "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        KernelBody::new(infer_quantile, quantile_cpu),
        "Quantiles without NaN.",
    ),
    kernel(
        "nanquantile#scalar",
        "(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        KernelBody::new(infer_quantile, quantile_cpu),
        "A quantile without NaN.",
    ),
];

fn ordered(kernel: &str, d: DType) -> Result<()> {
    if d == DType::Bool {
        Err(d.no_kernel(kernel))
    } else {
        crate::ops::reduce::sums::comparable(kernel, d)
    }
}

fn infer_median_all(a: &Args) -> Result<Plan> {
    let d = a.tensor(0)?.dtype();
    ordered("median_cpu", d)?;
    Ok(Plan::contiguous(&[], d))
}

fn pick_all(a: &Args, outs: &[Tensor], what: Pick) -> Result<()> {
    let t = a.tensor(0)?;
    select::choose(&outs[0], None, t, &(0..t.ndim()).collect::<Vec<_>>(), what)
}

fn infer_pick(a: &Args, dim: usize, keepdim: usize) -> Result<Plan> {
    let (t, name) = (a.tensor(0)?, a.name());
    let d = wrap_dim(a.int(dim)?, t.ndim())?;
    nonzero_dim(t, d, if name == "nanmedian" { "median" } else { name })?;
    match name {
        "mode" => crate::ops::reduce::sums::comparable("mode_cpu", t.dtype())?,
        "kthvalue" => ordered("kthvalue_cpu", t.dtype())?,
        _ => ordered("median_out", t.dtype())?,
    }
    let shape = reduced_shape(t.shape(), &[d], a.bool(keepdim));
    Ok(Plan::many(&[(&shape, t.dtype()), (&shape, DType::I64)]))
}

fn infer_kth(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (k, d) = (a.int(1)?, wrap_dim(a.int(2)?, t.ndim())?);
    nonzero_dim(t, d, "kthvalue")?;
    let n = t.shape().get(d).copied().unwrap_or(1);
    ensure!(
        k >= 1 && k <= n,
        Runtime,
        "kthvalue(): selected number k out of range for dimension {d}"
    );
    infer_pick(a, 2, 3)
}

fn pick_cpu(a: &Args, outs: &[Tensor], dim: usize, what: Pick) -> Result<()> {
    let t = a.tensor(0)?;
    if t.numel() == 0 {
        return Ok(());
    }
    select::choose(
        &outs[0],
        Some(&outs[1]),
        t,
        &[wrap_dim(a.int(dim)?, t.ndim())?],
        what,
    )
}

fn infer_quantile(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    ensure!(
        t.numel() > 0,
        Runtime,
        "quantile() input tensor must be non-empty"
    );
    ensure!(
        matches!(t.dtype(), DType::F32 | DType::F64),
        Runtime,
        "quantile() input tensor must be either float or double dtype"
    );
    let mut lead: Option<i64> = None;
    match a.opt_tensor(1) {
        Some(q) => {
            ensure!(
                q.ndim() <= 1,
                Runtime,
                "quantile() q must be a scalar or 1D tensor"
            );
            ensure!(
                q.dtype() == t.dtype(),
                Runtime,
                "quantile() q tensor must be same dtype as the input tensor"
            );
            if q.ndim() == 1 {
                lead = Some(q.numel());
            }
            if q.device().is_cpu() {
                let q = cpu::copy::dense(q, DType::F64)?;
                ensure!(
                    cpu::slice::<f64>(&q)
                        .iter()
                        .all(|x| (0.0..=1.0).contains(x)),
                    Runtime,
                    "quantile() q values must be in the range [0, 1]"
                );
            }
        }
        None => {
            let q = a.float(1)?;
            ensure!(
                (0.0..=1.0).contains(&q),
                Runtime,
                "quantile() q must be in the range [0, 1] but got {q}"
            );
        }
    }
    let how = a.str(4).unwrap_or("linear");
    ensure!(
        matches!(how, "linear" | "lower" | "higher" | "midpoint" | "nearest"),
        Runtime,
        "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {how}"
    );
    let dims = match a.opt_int(2) {
        Some(d) => dim_list(Some(&[d]), t.ndim())?,
        None => (0..t.ndim()).collect(),
    };
    let kept = reduced_shape(t.shape(), &dims, a.bool(3));
    Ok(match lead {
        None => Plan::contiguous(&kept, t.dtype()),
        Some(n) => {
            // Computed with the quantiles last and moved to the front.
            let strides = crate::dims::contiguous_strides(&kept.concat(&[n]));
            let k = strides.len() - 1;
            Plan::one(
                kept.inserted(0, n),
                strides.removed(k).inserted(0, strides[k]),
                t.dtype(),
            )
        }
    })
}

fn quantile_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let dims: Vec<usize> = match a.opt_int(2) {
        Some(d) => vec![wrap_dim(d, t.ndim())?],
        None => (0..t.ndim()).collect(),
    };
    let (q, lead) = match a.opt_tensor(1) {
        Some(q) => (cpu::copy::dense(q, t.dtype())?, q.ndim() == 1),
        None => (
            Tensor::scalar(Scalar::Float(a.float(1)?), t.dtype())?,
            false,
        ),
    };
    let out = if lead {
        outs[0].permuted(&cpu::lines::order(outs[0].ndim(), &[0]))
    } else {
        outs[0].view_with(
            outs[0].shape().concat(&[1]),
            outs[0].strides().concat(&[1]),
            outs[0].offset(),
        )
    };
    cpu::quantile::quantile(
        &out,
        t,
        &q,
        &dims,
        a.str(4).unwrap_or("linear"),
        a.name() == "nanquantile",
    )
}
