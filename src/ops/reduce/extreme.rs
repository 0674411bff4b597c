//! Extremes and their places, norms and log-sum-exp.

use crate::cpu::reduce::{Kind, Post};
use crate::dims::reduced_shape;
use crate::ops::core::args::Args;
use crate::ops::core::either::{self, arg_extreme, run_kind};
use crate::ops::core::op::{F, FMO, KernelBody, O, OpDef, Plan, Ret, X, kernel, old_compose};
use crate::ops::core::rules::dim_list;
use crate::ops::reduce::sums::{comparable, computable, dims_of, nonzero_dim};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, run1};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "max#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_extreme, |a, o| extreme_cpu(a, o, true))
            .cuda(|a, o| extreme_cpu(a, o, true)),
        "The largest element along a dimension and its index.",
    ),
    kernel(
        "min#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_extreme, |a, o| extreme_cpu(a, o, false))
            .cuda(|a, o| extreme_cpu(a, o, false)),
        "The smallest element along a dimension and its index.",
    ),
    kernel(
        "aminmax",
        "(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
        FMO | X,
        KernelBody::new(infer_aminmax, aminmax_cpu).cuda(aminmax_cpu),
        "The smallest and the largest element.",
    ),
    kernel(
        "argmax",
        "(Tensor self, int? dim=None, bool keepdim=False)",
        FMO | X,
        KernelBody::new(infer_arg, |a, o| arg_cpu(a, o, true)).cuda(|a, o| arg_cpu(a, o, true)),
        "The index of the largest element.",
    ),
    kernel(
        "argmin",
        "(Tensor self, int? dim=None, bool keepdim=False)",
        FMO | X,
        KernelBody::new(infer_arg, |a, o| arg_cpu(a, o, false)).cuda(|a, o| arg_cpu(a, o, false)),
        "The index of the smallest element.",
    ),
    kernel(
        "linalg.vector_norm",
        "(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        KernelBody::new(infer_norm, norm_cpu).cuda(norm_cpu),
        "The norm of the elements over dimensions as vectors.",
    ),
    old_compose(
        "norm",
        "(Tensor self, Scalar? p, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)",
        FMO | X,
        norm_number,
        "The norm of the elements over dimensions as vectors.",
    ),
    old_compose(
        "norm#str",
        "(Tensor self, str? p='fro', int[1]? dim=None, bool keepdim=False, dtype? dtype=None)",
        FMO | X,
        norm_named,
        "The Frobenius or nuclear norm.",
    ),
    kernel(
        "logsumexp",
        "(Tensor self, int[1] dim, bool keepdim=False)",
        FMO,
        KernelBody::new(infer_logsumexp, logsumexp_cpu),
        "The logarithm of the sum of exponentials over dimensions.",
    ),
    old_compose(
        "nanmean",
        "(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        FMO,
        nanmean,
        "The mean over dimensions without NaN.",
    ),
];

fn infer_extreme(a: &Args) -> Result<Plan> {
    let (t, name) = (a.tensor(0)?, a.name());
    let d = dims::wrap_dim(a.int(1)?, t.ndim())?;
    nonzero_dim(t, d, name)?;
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        "{name}(): does not support complex input"
    );
    comparable(if name == "max" { "max_cpu" } else { "min_cpu" }, t.dtype())?;
    let shape = reduced_shape(t.shape(), &[d], a.bool(2));
    Ok(Plan::many(&[(&shape, t.dtype()), (&shape, DType::I64)]))
}

fn extreme_cpu(a: &Args, outs: &[Tensor], max: bool) -> Result<()> {
    let t = a.tensor(0)?;
    let d = dims::wrap_dim(a.int(1)?, t.ndim())?;
    arg_extreme(Some(&outs[0]), &outs[1], t, &[d], max)
}

fn infer_aminmax(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let dims: SmallVec<[usize; 6]> = match a.opt_int(1) {
        Some(d) => {
            let d = dims::wrap_dim(d, t.ndim())?;
            ensure!(
                t.shape().get(d).is_none_or(|&n| n > 0),
                Index,
                "aminmax: Expected reduction dim {d} to have non-zero size."
            );
            std::iter::once(d).collect()
        }
        None => {
            ensure!(
                t.numel() > 0,
                Runtime,
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
            );
            (0..t.ndim()).collect()
        }
    };
    comparable("aminmax_cpu", t.dtype())?;
    let shape = reduced_shape(t.shape(), &dims, a.bool(2));
    Ok(Plan::many(&[(&shape, t.dtype()), (&shape, t.dtype())]))
}

