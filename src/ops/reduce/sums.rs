//! Reductions: sums, products, truth, counts.

use crate::cpu::reduce::{Kind, Post};
use crate::dims::reduced_shape;
use crate::ops::core::args::Args;
use crate::ops::core::either::{self, run_kind};
use crate::ops::core::op::{
    Body, FM, FMO, KernelBody, OpDef, Plan, Ret, Row, X, kernel, old_compose,
};
use crate::ops::core::rules::{dim_list, sum_dtype};
use crate::{DType, Result, Scalar, Tensor, bail, ensure, run1};
use smallvec::SmallVec;
use torchlike_macros::operators;

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
        flops: None,
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
#[operators]
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
    old_compose(
        "max#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| run1!("maximum", a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The larger of two elements; NaN if either is.",
    ),
    reduce_row!(Min "min", min_all, (NONE, NONE, NONE), FMO, "(Tensor self)", "The smallest element."),
    old_compose(
        "min#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| run1!("minimum", a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The smaller of two elements; NaN if either is.",
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

pub(in crate::ops) fn computable(kernel: &str, d: DType) -> Result<()> {
    if d.is_storage_only() || d == DType::C32 {
        Err(d.no_kernel(kernel))
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
        Err(d.no_kernel(kernel))
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
        return Err(out.no_kernel("nansum_cpu"));
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
        Some(crate::ops::Arg::Ints(d)) if !d.is_empty() => {
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
pub(in crate::ops) fn dims_of(a: &Args, at: usize, ndim: usize) -> Result<SmallVec<[usize; 6]>> {
    match a.values.get(at) {
        Some(crate::ops::Arg::Ints(d)) => dim_list(Some(d), ndim),
        Some(crate::ops::Arg::Int(d)) => dim_list(Some(&[*d]), ndim),
        Some(crate::ops::Arg::Scalar(d)) => dim_list(Some(&[d.to_i64()]), ndim),
        _ => dim_list(None, ndim),
    }
}

pub(in crate::ops) fn infer(a: &Args) -> Result<Plan> {
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
        Some(crate::ops::Arg::Ints(d)) if d.is_empty() => SmallVec::new(),
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
    let all = matches!(a.values[1], crate::ops::Arg::None);
    if all
        && (matches!(t.dtype(), DType::U16 | DType::U32 | DType::U64)
            || t.dtype().is_storage_only())
        && t.dtype() != DType::C32
    {
        return Err(t.dtype().no_kernel("nonzero_count_cpu"));
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
