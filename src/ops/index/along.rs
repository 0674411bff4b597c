//! Reading and writing along one dimension at indices: gather, index_select, index_add and their kin.

use crate::cpu::index::{self as cpu_index, Axis, Lay, Reduce};
use crate::dims::{self, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::op::{
    F, FM, FMIO, FMO, KernelBody, OpDef, Plan, Ret, X, kernel, old_compose,
};
use crate::ops::core::rules;
use crate::{DType, Dims, Error, Result, Scalar, Tensor, bail, cpu, ensure, err, run1};

pub use crate::ops::index::getitem::{Index, Put, get_item, set_item};
use crate::ops::index::scatter::{apart_index, reduce_into, reduce_rows, source_lay, value_at};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "gather",
        "(Tensor self, int dim, Tensor index, *, bool sparse_grad=False)",
        FMO | X,
        KernelBody::new(infer_gather, gather).index_args(4),
        "The elements at `index` along a dimension.",
    ),
    kernel(
        "_gather_wrapped",
        "(Tensor self, int dim, Tensor index)",
        F,
        KernelBody::new(infer_gather, gather).index_args(4),
        "",
    ),
    kernel(
        "index_select",
        "(Tensor self, int dim, Tensor index)",
        FMO,
        KernelBody::new(infer_index_select, index_select).index_args(4),
        "The slices at `index` along a dimension.",
    ),
    kernel(
        "index_add",
        "(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1)",
        FMIO | X,
        KernelBody::new(infer_index_add, index_add)
            .index_args(4)
            .updates(),
        "`self` with slices of `source` times `alpha` added at `index`.",
    ),
    kernel(
        "index_copy",
        "(Tensor self, int dim, Tensor index, Tensor source)",
        FMIO | X,
        KernelBody::new(infer_index_copy, index_copy)
            .index_args(4)
            .updates(),
        "`self` with slices of `source` written at `index`.",
    ),
    kernel(
        "index_fill#tensor",
        "(Tensor self, int dim, Tensor index, Tensor value)",
        FM | crate::ops::core::op::I,
        KernelBody::new(infer_index_fill, index_fill)
            .index_args(4)
            .updates(),
        "`self` with a 0-dimensional tensor's value written to the slices at `index`.",
    ),
    kernel(
        "index_fill",
        "(Tensor self, int dim, Tensor index, Scalar value)",
        FM | crate::ops::core::op::I,
        KernelBody::new(infer_index_fill, index_fill)
            .index_args(4)
            .updates(),
        "`self` with a number written to the slices at `index`.",
    ),
    kernel(
        "index_reduce",
        "(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True)",
        FMIO | X,
        KernelBody::new(infer_index_reduce, index_reduce)
            .index_args(4)
            .updates(),
        "`self` with slices of `source` reduced into it at `index`.",
    ),
    old_compose(
        "take_along_dim",
        "(Tensor self, Tensor indices, int? dim=None)",
        FMO,
        take_along_dim,
        "The elements at `indices` along a dimension, broadcast.",
    ),
];

/// Indices as 64-bit integers in any layout.
///
/// # Errors
/// If memory cannot be had.
pub fn long(t: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::I64 {
        Ok(t.clone())
    } else {
        cpu::copy::converted(t, DType::I64)
    }
}

/// Makes the result start as `self`, unless it is that very memory.
///
/// # Errors
/// If memory cannot be had.
pub fn start(out: &Tensor, t: &Tensor) -> Result<()> {
    let same = out.shares_storage(t)
        && out.data_ptr() == t.data_ptr()
        && out.strides() == t.strides()
        && out.dtype() == t.dtype();
    if same {
        Ok(())
    } else {
        cpu::copy::copy(out, t)
    }
}

/// A source that shares no memory with the result.
///
/// # Errors
/// If memory cannot be had.
pub fn apart(src: &Tensor, out: &Tensor) -> Result<Tensor> {
    if src.dtype() == out.dtype() && !src.shares_storage(out) {
        Ok(src.clone())
    } else {
        cpu::copy::converted(src, out.dtype())
    }
}

/// The indexed dimension of a tensor; 0-dimensional tensors count as having one of size 1.
pub(in crate::ops) fn axis(t: &Tensor, dim: usize, wrap: bool) -> Axis {
    let (size, stride) = if t.ndim() == 0 {
        (1, 0)
    } else {
        (t.shape()[dim], t.strides()[dim])
    };
    Axis {
        step: stride as isize * t.dtype().size() as isize,
        size,
        wrap,
    }
}

pub(in crate::ops) fn size_at(t: &Tensor, dim: usize) -> i64 {
    if t.ndim() == 0 { 1 } else { t.shape()[dim] }
}