fn aminmax_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let dims = dims_of(a, 1, t.ndim())?;
    run_kind(Kind::Min, &outs[0], t, &dims, 0.0, Post::None)?;
    run_kind(Kind::Max, &outs[1], t, &dims, 0.0, Post::None)
}

fn infer_arg(a: &Args) -> Result<Plan> {
    let (t, name) = (a.tensor(0)?, a.name());
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        "{name}(): does not support complex input"
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "{name}(): does not support bool input"
    );
    let dims: SmallVec<[usize; 6]> = match a.opt_int(1) {
        Some(d) => {
            let d = dims::wrap_dim(d, t.ndim())?;
            nonzero_dim(t, d, name)?;
            std::iter::once(d).collect()
        }
        None => {
            ensure!(
                t.numel() > 0,
                Index,
                "{name}(): Expected reduction dim to be specified for input.numel() == 0."
            );
            (0..t.ndim()).collect()
        }
    };
    comparable(
        if name == "argmax" {
            "argmax_cpu"
        } else {
            "argmin_cpu"
        },
        t.dtype(),
    )?;
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, a.bool(2)),
        DType::I64,
    ))
}

fn arg_cpu(a: &Args, outs: &[Tensor], max: bool) -> Result<()> {
    let t = a.tensor(0)?;
    arg_extreme(None, &outs[0], t, &dims_of(a, 1, t.ndim())?, max)
}

fn infer_norm(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let ord = a.scalar(1)?;
    let d = t.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    ensure!(
        !matches!(ord, Scalar::Complex(_)),
        Runtime,
        "linalg.vector_norm: Expected a non-complex scalar as the order of norm."
    );
    let ord = ord.to_f64();
    let dims = dims_of(a, 2, t.ndim())?;
    if (ord < 0.0 || ord == f64::INFINITY) && t.numel() == 0 {
        match a.opt_ints(2) {
            Some(given) if !given.is_empty() => {
                for &d in &dims {
                    ensure!(
                        t.shape().get(d).is_none_or(|&n| n > 0),
                        Runtime,
                        "linalg.vector_norm cannot compute the {ord} norm on the dimension {d}because this dimension is empty and the operation does not have an identity"
                    );
                }
            }
            _ => bail!(
                Runtime,
                "linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have an identity"
            ),
        }
    }
    if let Some(to) = a.dtype(4) {
        ensure!(
            to.is_float() || to.is_complex(),
            Runtime,
            "linalg.vector_norm: dtype should be floating point or complex, but got {}",
            to.scalar_type()
        );
        if to.is_complex() != d.is_complex() {
            let kind = if d.is_complex() { "complex" } else { "real" };
            bail!(
                Runtime,
                "linalg.vector_norm: dtype should be {kind} for {kind} inputs, but got {}",
                to.scalar_type()
            );
        }
        ensure!(
            crate::dtype::promote(d, to) == Some(to),
            Runtime,
            "linalg.vector_norm: the dtype of the input ({}) should be convertible without narrowing to the specified dtype ({})",
            d.scalar_type(),
            to.scalar_type()
        );
    }
    if d.is_storage_only() && d != DType::C32 {
        return Err(d.no_kernel("norm_cpu"));
    }
    let out = a.dtype(4).unwrap_or(d).to_real();
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, a.bool(3)),
        out,
    ))
}

