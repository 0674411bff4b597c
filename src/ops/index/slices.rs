//! Writing slices to indices of a dimension: index_add, index_copy, index_fill, index_reduce.

use crate::cpu::index::Lay;
use crate::cpu::index::{self as cpu_index, Reduce};
use crate::cpu::products::is_one;
use crate::cpu::view::at_least_1d;
use crate::dims::wrap_dim;
use crate::ops::batch;
use crate::ops::copy::like;
use crate::ops::core::fits::check_fits;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, FM, FMIO, Hidden, I, OpDef, Plan, X, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::index::along::{
    along, apart, axis, is_index, out_of_bounds, out_of_range, size_at, start,
};
use crate::ops::index::beside::reduce_beside;
use crate::ops::index::room::{self, Slices};
use crate::ops::index::scatter::{
    How, apart_index, reduce_into, reduce_rows, source_lay, value_of,
};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, err, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "index_add",
        "(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1)",
        FMIO | X,
        body!(
            |a| {
                let plan = slices_rule(a.input, a.dim, a.index, a.source, "index_add_")?;
                check_fits(a.alpha, a.input.dtype()).map(|()| plan)
            },
            index_add,
            cuda: index_add_beside,
            scratch: |a, dim, outs, room| room::slices(room, &outs[0], *dim, a.index, a.source, Slices::Added(a.alpha))
        )
        .index_args(4)
        .updates(),
        "`self` with slices of `source` times `alpha` added at `index`.",
    ).alike(1).apart(0b1100)
    .samples(
        "f32[1], 0, i64([0]), f32[1], alpha=0; \
         c64[5, 5], -1, i64([4, 0, 2, 1, 3]), c64[5, 5], alpha=2",
    )
    .grad("self: grad; source: _grad.scale(_grad.index_source(grad, dim, index, source.sizes), alpha)")
    .batch(Batch::Shared(4)),
    kernel(
        "index_copy",
        "(Tensor self, int dim, Tensor index, Tensor source)",
        FMIO | X,
        body!(index_copy_rule, index_copy, cuda: index_copy_beside, scratch: |a, dim, outs, room| room::slices(room, &outs[0], *dim, a.index, a.source, Slices::Written)).index_args(4).updates(),
        "`self` with slices of `source` written at `index`.",
    ).alike(1).apart(0b1100)
    .samples("f64[1], 0, i64([0]), f64[1]; c64[5, 5], -1, i64([4, 0, 2, 1, 3]), c64[5, 5]")
    .grad("self: grad.index_fill(dim, index, 0); source: _grad.index_source(grad, dim, index, source.sizes); jvp: linear")
    .batch(Batch::Shared(4))
    .amp(Cast::Widest, Cast::Kept),
    kernel(
        "index_fill#tensor",
        "(Tensor self, int dim, Tensor index, Tensor value)",
        FM | I,
        body!(
            |a| index_fill_rule(a.input, a.dim, a.index, a.value.into()),
            |a, dim, outs| index_fill(a.input, *dim, a.index, a.value.into(), &outs[0]),
            cuda: |a, dim, outs| index_fill_beside(a.input, *dim, a.index, a.value.into(), &outs[0]),
            scratch: |a, _, outs, room| room::filled(room, &outs[0], a.index, a.value.into())
        )
        .index_args(4)
        .updates(),
        "`self` with a 0-dimensional tensor's value written to the slices at `index`.",
    ).apart(0b100)
    .overlaps_still("tensor[mask] = scalar")
    .samples("f32[1], 0, i64([0]), f32[()]; b8[5, 5], -1, i64([2, 1, 4, 2, 2]), b8(True)")
    .grad("IndexFillBackward1 | self: grad.index_fill(dim, index, 0); value: _grad.index_fill_value(grad, dim, index)")
    .batch(Batch::As(typed!(batch::index_fill, Hidden))),
    kernel(
        "index_fill",
        "(Tensor self, int dim, Tensor index, Scalar value)",
        FM | I,
        body!(
            |a| index_fill_rule(a.input, a.dim, a.index, a.value.into()),
            |a, dim, outs| index_fill(a.input, *dim, a.index, a.value.into(), &outs[0]),
            cuda: |a, dim, outs| index_fill_beside(a.input, *dim, a.index, a.value.into(), &outs[0]),
            scratch: |a, _, outs, room| room::filled(room, &outs[0], a.index, a.value.into())
        )
        .index_args(4)
        .updates(),
        "`self` with a number written to the slices at `index`.",
    ).apart(0b100)
    .overlaps_still("tensor[mask] = scalar")
    .samples("f32[3, 4], 0, i64([0]), -8.4784")
    .grad("self: grad.index_fill(dim, index, 0)")
    .batch(Batch::Shared(4)),
    kernel(
        "index_reduce",
        "(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True)",
        FMIO | X,
        body!(index_reduce_rule, index_reduce, cuda: index_reduce_beside, scratch: |a, &(dim, how), outs, room| room::slices(room, &outs[0], dim, a.index, a.source, Slices::Reduced(how, a.include_self)))
            .index_args(4)
            .updates(),
        "`self` with slices of `source` reduced into it at `index`.",
    ).alike(1).apart(0b1100)
    .samples("f32[5, 5], 1, i64[10].below(5), f32[5, 10], 'mean', include_self=False")
    .grad("self: _grad.index_reduce_self(grad, self, dim, index, source, reduce, include_self, result); source: _grad.index_reduce_source(grad, self, dim, index, source, reduce, include_self, result)")
    .batch(Batch::Shared(4)),
];

