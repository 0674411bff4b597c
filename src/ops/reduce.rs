//! Reductions: sums, products, extremes, truth, norms.

use super::args::Args;
use super::either::{self, arg_extreme, run_kind};
use super::op::{Body, F, FM, FMO, KernelBody, O, OpDef, Plan, Ret, Row, X, compose, kernel};
use super::rules::{dim_list, reduced_shape, sum_dtype};
use crate::cpu::reduce::{Kind, Post};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure, err, run1};
use smallvec::SmallVec;

/// What tells one reduction from another. Positions are those of parameters; [`NONE`] where there is none.
pub struct ReduceRow {
    /// How elements are folded.
    pub kind: Kind,
    /// The dtype of the result, and checks: arguments, input dtype, dtype asked for.
    pub types: fn(&Args, DType, Option<DType>) -> Result<DType>,
    /// Position of the dimensions.
    pub dim: usize,
    /// Position of `keepdim`.
    pub keepdim: usize,
    /// Position of `dtype`.
    pub dtype: usize,
}

/// No such parameter.
pub const NONE: usize = usize::MAX;

/// The table entry of a reduction.
const fn def(
    name: &'static str,
    schema: &'static str,
    forms: u8,
    row: &'static ReduceRow,
    doc: &'static str,
) -> OpDef {
    OpDef {
        name,
        schema,
        forms,
        body: Body::Kernel(
            KernelBody::new(infer, run_cpu)
                .cuda(run_cpu)
                .row(Row::Reduce(row)),
        ),
        doc,
    }
}

macro_rules! reduce_row {
    ($kind:ident $name:literal, $types:ident, ($dim:expr, $keep:expr, $dtype:expr), $forms:expr, $schema:literal, $doc:literal) => {{
        static ROW: ReduceRow = ReduceRow {
            kind: Kind::$kind,
            types: $types,
            dim: $dim,
            keepdim: $keep,
            dtype: $dtype,
        };
        def($name, $schema, $forms, &ROW, $doc)
    }};
}

