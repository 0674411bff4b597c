//! Scattering values to places along a dimension.

use crate::cpu::index::{self as cpu_index, Lay, Reduce};
use crate::dims::wrap_dim;
use crate::ops::core::args::Args;
use crate::ops::core::op::{FMIO, KernelBody, OpDef, Plan, X, kernel};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure, run1};

use crate::ops::index::along::{
    apart, at_least_1d, axis, is_index, long, out_of_bounds, size_at, start,
};
pub use crate::ops::index::getitem::{Index, Put, get_item, set_item};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "scatter",
        "(Tensor self, int dim, Tensor index, Tensor src)",
        FMIO | X,
        KernelBody::new(|a| infer_scatter(a, true), |a, o| scatter(a, o, None))
            .index_args(4)
            .updates(),
        "`self` with `src` written at `index` along a dimension.",
    ),
    kernel(
        "scatter#value",
        "(Tensor self, int dim, Tensor index, Scalar value)",
        FMIO | X,
        KernelBody::new(|a| infer_scatter(a, false), |a, o| scatter(a, o, None))
            .index_args(4)
            .updates(),
        "`self` with a number written at `index` along a dimension.",
    ),
    kernel(
        "scatter#reduced",
        "(Tensor self, int dim, Tensor index, Tensor src, *, str reduce)",
        FMIO | X,
        KernelBody::new(
            |a| infer_scatter_how(a, true),
            |a, o| scatter(a, o, a.str(4)),
        )
        .index_args(4)
        .updates(),
        "`self` with `src` added or multiplied at `index` along a dimension.",
    ),
    kernel(
        "scatter#value_reduce",
        "(Tensor self, int dim, Tensor index, Scalar value, *, str reduce)",
        FMIO | X,
        KernelBody::new(
            |a| infer_scatter_how(a, false),
            |a, o| scatter(a, o, a.str(4)),
        )
        .index_args(4)
        .updates(),
        "`self` with a number added or multiplied at `index` along a dimension.",
    ),
    kernel(
        "scatter_add",
        "(Tensor self, int dim, Tensor index, Tensor src)",
        FMIO | X,
        KernelBody::new(
            |a| infer_scatter(a, true),
            |a, o| scatter(a, o, Some("add")),
        )
        .index_args(4)
        .updates(),
        "`self` with `src` added at `index` along a dimension.",
    ),
    kernel(
        "scatter_reduce",
        "(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)",
        FMIO | X,
        KernelBody::new(infer_scatter_reduce, scatter_reduce)
            .index_args(4)
            .updates(),
        "`self` with `src` reduced into it at `index` along a dimension.",
    ),
];

fn infer_scatter(a: &Args, has_src: bool) -> Result<Plan> {
    let (t, index) = (a.tensor(0)?, a.tensor(2)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    if index.numel() > 0 {
        ensure!(
            is_index(index.dtype()),
            Runtime,
            "scatter(): Expected dtype int32/int64 for index"
        );
    }
    let src = if has_src { Some(a.tensor(3)?) } else { None };
    if let Some(src) = src {
        ensure!(
            src.dtype() == t.dtype(),
            Runtime,
            "scatter(): Expected self.dtype to be equal to src.dtype"
        );
    }
    if index.numel() > 0 {
        ensure!(
            t.ndim().max(1) == index.ndim().max(1),
            Runtime,
            "Index tensor must have the same number of dimensions as self tensor"
        );
        if let Some(src) = src {
            ensure!(
                src.ndim().max(1) == index.ndim().max(1),
                Runtime,
                "Index tensor must have the same number of dimensions as src tensor"
            );
        }
        let wrong = (0..t.ndim().max(1)).any(|d| {
            (d != dim && size_at(index, d) > size_at(t, d))
                || src.is_some_and(|s| size_at(index, d) > size_at(s, d))
        });
        if wrong {
            let tail = src
                .map(|s| format!(" and to be no larger size than src {}", s.shape()))
                .unwrap_or_default();
            bail!(
                Runtime,
                "Expected index {} to be no larger than self {} apart from dimension {dim}{tail}",
                index.shape(),
                t.shape()
            );
        }
    }
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn infer_scatter_how(a: &Args, has_src: bool) -> Result<Plan> {
    ensure!(
        matches!(a.str(4), Some("add" | "multiply")),
        Runtime,
        "reduce argument must be either add or multiply."
    );
    infer_scatter(a, has_src)
}

fn infer_scatter_reduce(a: &Args) -> Result<Plan> {
    let how = a.str(4).unwrap_or("");
    ensure!(
        matches!(how, "sum" | "prod" | "mean" | "amax" | "amin"),
        Runtime,
        "reduce argument must be either sum, prod, mean, amax or amin, got {how}"
    );
    let plan = infer_scatter(a, true)?;
    plan.outs[0].dtype.check_kernel(
        !plan.outs[0].dtype.is_complex() || matches!(how, "sum" | "prod"),
        format_args!("scatter_reduce_{how}"),
    )?;
    Ok(plan)
}

/// The tensor or number at a position as a tensor of the result's type.
pub(in crate::ops) fn value_at(a: &Args, i: usize, out: &Tensor) -> Result<Tensor> {
    match a.opt_tensor(i) {
        Some(t) => apart(t, out),
        None => Tensor::scalar(a.scalar(i)?, out.dtype()),
    }
}

pub(in crate::ops) fn scatter(a: &Args, outs: &[Tensor], how: Option<&str>) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    if a.tensor(2)?.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(a.tensor(2)?, out)?);
    let src = value_at(a, 3, out)?;
    let from = source_lay(&src, a.opt_tensor(3).is_none(), index.ndim());
    let lay = Lay::of(&index, index.shape());
    let bad = match how {
        None => cpu_index::scatter(
            index.shape(),
            &Lay::without(out, dim),
            &from,
            &lay,
            out.dtype().size(),
            axis(out, dim, false),
        ),
        Some(how) => {
            let how = if how == "add" {
                Reduce::Add
            } else {
                Reduce::Mul
            };
            reduce_rows(
                out,
                dim,
                index.shape(),
                &lay,
                &src,
                a.opt_tensor(3).is_none(),
                how,
            )?
        }
    };
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(out, dim))))
}

