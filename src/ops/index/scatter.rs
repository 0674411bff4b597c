//! Scattering values to places along a dimension.

use crate::cpu::index::{self as cpu_index, Lay, Reduce};
use crate::cpu::view::at_least_1d;
use crate::dims::wrap_dim;
use crate::ops::core::fits::check_fits;
use crate::ops::core::helpers;
use crate::ops::core::op::{Cast, FMIO, OpDef, Plan, X, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::index::along::{apart, axis, is_index, long, out_of_bounds, size_at, start};
use crate::ops::index::beside::reduce_beside;
use crate::ops::index::counts::counts;
use crate::ops::index::room::{self, of_halves, wide_of};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "scatter",
        "(Tensor self, int dim, Tensor index, Tensor src)",
        FMIO | X,
        body!(
            |a| scatter_rule(a.input, a.dim, a.index, Some(a.src)),
            |a, dim, outs| scatter(a.input, *dim, a.index, a.src.into(), None, &outs[0]),
            cuda: |a, dim, outs| scatter_beside(a.input, *dim, a.index, a.src.into(), None, &outs[0]),
            scratch: |a, dim, outs, room| room::scatter(room, &outs[0], *dim, a.index, a.src.into(), None)
        )
        .index_args(4)
        .updates(),
        "`self` with `src` written at `index` along a dimension.",
    )
    .alike(1).apart(0b1100)
    .samples(
        "f32[10, 5], 0, i64[5, 5].below(10), f32[5, 5]; \
         i64[10, 5], 0, i64[5, 5].below(10), i64[5, 5]",
    )
    .grad("self: grad.scatter(dim, index, 0); src: grad.gather(dim, index); jvp: linear"),
    kernel(
        "scatter#value",
        "(Tensor self, int dim, Tensor index, Scalar value)",
        FMIO | X,
        body!(
            |a| {
                check_fits(a.value, a.input.dtype())?;
                scatter_rule(a.input, a.dim, a.index, None)
            },
            |a, dim, outs| scatter(a.input, *dim, a.index, a.value.into(), None, &outs[0]),
            cuda: |a, dim, outs| scatter_beside(a.input, *dim, a.index, a.value.into(), None, &outs[0]),
            scratch: |a, dim, outs, room| room::scatter(room, &outs[0], *dim, a.index, a.value.into(), None)
        )
        .index_args(4)
        .updates(),
        "`self` with a number written at `index` along a dimension.",
    )
    .alike(1).apart(0b100)
    .samples("f32[3, 4], 1, i64([[0], [2], [3]]), 1.5; i64[4], 0, i64([1, 3]), 7")
    .grad("ScatterBackward1 | self: grad.scatter(dim, index, 0)"),
    kernel(
        "scatter#reduced",
        "(Tensor self, int dim, Tensor index, Tensor src, *, str reduce)",
        FMIO | X,
        body!(
            |a| {
                crate::warn_once!(
                    "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch release. Use torch.scatter_reduce instead for more reduction options."
                );
                merging(a.reduce, || scatter_rule(a.input, a.dim, a.index, Some(a.src)))
            },
            |a, (dim, how), outs| scatter(
                a.input,
                *dim,
                a.index,
                a.src.into(),
                Some(*how),
                &outs[0]
            ),
            cuda: |a, (dim, how), outs| scatter_beside(
                a.input,
                *dim,
                a.index,
                a.src.into(),
                Some(*how),
                &outs[0]
            ),
            scratch: |a, (dim, how), outs, room| room::scatter(room, &outs[0], *dim, a.index, a.src.into(), Some(*how))
        )
        .index_args(4)
        .updates(),
        "`self` with `src` added or multiplied at `index` along a dimension.",
    )
    .alike(1).apart(0b1100)
    .samples("f32[10, 5], 1, i64[5, 5].below(5), f32[5, 5], reduce='add'")
    .refused(),
    kernel(
        "scatter#value_reduce",
        "(Tensor self, int dim, Tensor index, Scalar value, *, str reduce)",
        FMIO | X,
        body!(
            |a| merging(a.reduce, || scatter_rule(a.input, a.dim, a.index, None)),
            |a, (dim, how), outs| scatter(
                a.input,
                *dim,
                a.index,
                a.value.into(),
                Some(*how),
                &outs[0]
            ),
            cuda: |a, (dim, how), outs| scatter_beside(
                a.input,
                *dim,
                a.index,
                a.value.into(),
                Some(*how),
                &outs[0]
            ),
            scratch: |a, (dim, how), outs, room| room::scatter(room, &outs[0], *dim, a.index, a.value.into(), Some(*how))
        )
        .index_args(4)
        .updates(),
        "`self` with a number added or multiplied at `index` along a dimension.",
    )
    .alike(1).apart(0b100)
    .samples("i16(-3), 0, i64(0), 2.5, reduce='add'")
    .refused(),
    kernel(
        "scatter_add",
        "(Tensor self, int dim, Tensor index, Tensor src)",
        FMIO | X,
        body!(
            |a| scatter_rule(a.input, a.dim, a.index, Some(a.src)),
            |a, dim, outs| scatter(
                a.input,
                *dim,
                a.index,
                a.src.into(),
                Some(Reduce::Add),
                &outs[0]
            ),
            cuda: |a, dim, outs| scatter_beside(
                a.input,
                *dim,
                a.index,
                a.src.into(),
                Some(Reduce::Add),
                &outs[0]
            ),
            scratch: |a, dim, outs, room| room::scatter(room, &outs[0], *dim, a.index, a.src.into(), Some(Reduce::Add))
        )
        .index_args(4)
        .updates(),
        "`self` with `src` added at `index` along a dimension.",
    )
    .alike(1).apart(0b1100)
    .samples(
        "f32[10, 5], 0, i64[5, 5].below(10), f32[5, 5]; \
         c64[10, 5], 0, i64[5, 5].below(10), c64[5, 5]",
    )
    .grad("self: grad; src: grad.gather(dim, index)")
    .amp(Cast::Kept, Cast::Widest),
    kernel(
        "scatter_reduce",
        "(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True)",
        FMIO | X,
        body!(scatter_reduce_rule, scatter_reduce, cuda: scatter_reduce_beside, scratch: |a, &(dim, how), outs, room| room::scatter_reduce(room, (&outs[0], dim), a.index, a.src, (how, a.include_self)))
            .index_args(4)
            .updates(),
        "`self` with `src` reduced into it at `index` along a dimension.",
    )
    .alike(1).apart(0b1100)
    .samples(
        "f32[10, 5], -1, i64[5, 5].below(5), f32[5, 5], 'sum', include_self=False; \
         b8[10, 5], 0, i64[10, 2].below(10), b8[10, 2], 'sum'",
    )
    .grad("self: _grad.scatter_reduce_self(grad, self, dim, index, src, reduce, include_self, result); src: _grad.scatter_reduce_src(grad, self, dim, index, src, reduce, include_self, result)"),
];