pub(in crate::ops) fn at_least_1d(t: &Tensor) -> Tensor {
    if t.ndim() == 0 {
        t.view_with([1].into(), [1].into(), t.offset())
    } else {
        t.clone()
    }
}

#[cold]
pub(in crate::ops) fn out_of_bounds(index: i64, dim: usize, size: i64) -> Error {
    err!(
        Runtime,
        "index {index} is out of bounds for dimension {dim} with size {size}"
    )
}

#[cold]
pub(in crate::ops) fn out_of_range() -> Error {
    err!(Index, "index out of range in self")
}

pub(in crate::ops) fn is_index(d: DType) -> bool {
    matches!(d, DType::I64 | DType::I32)
}

fn infer_gather(a: &Args) -> Result<Plan> {
    let (t, index) = (a.tensor(0)?, a.tensor(2)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    ensure!(
        is_index(index.dtype()) || index.numel() == 0,
        Runtime,
        "gather(): Expected dtype int32/int64 for index"
    );
    if index.numel() > 0 {
        ensure!(
            t.ndim().max(1) == index.ndim().max(1),
            Runtime,
            "Index tensor must have the same number of dimensions as input tensor"
        );
        for d in (0..t.ndim().max(1)).filter(|&d| d != dim) {
            ensure!(
                size_at(index, d) <= size_at(t, d),
                Runtime,
                "Size does not match at dimension {d} expected index {} to be no larger than self {} apart from dimension {dim}",
                index.shape(),
                t.shape()
            );
        }
    }
    Ok(Plan::contiguous(index.shape(), t.dtype()))
}

fn gather(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, index) = (a.tensor(0)?, long(a.tensor(2)?)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    let (out, index) = (at_least_1d(&outs[0]), at_least_1d(&index));
    if out.numel() == 0 {
        return Ok(());
    }
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(&out, out.shape()),
        &Lay::without(t, dim),
        &Lay::of(&index, index.shape()),
        t.dtype().size(),
        axis(t, dim, a.name() == "_gather_wrapped"),
    );
    bad.map_or(Ok(()), |i| Err(out_of_bounds(i, dim, size_at(t, dim))))
}