pub(in crate::ops) fn apart_index(index: &Tensor, out: &Tensor) -> Result<Tensor> {
    if index.shares_storage(out) {
        cpu::copy::converted(index, DType::I64)
    } else {
        long(index)
    }
}

pub(in crate::ops) fn source_lay(src: &Tensor, number: bool, ndim: usize) -> Lay {
    let strides = if number || src.ndim() == 0 {
        Dims::filled(ndim, 0)
    } else {
        src.strides().clone()
    };
    Lay {
        ptr: src.data_ptr(),
        strides,
    }
}

/// Works on a 16-bit result in single precision.
fn widened(
    out: &Tensor,
    src: &Tensor,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<Option<i64>>,
) -> Result<Option<i64>> {
    let wide = cpu::copy::converted(out, DType::F32)?;
    let bad = f(&wide, &cpu::copy::converted(src, DType::F32)?)?;
    cpu::copy::copy(out, &wide)?;
    Ok(bad)
}

/// Scatters and reduces; 16-bit floats go through a widened copy of the result.
pub(in crate::ops) fn reduce_rows(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    number: bool,
    how: Reduce,
) -> Result<Option<i64>> {
    if out.dtype().is_reduced_float() {
        return widened(out, src, |out, src| {
            reduce_rows(out, dim, shape, index, src, number, how)
        });
    }
    let from = source_lay(src, number, shape.len());
    cpu_index::scatter_reduce(
        how,
        out.dtype(),
        shape,
        &Lay::without(out, dim),
        &from,
        index,
        axis(out, dim, false),
    )
}

/// `scatter_reduce` and `index_reduce`: starts from what is there or from the neutral element, reduces, and divides for a mean.
pub(in crate::ops) fn reduce_into(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    how: &str,
    include_self: bool,
) -> Result<Option<i64>> {
    if out.dtype().is_reduced_float() {
        return widened(out, src, |out, src| {
            reduce_into(out, dim, shape, index, src, how, include_self)
        });
    }
    let item = out.dtype().size();
    if !include_self {
        let neutral = Tensor::scalar(Scalar::Int(i64::from(how == "prod")), out.dtype())?;
        // For extremes any of the new elements will do as the first one.
        let extreme = matches!(how, "amax" | "amin");
        let from = source_lay(if extreme { src } else { &neutral }, !extreme, shape.len());
        if let Some(bad) = cpu_index::scatter(
            shape,
            &Lay::without(out, dim),
            &from,
            index,
            item,
            axis(out, dim, false),
        ) {
            return Ok(Some(bad));
        }
    }
    let kind = match how {
        "prod" => Reduce::Mul,
        "amax" => Reduce::Max,
        "amin" => Reduce::Min,
        _ => Reduce::Add,
    };
    if let Some(bad) = reduce_rows(out, dim, shape, index, src, false, kind)? {
        return Ok(Some(bad));
    }
    if how == "mean" {
        let counts = Tensor::empty(out.shape(), DType::I64, crate::Device::CPU)?;
        cpu::fill(&counts, Scalar::Int(i64::from(include_self)))?;
        let one = Tensor::scalar(Scalar::Int(1), DType::I64)?;
        reduce_rows(&counts, dim, shape, index, &one, true, Reduce::Add)?;
        cpu::slice_mut::<i64>(&counts)
            .iter_mut()
            .for_each(|c| *c = (*c).max(1));
        let quotient = if out.dtype().is_integral(true) {
            run1!("floor_divide", out, &counts)?
        } else {
            run1!("div", out, &counts)?
        };
        cpu::copy::copy(out, &quotient)?;
    }
    Ok(None)
}

fn scatter_reduce(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    if a.tensor(2)?.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(a.tensor(2)?, out)?);
    let src = apart(a.tensor(3)?, out)?;
    let bad = reduce_into(
        out,
        dim,
        index.shape(),
        &Lay::of(&index, index.shape()),
        &src,
        a.str(4).unwrap_or("sum"),
        a.bool(5),
    )?;
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(out, dim))))
}