/// A shape without a dimension.
fn rest(t: &Tensor, dim: usize) -> Dims {
    if t.ndim() == 0 {
        Dims::EMPTY
    } else {
        t.shape().removed(dim)
    }
}

/// For rows that bring slices of a source of the same dtype to indices.
fn slices_rule(
    t: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    name: &str,
) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    let n = index.numel();
    ensure!(
        index.ndim() <= 1,
        Index,
        "{name}(): Index is supposed to be a vector, but got dim: {} with type: {} and size: {}",
        index.ndim(),
        index.dtype().scalar_type(),
        index.shape()
    );
    ensure!(
        is_index(index.dtype()),
        Runtime,
        "{name}(): Expected dtype int32/int64 for index but got: {}",
        index.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == source.dtype(),
        Runtime,
        "{name}(): self ({}) and source ({}) must have the same scalar type",
        t.dtype().scalar_type(),
        source.dtype().scalar_type()
    );
    ensure!(
        dim == 0 || dim < source.ndim(),
        Runtime,
        "{name}(): Indexing dim {dim} is out of bounds of the source tensor with dim {}",
        source.ndim()
    );
    ensure!(
        n == size_at(source, dim),
        Runtime,
        "{name}(): Number of indices ({n}) should be equal to source.size(dim): ({}), for dim: {dim}",
        size_at(source, dim)
    );
    ensure!(
        t.ndim() == source.ndim() && rest(t, dim) == rest(source, dim),
        Runtime,
        "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {} source.shape = {}",
        t.shape(),
        source.shape()
    );
    Ok((Plan::contiguous(t.shape(), t.dtype()), dim))
}

/// The source of `index_add` times its factor, apart from the result.
fn scaled(a: &calls::IndexAdd, out: &Tensor) -> Result<Tensor> {
    let source = at_least_1d(&apart(a.source, out)?);
    if source.numel() == 0 || is_one(a.alpha) {
        return Ok(source);
    }
    let alpha = match out.dtype() {
        DType::Bool => Scalar::Bool(a.alpha.to_bool()),
        d if d.is_integral(false) => Scalar::Int(a.alpha.to_i64()),
        _ => a.alpha,
    };
    helpers::inside(|| f::mul(&source, alpha))
}

/// As [`index_add`], on a device beside the host.
fn index_add_beside(a: &calls::IndexAdd, &dim: &usize, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let (source, index) = (scaled(a, out)?, apart_index(a.index, out)?);
    let how = Some(Reduce::Add);
    kernels::index::put_slices(out, dim, source.shape(), &index, &source, how, false)
}