/// The family's rows.
pub static OPS: &[OpDef] = &[
    reduce_row!(Sum "sum", sum_types, (NONE, NONE, 1), FM, "(Tensor self, *, dtype? dtype=None)", "The sum of all elements."),
    reduce_row!(Sum "sum#dim", sum_types, (1, 2, 3), FMO, "(Tensor self, int[1]? dim, bool keepdim=False, *, dtype? dtype=None)", "The sum over dimensions."),
    reduce_row!(Sum "mean", mean_types, (NONE, NONE, 1), FMO, "(Tensor self, *, dtype? dtype=None)", "The mean of all elements."),
    reduce_row!(Sum "mean#dim", mean_types, (1, 2, 3), FMO, "(Tensor self, int[1]? dim, bool keepdim=False, *, dtype? dtype=None)", "The mean over dimensions."),
    reduce_row!(Prod "prod", prod_types, (NONE, NONE, 1), FM, "(Tensor self, *, dtype? dtype=None)", "The product of all elements."),
    reduce_row!(Prod "prod#dim", prod_types, (1, 2, 3), FMO, "(Tensor self, int dim, bool keepdim=False, *, dtype? dtype=None)", "The product over a dimension."),
    reduce_row!(NanSum "nansum", nansum_types, (1, 2, 3), FMO, "(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)", "The sum over dimensions, NaN counted as 0."),
    reduce_row!(Max "amax", max_values, (1, 2, NONE), FMO | X, "(Tensor self, int[1] dim=[], bool keepdim=False)", "The largest element over dimensions."),
    reduce_row!(Min "amin", min_values, (1, 2, NONE), FMO | X, "(Tensor self, int[1] dim=[], bool keepdim=False)", "The smallest element over dimensions."),
    reduce_row!(Max "max", max_all, (NONE, NONE, NONE), FMO, "(Tensor self)", "The largest element."),
    compose(
        "max#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| run1!("maximum", a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The larger of two elements; NaN if either is.",
    ),
    kernel(
        "max#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_extreme, |a, o| extreme_cpu(a, o, true))
            .cuda(|a, o| extreme_cpu(a, o, true)),
        "The largest element along a dimension and its index.",
    ),
    reduce_row!(Min "min", min_all, (NONE, NONE, NONE), FMO, "(Tensor self)", "The smallest element."),
    compose(
        "min#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| run1!("minimum", a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The smaller of two elements; NaN if either is.",
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
        "any",
        "(Tensor self)",
        FMO | X,
        KernelBody::new(
            |a| truth_rule(a, &[], false),
            |a, o| truth_cpu(a, o, Kind::Max),
        )
        .cuda(|a, o| truth_cpu(a, o, Kind::Max)),
        "True if any element is not zero.",
    ),
    kernel(
        "any#dim",
        "(Tensor self, int dim, bool keepdim=False)",
        FMO | X,
        KernelBody::new(
            |a| truth_rule(a, &[a.int(1)?], a.bool(2)),
            |a, o| truth_cpu(a, o, Kind::Max),
        )
        .cuda(|a, o| truth_cpu(a, o, Kind::Max)),
        "True where any element along a dimension is not zero.",
    ),
    kernel(
        "any#dims",
        "(Tensor self, int[]? dim=None, bool keepdim=False)",
        FMO | X,
        KernelBody::new(infer_truth_dims, |a, o| truth_cpu(a, o, Kind::Max))
            .cuda(|a, o| truth_cpu(a, o, Kind::Max)),
        "True where any element over dimensions is not zero.",
    ),
    kernel(
        "all",
        "(Tensor self)",
        FMO | X,
        KernelBody::new(
            |a| truth_rule(a, &[], false),
            |a, o| truth_cpu(a, o, Kind::Min),
        )
        .cuda(|a, o| truth_cpu(a, o, Kind::Min)),
        "True if no element is zero.",
    ),
    kernel(
        "all#dim",
        "(Tensor self, int dim, bool keepdim=False)",
        FMO | X,
        KernelBody::new(
            |a| truth_rule(a, &[a.int(1)?], a.bool(2)),
            |a, o| truth_cpu(a, o, Kind::Min),
        )
        .cuda(|a, o| truth_cpu(a, o, Kind::Min)),
        "True where no element along a dimension is zero.",
    ),
    kernel(
        "all#dims",
        "(Tensor self, int[]? dim=None, bool keepdim=False)",
        FMO | X,
        KernelBody::new(infer_truth_dims, |a, o| truth_cpu(a, o, Kind::Min))
            .cuda(|a, o| truth_cpu(a, o, Kind::Min)),
        "True where no element over dimensions is zero.",
    ),
    kernel(
        "count_nonzero",
        "(Tensor self, int? dim=None)",
        FM,
        KernelBody::new(infer_count, count_cpu).cuda(count_cpu),
        "How many elements are not zero.",
    ),
    kernel(
        "count_nonzero#dims",
        "(Tensor self, int[] dim)",
        FM,
        KernelBody::new(infer_count, count_cpu).cuda(count_cpu),
        "How many elements over dimensions are not zero.",
    ),
    kernel(
        "linalg.vector_norm",
        "(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        KernelBody::new(infer_norm, norm_cpu).cuda(norm_cpu),
        "The norm of the elements over dimensions as vectors.",
    ),
    compose(
        "norm",
        "(Tensor self, Scalar? p, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)",
        FMO | X,
        norm_number,
        "The norm of the elements over dimensions as vectors.",
    ),
    compose(
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
    compose(
        "nanmean",
        "(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        FMO,
        nanmean,
        "The mean over dimensions without NaN.",
    ),
];

fn row_of(a: &Args) -> Result<&'static ReduceRow> {
    match a.op.def.body {
        Body::Kernel(KernelBody {
            row: Row::Reduce(r),
            ..
        }) => Ok(r),
        _ => bail!(Runtime, "{} is no reduction", a.name()),
    }
}

/// PyTorch's error for a dtype that a kernel does not know.
#[cold]
#[must_use]
pub fn unknown(kernel: &str, d: DType) -> crate::Error {
    err!(
        NotImplemented,
        "\"{kernel}\" not implemented for '{}'",
        d.scalar_type()
    )
}

fn computable(kernel: &str, d: DType) -> Result<()> {
    if d.is_storage_only() || d == DType::C32 {
        Err(unknown(kernel, d))
    } else {
        Ok(())
    }
}

/// Refuses the dtypes that PyTorch has no comparing kernels for.
///
/// # Errors
/// For unsigned integers beyond 8 bits, complex and storage-only types.
pub fn comparable(kernel: &str, d: DType) -> Result<()> {
    let unsigned = matches!(d, DType::U16 | DType::U32 | DType::U64);
    if unsigned || d.is_complex() || d.is_storage_only() {
        Err(unknown(kernel, d))
    } else {
        Ok(())
    }
}