/// How `scatter_reduce` and `index_reduce` bring elements together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl How {
    /// What each new element does to the one that is there; a mean is divided afterwards.
    pub(in crate::ops) fn merge(self) -> Reduce {
        match self {
            Self::Prod => Reduce::Mul,
            Self::Max => Reduce::Max,
            Self::Min => Reduce::Min,
            Self::Sum | Self::Mean => Reduce::Add,
        }
    }
}

fn scatter_rule(
    t: &Tensor,
    dim: i64,
    index: &Tensor,
    src: Option<&Tensor>,
) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    if index.numel() > 0 {
        ensure!(
            is_index(index.dtype()),
            Runtime,
            "scatter(): Expected dtype int32/int64 for index"
        );
    }
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
    Ok((Plan::contiguous(t.shape(), t.dtype()), dim))
}

/// With the reduction that `scatter(..., reduce=)` names.
fn merging(
    name: &str,
    rule: impl FnOnce() -> Result<(Plan, usize)>,
) -> Result<(Plan, (usize, Reduce))> {
    let (plan, dim) = rule()?;
    let how = match name {
        "add" => Reduce::Add,
        "multiply" => Reduce::Mul,
        _ => bail!(Runtime, "reduce argument must be either add or multiply."),
    };
    Ok((plan, (dim, how)))
}

fn scatter_reduce_rule(a: &calls::ScatterReduce) -> Result<(Plan, (usize, How))> {
    let how = match a.reduce {
        "sum" => How::Sum,
        "prod" => How::Prod,
        "mean" => How::Mean,
        "amax" => How::Max,
        "amin" => How::Min,
        other => bail!(
            Runtime,
            "reduce argument must be either sum, prod, mean, amax or amin, got {other}"
        ),
    };
    let (plan, dim) = scatter_rule(a.input, a.dim, a.index, Some(a.src))?;
    let d = a.input.dtype();
    d.check_kernel(
        (!d.is_complex() || matches!(how, How::Sum | How::Prod | How::Mean))
            && (d != DType::Bool || !matches!(how, How::Mean)),
        format_args!("scatter_gather_tensor_cpu_reduce_{}", a.reduce),
    )?;
    Ok((plan, (dim, how)))
}

/// A tensor or number as a tensor of the result's type that shares no memory with it.
pub(in crate::ops) fn value_of(v: Operand, out: &Tensor) -> Result<Tensor> {
    match v {
        Operand::Tensor(t) => apart(t, out),
        Operand::Scalar(s) => kernels::number(s, out),
    }
}