fn infer_index_select(a: &Args) -> Result<Plan> {
    let (t, index) = (a.tensor(0)?, a.tensor(2)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    ensure!(
        index.ndim() <= 1,
        Index,
        "index_select(): Index is supposed to be a vector"
    );
    ensure!(
        is_index(index.dtype()),
        Runtime,
        "index_select(): Expected dtype int32 or int64 for index"
    );
    let n = index.numel();
    if t.ndim() == 0 {
        ensure!(
            n == 1,
            Runtime,
            "index_select(): Index to scalar can have only 1 value, got {n} value(s)"
        );
        return Ok(Plan::contiguous(&[], t.dtype()));
    }
    Ok(Plan::contiguous(&t.shape().with(dim, n), t.dtype()))
}

/// Strides that read a list of indices along one dimension of a shape.
pub(in crate::ops) fn along(index: &Tensor, ndim: usize, dim: usize) -> Lay {
    let step = if index.ndim() == 0 {
        0
    } else {
        index.strides()[0]
    };
    Lay {
        ptr: index.data_ptr(),
        strides: Dims::filled(ndim.max(1), 0).with(dim, step),
    }
}

fn index_select(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, index) = (a.tensor(0)?, long(a.tensor(2)?)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    let out = at_least_1d(&outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(&out, out.shape()),
        &Lay::without(t, dim),
        &along(&index, t.ndim(), dim),
        t.dtype().size(),
        axis(t, dim, false),
    );
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

fn check_vector(a: &Args, name: &str) -> Result<usize> {
    let (t, index, source) = (a.tensor(0)?, a.tensor(2)?, a.tensor(3)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
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
    let rest = |t: &Tensor| {
        if t.ndim() == 0 {
            Dims::EMPTY
        } else {
            t.shape().removed(dim)
        }
    };
    ensure!(
        rest(t) == rest(source),
        Runtime,
        "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = {} source.shape = {}",
        t.shape(),
        source.shape()
    );
    Ok(dim)
}

fn infer_index_add(a: &Args) -> Result<Plan> {
    check_vector(a, "index_add_")?;
    let t = a.tensor(0)?;
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn index_add(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    let mut source = at_least_1d(&apart(a.tensor(3)?, out)?);
    if source.numel() == 0 {
        return Ok(());
    }
    let alpha = a.scalar(4)?;
    if !matches!(
        alpha,
        Scalar::Int(1) | Scalar::Float(1.0) | Scalar::Bool(true)
    ) {
        let alpha = match out.dtype() {
            DType::Bool => Scalar::Bool(alpha.to_bool()),
            d if d.is_integral(false) => Scalar::Int(alpha.to_i64()),
            _ => alpha,
        };
        source = run1!("mul", &source, alpha)?;
    }
    let index = apart_index(a.tensor(2)?, out)?;
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

fn infer_index_copy(a: &Args) -> Result<Plan> {
    let (t, index, source) = (a.tensor(0)?, a.tensor(2)?, a.tensor(3)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
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
    let rest = |t: &Tensor| {
        if t.ndim() == 0 {
            Dims::EMPTY
        } else {
            t.shape().removed(dim)
        }
    };
    let (to, from) = (rest(t), rest(source));
    if to != from {
        let d = to
            .iter()
            .zip(from.iter())
            .position(|(a, b)| a != b)
            .unwrap_or(0);
        let show = |v: &Dims| v.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        bail!(
            Runtime,
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {} at dimension {d} and \
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
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn index_copy(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    let source = at_least_1d(&apart(a.tensor(3)?, out)?);
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(a.tensor(2)?, out)?;
    // A scalar source meets one index of a tensor whose other sizes are 1.
    let shape = if source.ndim() == t.ndim().max(1) {
        source.shape().clone()
    } else {
        Dims::filled(t.ndim().max(1), 1)
    };
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

fn infer_index_fill(a: &Args) -> Result<Plan> {
    let (t, index) = (a.tensor(0)?, a.tensor(2)?);
    rules::dim(t, a.int(1)?)?;
    if let Some(v) = a.opt_tensor(3) {
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
    let complex = match a.opt_tensor(3) {
        Some(v) => v.dtype().is_complex(),
        None => matches!(a.scalar(3)?, Scalar::Complex(_)),
    };
    ensure!(
        t.dtype().is_complex() || !complex,
        Runtime,
        "index_fill_(): Converting complex Scalar to non-complex type is not supported"
    );
    crate::ops::copy::infer_like(a)
}

fn index_fill(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    let index = apart_index(a.tensor(2)?, out)?;
    if out.numel() == 0 || index.numel() == 0 {
        return Ok(());
    }
    let value = value_at(a, 3, out)?;
    let shape = if t.ndim() == 0 {
        Dims::new(&[index.numel()])
    } else {
        t.shape().with(dim, index.numel())
    };
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

fn infer_index_reduce(a: &Args) -> Result<Plan> {
    let how = a.str(4).unwrap_or("");
    ensure!(
        matches!(how, "prod" | "mean" | "amax" | "amin"),
        Runtime,
        "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {how}."
    );
    check_vector(a, "index_reduce_")?;
    let t = a.tensor(0)?;
    t.dtype().check_kernel(
        !t.dtype().is_complex() && t.dtype() != DType::Bool,
        "index_func_cpu_",
    )?;
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

pub(in crate::ops) fn index_reduce(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.tensor(0)?);
    let dim = wrap_dim(a.int(1)?, t.ndim())?;
    start(out, t)?;
    let source = at_least_1d(&apart(a.tensor(3)?, out)?);
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(a.tensor(2)?, out)?;
    let shape = source.shape().clone();
    let bad = reduce_into(
        out,
        dim,
        &shape,
        &along(&index, shape.len(), dim),
        &source,
        a.str(4).unwrap_or("prod"),
        a.bool(5),
    )?;
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

fn take_along_dim(a: &Args) -> Result<Ret> {
    let (t, indices) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        is_index(indices.dtype()),
        Runtime,
        "torch.take_along_dim(): dtype of indices should be Long but got {}",
        indices.dtype().scalar_type()
    );
    let Some(dim) = a.opt_int(2) else {
        let flat = |t: &Tensor| run1!("reshape", t, Dims::new(&[-1]));
        return run1!("_gather_wrapped", &flat(t)?, 0i64, &flat(indices)?).map(Ret::from);
    };
    ensure!(
        t.ndim() == indices.ndim(),
        Runtime,
        "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for input, and {} \
         dimensions for indices",
        t.ndim(),
        indices.ndim()
    );
    let dim = wrap_dim(dim, t.ndim())?;
    if t.ndim() == 0 {
        return run1!("_gather_wrapped", t, 0i64, indices).map(Ret::from);
    }
    let both = dims::broadcast(&t.shape().with(dim, 1), &indices.shape().with(dim, 1))?;
    let t2 = t.expand_to(&both.with(dim, t.shape()[dim]));
    let i2 = indices.expand_to(&both.with(dim, indices.shape()[dim]));
    run1!("_gather_wrapped", &t2, dim as i64, &i2).map(Ret::from)
}