fn sum_types(_: &Args, d: DType, asked: Option<DType>) -> Result<DType> {
    let out = sum_dtype(d, asked);
    computable("sum_cpu", out).map(|()| out)
}

fn mean_types(_: &Args, d: DType, asked: Option<DType>) -> Result<DType> {
    let out = asked.unwrap_or(d);
    if out.is_integral(true) {
        let what = if asked.is_some() { "Optional" } else { "Input" };
        bail!(
            Runtime,
            "mean(): could not infer output dtype. {what} dtype must be either a floating point or complex dtype. Got: {}",
            out.scalar_type()
        );
    }
    computable("sum_cpu", out).map(|()| out)
}

fn prod_types(_: &Args, d: DType, asked: Option<DType>) -> Result<DType> {
    let out = sum_dtype(d, asked);
    computable("prod_out_cpu", out).map(|()| out)
}

fn nansum_types(_: &Args, d: DType, asked: Option<DType>) -> Result<DType> {
    ensure!(
        !d.is_complex(),
        Runtime,
        "nansum on CPU does not support complex inputs"
    );
    let out = sum_dtype(d, asked);
    if out.is_complex() {
        return Err(unknown("nansum_cpu", out));
    }
    computable("nansum_cpu", out).map(|()| out)
}

fn max_values(a: &Args, d: DType, _: Option<DType>) -> Result<DType> {
    some_elements(a)?;
    comparable("max_values_cpu", d).map(|()| d)
}

fn min_values(a: &Args, d: DType, _: Option<DType>) -> Result<DType> {
    some_elements(a)?;
    comparable("min_values_cpu", d).map(|()| d)
}

fn max_all(a: &Args, d: DType, _: Option<DType>) -> Result<DType> {
    some_elements(a)?;
    comparable("max_all", d).map(|()| d)
}

fn min_all(a: &Args, d: DType, _: Option<DType>) -> Result<DType> {
    some_elements(a)?;
    comparable("min_all", d).map(|()| d)
}

/// An extreme of nothing does not exist.
fn some_elements(a: &Args) -> Result<()> {
    let t = a.tensor(0)?;
    if t.numel() > 0 {
        return Ok(());
    }
    let name = a.name();
    match a.values.get(1) {
        Some(super::Arg::Ints(d)) if !d.is_empty() => {
            for d in dim_list(Some(d), t.ndim())? {
                nonzero_dim(t, d, name)?;
            }
            Ok(())
        }
        _ => bail!(
            Runtime,
            "{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        ),
    }
}

/// Refuses to look for an element along an empty dimension.
///
/// # Errors
/// PyTorch's `IndexError`.
pub fn nonzero_dim(t: &Tensor, d: usize, name: &str) -> Result<()> {
    ensure!(
        t.shape().get(d).is_none_or(|&n| n > 0),
        Index,
        "{name}(): Expected reduction dim {d} to have non-zero size."
    );
    Ok(())
}

/// The dimensions of a call; a missing or empty list means all.
fn dims_of(a: &Args, at: usize, ndim: usize) -> Result<SmallVec<[usize; 6]>> {
    match a.values.get(at) {
        Some(super::Arg::Ints(d)) => dim_list(Some(d), ndim),
        Some(super::Arg::Int(d)) => dim_list(Some(&[*d]), ndim),
        Some(super::Arg::Scalar(d)) => dim_list(Some(&[d.to_i64()]), ndim),
        _ => dim_list(None, ndim),
    }
}

fn infer(a: &Args) -> Result<Plan> {
    let row = row_of(a)?;
    let t = a.tensor(0)?;
    let dims = dims_of(a, row.dim, t.ndim())?;
    let asked = if row.dtype == NONE {
        None
    } else {
        a.dtype(row.dtype)
    };
    let dtype = (row.types)(a, t.dtype(), asked)?;
    let keep = row.keepdim != NONE && a.bool(row.keepdim);
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, keep),
        dtype,
    ))
}