fn scatter(
    t: &Tensor,
    dim: usize,
    index: &Tensor,
    src: Operand,
    how: Option<Reduce>,
    out: &Tensor,
) -> Result<()> {
    start(out, t)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(index, out)?);
    let number = src.scalar().is_some();
    let src = value_of(src, out)?;
    let (shape, lay) = (index.shape(), Lay::of(&index, index.shape()));
    let bad = match how {
        None => cpu_index::scatter(
            shape,
            &Lay::without(out, dim),
            &source_lay(&src, number, index.ndim()),
            &lay,
            out.dtype().size(),
            axis(out, dim, false),
        ),
        Some(how) => reduce_rows(out, dim, shape, &lay, &src, number, how)?,
    };
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(out, dim))))
}

/// As [`scatter`], on a device beside the host.
fn scatter_beside(
    t: &Tensor,
    dim: usize,
    index: &Tensor,
    src: Operand,
    how: Option<Reduce>,
    out: &Tensor,
) -> Result<()> {
    start(out, t)?;
    if index.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(index, out)?;
    kernels::index::scatter(out, dim, &index, &value_of(src, out)?, how)
}

pub(in crate::ops) fn apart_index(index: &Tensor, out: &Tensor) -> Result<Tensor> {
    if index.shares_storage(out) {
        kernels::converted(index, DType::I64)
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

/// Works on a result of halves in single precision.
pub(in crate::ops) fn widened<R>(
    out: &Tensor,
    src: &Tensor,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<R>,
) -> Result<R> {
    let dtype = wide_of(out);
    let wide = cpu::copy::converted(out, dtype)?;
    let made = f(&wide, &cpu::copy::converted(src, dtype)?)?;
    cpu::copy::copy(out, &wide)?;
    Ok(made)
}

/// Scatters and reduces; floats of 16 bits, and pairs of them, go through a widened copy of the result.
pub(in crate::ops) fn reduce_rows(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    number: bool,
    how: Reduce,
) -> Result<Option<i64>> {
    let from = source_lay(src, number, shape.len());
    let (to, axis) = (Lay::without(out, dim), axis(out, dim, false));
    if how == Reduce::Add
        && let Some(bad) = cpu_index::add_halves(out.dtype(), shape, [&to, &from, index], axis)
    {
        return Ok(bad);
    }
    if of_halves(out.dtype()) {
        return widened(out, src, |out, src| {
            reduce_rows(out, dim, shape, index, src, number, how)
        });
    }
    cpu_index::scatter_reduce(how, out.dtype(), shape, &to, &from, index, axis)
}

/// `scatter_reduce` and `index_reduce`: starts from what is there or from the neutral element, reduces, and divides for a mean.
pub(in crate::ops) fn reduce_into(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    how: How,
    include_self: bool,
) -> Result<Option<i64>> {
    // Sums with what is there have a way of their own.
    let whole = how != How::Sum || !include_self;
    if whole && out.dtype().is_reduced_float() {
        return widened(out, src, |out, src| {
            reduce_into(out, dim, shape, index, src, how, include_self)
        });
    }
    let item = out.dtype().size();
    if !include_self {
        let neutral = Tensor::scalar(Scalar::Int(i64::from(how == How::Prod)), out.dtype())?;
        // For extremes any of the new elements will do as the first one.
        let extreme = matches!(how, How::Max | How::Min);
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
    if let Some(bad) = reduce_rows(out, dim, shape, index, src, false, how.merge())? {
        return Ok(Some(bad));
    }
    if how == How::Mean {
        let counts = counts(out, dim, shape, index, include_self)?;
        let quotient = helpers::inside(|| {
            if out.dtype().is_integral(true) {
                return f::floor_divide(out, &counts);
            }
            // In the result's type they are numbers to a row.
            f::div(out, &cpu::copy::converted(&counts, out.dtype())?)
        })?;
        cpu::copy::copy(out, &quotient)?;
    }
    Ok(None)
}

fn scatter_reduce(
    a: &calls::ScatterReduce,
    &(dim, how): &(usize, How),
    outs: &[Tensor],
) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    if a.index.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(a.index, out)?);
    let src = apart(a.src, out)?;
    let lay = Lay::of(&index, index.shape());
    let bad = reduce_into(out, dim, index.shape(), &lay, &src, how, a.include_self)?;
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(out, dim))))
}

/// As [`scatter_reduce`], on a device beside the host.
fn scatter_reduce_beside(
    a: &calls::ScatterReduce,
    &(dim, how): &(usize, How),
    outs: &[Tensor],
) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    if a.index.numel() == 0 {
        return Ok(());
    }
    let (index, values) = (apart_index(a.index, out)?, apart(a.src, out)?);
    reduce_beside(out, how, a.include_self, |out, src, merge| {
        let src = src.unwrap_or_else(|| values.clone());
        kernels::index::scatter(out, dim, &index, &src, merge)
    })
}