fn index_add(a: &calls::IndexAdd, &dim: &usize, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.input);
    start(out, t)?;
    let source = scaled(a, out)?;
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(a.index, out)?;
    let shape = source.shape().clone();
    let bad = reduce_rows(
        out,
        dim,
        &shape,
        &along(&index, shape.len(), dim),
        &source,
        false,
        Reduce::Add,
    )?;
    match bad {
        None => Ok(()),
        Some(_) if t.ndim() <= 1 => Err(out_of_range()),
        Some(i) => Err(out_of_bounds(i, dim, size_at(t, dim))),
    }
}

fn index_copy_rule(a: &calls::IndexCopy) -> Result<(Plan, usize)> {
    let (t, index, source) = (a.input, a.index, a.source);
    let dim = wrap_dim(a.dim, t.ndim())?;
    ensure!(
        index.ndim() < 2,
        Index,
        "index_copy_(): Index should have dimension 1 or 0 (got {})",
        index.ndim()
    );
    let n = index.numel();
    if source.ndim() == 0 && n != 1 {
        bail!(
            Index,
            "index_copy_(): When source is scalar, index should have one element (got {n})"
        );
    }
    ensure!(
        source.ndim() == t.ndim() || source.ndim() == 0 || t.ndim() == 0,
        Index,
        "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality ({}), \
         destination dimensionality ({})",
        source.ndim(),
        t.ndim()
    );
    ensure!(
        index.dtype() == DType::I64,
        Runtime,
        "index_copy_(): Expected a long tensor for index, but got {}",
        index.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == source.dtype(),
        Runtime,
        "index_copy_(): self and source expected to have the same dtype, but got (self) {} and (source) {}",
        t.dtype().scalar_type(),
        source.dtype().scalar_type()
    );
    let (to, from) = (rest(t, dim), rest(source, dim));
    if to != from {
        let show = |v: &Dims| v.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        bail!(
            Runtime,
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {} at dimension {dim} and \
             source slice shape: {} at dimension 0.",
            show(&to),
            show(&from)
        );
    }
    if source.ndim() > 0 {
        ensure!(
            n == source.shape()[dim],
            Index,
            "index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({})",
            source.shape()[dim]
        );
    }
    Ok((Plan::contiguous(t.shape(), t.dtype()), dim))
}

/// What `index_copy` loops over: a scalar source meets one index of a tensor whose other sizes are 1.
fn copied_shape(t: &Tensor, source: &Tensor) -> Dims {
    if source.ndim() == t.ndim().max(1) {
        source.shape().clone()
    } else {
        Dims::filled(t.ndim().max(1), 1)
    }
}

/// As [`index_copy`], on a device beside the host.
fn index_copy_beside(a: &calls::IndexCopy, &dim: &usize, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.input);
    start(out, t)?;
    let source = at_least_1d(&apart(a.source, out)?);
    let (shape, index) = (copied_shape(t, &source), apart_index(a.index, out)?);
    let source = if source.numel() == 1 {
        source.laid_out(Dims::EMPTY, Dims::EMPTY)
    } else {
        source
    };
    kernels::index::put_slices(out, dim, &shape, &index, &source, None, false)
}

fn index_copy(a: &calls::IndexCopy, &dim: &usize, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.input);
    start(out, t)?;
    let source = at_least_1d(&apart(a.source, out)?);
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(a.index, out)?;
    let shape = copied_shape(t, &source);
    let lay = along(&index, shape.len(), dim);
    let bad = cpu_index::scatter(
        &shape,
        &Lay::without(out, dim),
        &source_lay(&source, source.numel() == 1, shape.len()),
        &lay,
        out.dtype().size(),
        axis(out, dim, false),
    );
    bad.map_or(Ok(()), |i| {
        Err(err!(
            Index,
            "index_copy_(): index {i} is out of bounds for dimension {dim} with size {}",
            size_at(t, dim)
        ))
    })
}