fn run_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let row = row_of(a)?;
    let t = a.tensor(0)?;
    let dims = dims_of(a, row.dim, t.ndim())?;
    let out = &outs[0];
    let (from, to) = (t.dtype(), out.dtype());
    let count: i64 = dims
        .iter()
        .filter(|&&d| d < t.ndim())
        .map(|&d| t.shape()[d])
        .product();
    let post = if a.name() == "mean" {
        Post::Over(count as f64)
    } else {
        Post::None
    };
    let (mut kind, mut t) = (row.kind, t.clone());
    if kind == Kind::NanSum && !from.is_float() {
        kind = Kind::Sum;
    }
    if to == DType::Bool && kind == Kind::Sum {
        kind = Kind::Max;
    } else if to == DType::Bool && kind == Kind::Prod {
        kind = Kind::Min;
    }
    // Elements are converted first, as the sum of truncated numbers is not the truncated sum.
    let as_is = from == to
        || from.is_integral(true) && to == DType::I64
        || from.is_reduced_float() && !from.is_storage_only() && to == DType::F32;
    if !as_is {
        t = either::converted(&t, to)?;
    }
    if to == DType::Bool {
        let out8 = out.reinterpret(
            DType::U8,
            out.shape().clone(),
            out.strides().clone(),
            out.offset(),
        );
        if t.numel() == 0 {
            return either::fill(out, Scalar::Bool(kind == Kind::Min));
        }
        return run_kind(kind, &out8, &t, &dims, 0.0, post);
    }
    run_kind(kind, out, &t, &dims, 0.0, post)
}

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

/// Rule of any and all: u8 stays, everything else gives bool; no dimensions mean all.
fn truth_rule(a: &Args, dims: &[i64], keep: bool) -> Result<Plan> {
    let t = a.tensor(0)?;
    let dims = dim_list(Some(dims), t.ndim())?;
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, keep),
        truth_dtype(t.dtype()),
    ))
}

fn truth_dtype(d: DType) -> DType {
    if d == DType::U8 {
        DType::U8
    } else {
        DType::Bool
    }
}

/// A given but empty list of dimensions reduces nothing here, unlike elsewhere.
fn infer_truth_dims(a: &Args) -> Result<Plan> {
    match a.opt_ints(1) {
        Some(d) if d.is_empty() => Ok(Plan::contiguous(
            a.tensor(0)?.shape(),
            truth_dtype(a.tensor(0)?.dtype()),
        )),
        Some(d) => truth_rule(a, &d.clone(), a.bool(2)),
        None => truth_rule(a, &[], a.bool(2)),
    }
}

fn truth_cpu(a: &Args, outs: &[Tensor], kind: Kind) -> Result<()> {
    let t = a.tensor(0)?;
    let dims = match a.values.get(1) {
        Some(super::Arg::Ints(d)) if d.is_empty() => SmallVec::new(),
        _ => dims_of(a, 1, t.ndim())?,
    };
    if t.numel() == 0 {
        return either::fill(&outs[0], Scalar::Bool(kind == Kind::Min));
    }
    // The host has folds for truth itself; a GPU compares truth values.
    let host = t.device().is_cpu();
    let kind = match kind {
        Kind::Max if host => Kind::Any,
        Kind::Min if host => Kind::All,
        other => other,
    };
    let truth = if host || t.dtype() == DType::Bool {
        t.clone()
    } else {
        either::converted(t, DType::Bool)?
    };
    let out = outs[0].reinterpret(
        DType::U8,
        outs[0].shape().clone(),
        outs[0].strides().clone(),
        outs[0].offset(),
    );
    run_kind(kind, &out, &truth, &dims, 0.0, Post::None)
}

fn infer_count(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let all = matches!(a.values[1], super::Arg::None);
    if all
        && (matches!(t.dtype(), DType::U16 | DType::U32 | DType::U64)
            || t.dtype().is_storage_only())
        && t.dtype() != DType::C32
    {
        return Err(unknown("nonzero_count_cpu", t.dtype()));
    }
    let dims = dims_of(a, 1, t.ndim())?;
    Ok(Plan::contiguous(
        &reduced_shape(t.shape(), &dims, false),
        DType::I64,
    ))
}

fn count_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let truth = if t.dtype() == DType::Bool {
        t.clone()
    } else {
        either::converted(t, DType::Bool)?
    };
    run_kind(
        Kind::Sum,
        &outs[0],
        &truth,
        &dims_of(a, 1, t.ndim())?,
        0.0,
        Post::None,
    )
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
        return Err(unknown("norm_cpu", d));
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
            let Ok(svd) = super::find("linalg.svdvals") else {
                bail!(
                    NotImplemented,
                    "norm(): the nuclear norm needs linalg.svdvals"
                )
            };
            let (ndim, order) = (t.ndim(), cpu::lines::order(t.ndim(), &pair));
            t = t.permuted(&order);
            let sigma = super::dispatch::run(svd, &[super::Arg::Tensor(&t)])?.one()?;
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
        return Err(unknown("exp_vml_cpu", d));
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