fn norm_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let ord = a.scalar(1)?.to_f64();
    let dims = dims_of(a, 2, t.ndim())?;
    let real = if t.dtype().is_complex() {
        either::magnitudes(t)?
    } else {
        t.clone()
    };
    let real = match a.dtype(4) {
        Some(to) if to.to_real().size() > real.dtype().size() && real.dtype().size() >= 4 => {
            either::converted(&real, to.to_real())?
        }
        _ => real,
    };
    let (kind, post) = if ord == 2.0 {
        (Kind::SqSum, Post::Sqrt)
    } else if ord == 1.0 {
        (Kind::AbsSum, Post::None)
    } else if ord == 0.0 {
        (Kind::NonZero, Post::None)
    } else if ord == f64::INFINITY {
        (Kind::AbsMax, Post::None)
    } else if ord == f64::NEG_INFINITY {
        (Kind::AbsMin, Post::None)
    } else {
        (Kind::PowSum, Post::Pow(1.0 / ord))
    };
    run_kind(kind, &outs[0], &real, &dims, ord, post)
}

/// `norm` with a number.
fn norm_number(a: &Args) -> Result<Ret> {
    let p = a.opt_scalar(1).unwrap_or(Scalar::Int(2));
    vector_norm(a, p)
}

fn vector_norm(a: &Args, p: Scalar) -> Result<Ret> {
    let dim = a.opt_ints(2).cloned();
    run1!(
        "linalg.vector_norm",
        a.tensor(0)?,
        p,
        dim,
        a.bool(3),
        a.dtype(4)
    )
    .map(Ret::from)
}

/// `norm` with a name.
fn norm_named(a: &Args) -> Result<Ret> {
    match a.str(1) {
        None | Some("fro") => vector_norm(a, Scalar::Int(2)),
        Some("nuc") => {
            let t = a.tensor(0)?;
            let mut t = if let Some(d) = a.dtype(4) {
                t.to_dtype(d)?
            } else {
                t.clone()
            };
            let pair = match a.opt_ints(2) {
                Some(d) => dim_list(Some(d), t.ndim())?,
                None => (t.ndim().saturating_sub(2)..t.ndim()).collect(),
            };
            ensure!(
                t.ndim() >= 2,
                Runtime,
                "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
            );
            ensure!(
                pair.len() == 2,
                Runtime,
                "linalg.matrix_norm: dim must be a 2-tuple. Got {}",
                Dims::new(&pair.iter().map(|&d| d as i64).collect::<Vec<_>>())
            );
            let Ok(svd) = crate::ops::find("linalg.svdvals") else {
                bail!(
                    NotImplemented,
                    "norm(): the nuclear norm needs linalg.svdvals"
                )
            };
            let (ndim, order) = (t.ndim(), cpu::lines::order(t.ndim(), &pair));
            t = t.permuted(&order);
            let sigma =
                crate::ops::core::dispatch::run(svd, &[crate::ops::Arg::Tensor(&t)])?.one()?;
            let mut sum = run1!("sum#dim", &sigma, Dims::from([-1]), false)?;
            if a.bool(3) {
                let (lo, hi) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                sum = run1!("unsqueeze", &sum, lo as i64)?;
                sum = run1!("unsqueeze", &sum, hi as i64)?;
                debug_assert_eq!(sum.ndim(), ndim);
            }
            Ok(sum.into())
        }
        Some(other) => bail!(Runtime, "linalg.matrix_norm: Order {other} not supported."),
    }
}

fn infer_logsumexp(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let d = if t.dtype().is_integral(true) {
        crate::mode::default_dtype()
    } else {
        t.dtype()
    };
    if d == DType::C32 {
        return Err(d.no_kernel("exp_vml_cpu"));
    }
    computable("max_values_cpu", d)?;
    let dims = dims_of(a, 1, t.ndim())?;
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, a.bool(2)),
        d,
    ))
}

fn logsumexp_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::select::logsumexp(&outs[0], t, &dims_of(a, 1, t.ndim())?)
}

fn nanmean(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_float() || t.dtype().is_complex(),
        Runtime,
        "nanmean(): expected input to have floating point or complex dtype but got {}",
        t.dtype().scalar_type()
    );
    if let Some(d) = a.dtype(3).filter(|d| d.is_integral(true)) {
        bail!(
            Runtime,
            "nanmean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. Got: {}",
            d.scalar_type()
        );
    }
    let dim = a.opt_ints(1).cloned();
    let sum = run1!("nansum", t, dim.clone(), a.bool(2), a.dtype(3))?;
    let there = run1!("eq", t, t)?;
    let count = run1!("sum#dim", &there, dim, a.bool(2))?;
    run1!("div", &sum, &count).map(Ret::from)
}