fn index_fill_rule(t: &Tensor, dim: i64, index: &Tensor, value: Operand) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    if let Operand::Tensor(v) = value {
        ensure!(
            v.ndim() == 0,
            Runtime,
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
            v.ndim()
        );
    }
    ensure!(
        index.dtype() == DType::I64,
        Index,
        "index_fill_(): Expected dtype int64 for index."
    );
    ensure!(
        index.ndim() <= 1,
        Runtime,
        "Index has to be a vector/scalar"
    );
    let complex = match value {
        Operand::Tensor(v) => v.dtype().is_complex(),
        Operand::Scalar(s) => matches!(s, Scalar::Complex(_)),
    };
    ensure!(
        t.dtype().is_complex() || !complex,
        Runtime,
        "index_fill_(): Converting complex Scalar to non-complex type is not supported"
    );
    if let Operand::Scalar(s) = value {
        check_fits(s, t.dtype())?;
    }
    Ok((like(t), dim))
}

/// What `index_fill` loops over.
fn filled_shape(t: &Tensor, dim: usize, index: &Tensor) -> Dims {
    if t.ndim() == 0 {
        Dims::new(&[index.numel()])
    } else {
        t.shape().with(dim, index.numel())
    }
}

/// As [`index_fill`], on a device beside the host.
fn index_fill_beside(
    t: &Tensor,
    dim: usize,
    index: &Tensor,
    value: Operand,
    out: &Tensor,
) -> Result<()> {
    start(out, t)?;
    let (index, value) = (apart_index(index, out)?, value_of(value, out)?);
    let shape = filled_shape(t, dim, &index);
    kernels::index::put_slices(out, dim, &shape, &index, &value, None, true)
}

fn index_fill(t: &Tensor, dim: usize, index: &Tensor, value: Operand, out: &Tensor) -> Result<()> {
    start(out, t)?;
    let index = apart_index(index, out)?;
    if out.numel() == 0 || index.numel() == 0 {
        return Ok(());
    }
    let value = value_of(value, out)?;
    let shape = filled_shape(t, dim, &index);
    let lay = along(&index, shape.len(), dim);
    let bad = cpu_index::scatter(
        &shape,
        &Lay::without(out, dim),
        &source_lay(&value, true, shape.len()),
        &lay,
        out.dtype().size(),
        axis(out, dim, true),
    );
    bad.map_or(Ok(()), |i| {
        Err(err!(
            Index,
            "index {i} is out of bounds for dimension {dim} with size {}",
            size_at(t, dim)
        ))
    })
}

fn index_reduce_rule(a: &calls::IndexReduce) -> Result<(Plan, (usize, How))> {
    crate::warn_once!("index_reduce() is in beta and the API may change at any time.");
    let how = match a.reduce {
        "prod" => How::Prod,
        "mean" => How::Mean,
        "amax" => How::Max,
        "amin" => How::Min,
        other => bail!(
            Runtime,
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {other}."
        ),
    };
    let d = a.input.dtype();
    let (plan, dim) = slices_rule(a.input, a.dim, a.index, a.source, "index_reduce_")?;
    d.check_kernel(!d.is_complex() && d != DType::Bool, "index_func_cpu_")?;
    Ok((plan, (dim, how)))
}

fn index_reduce(a: &calls::IndexReduce, &(dim, how): &(usize, How), outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let source = at_least_1d(&apart(a.source, out)?);
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(a.index, out)?;
    let shape = source.shape().clone();
    let lay = along(&index, shape.len(), dim);
    let bad = reduce_into(out, dim, &shape, &lay, &source, how, a.include_self)?;
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

/// As [`index_reduce`], on a device beside the host.
fn index_reduce_beside(
    a: &calls::IndexReduce,
    &(dim, how): &(usize, How),
    outs: &[Tensor],
) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let (source, index) = (
        at_least_1d(&apart(a.source, out)?),
        apart_index(a.index, out)?,
    );
    if source.numel() == 0 {
        return Ok(());
    }
    reduce_beside(out, how, a.include_self, |out, src, merge| {
        let src = src.unwrap_or_else(|| source.clone());
        kernels::index::put_slices(out, dim, source.shape(), &index, &src, merge, false)
    })
}
