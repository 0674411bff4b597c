//! Sorting, the best few, distinct elements.

use crate::dims::{contiguous_strides, preserved_strides, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::op::{FM, FMO, KernelBody, OpDef, Plan, Ret, X, kernel, old_compose};
use crate::ops::reduce::sums::comparable;
use crate::{DType, Device, Dims, Result, Tensor, bail, cpu, ensure, run};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "sort",
        "(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(|a| infer_sort(a, 1), |a, o| sort_cpu(a, o, 1)),
        "The elements along a dimension in order, and where they were.",
    ),
    kernel(
        "sort#stable",
        "(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(|a| infer_sort(a, 2), |a, o| sort_cpu(a, o, 2)),
        "The elements along a dimension in order, and where they were.",
    ),
    old_compose(
        "argsort",
        "(Tensor self, int dim=-1, bool descending=False)",
        FM,
        |a| second(run!("sort", a.tensor(0)?, a.int(1)?, a.bool(2))?),
        "The indices that sort a dimension.",
    ),
    old_compose(
        "argsort#stable",
        "(Tensor self, *, bool stable, int dim=-1, bool descending=False)",
        FMO | X,
        |a| second(run!("sort", a.tensor(0)?, a.int(2)?, a.bool(3))?),
        "The indices that sort a dimension.",
    ),
    old_compose(
        "msort",
        "(Tensor self)",
        FMO | X,
        |a| {
            Ok(run!("sort", a.tensor(0)?, 0i64)?
                .tensors()
                .swap_remove(0)
                .into())
        },
        "The elements along the first dimension in order.",
    ),
    kernel(
        "topk",
        "(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_topk, topk_cpu),
        "The k largest or smallest elements along a dimension.",
    ),
    old_compose(
        "unique",
        "(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| unique(a, false, a.bool(2), a.bool(3), a.opt_int(4)),
        "The distinct elements, in order.",
    ),
    old_compose(
        "unique_consecutive",
        "(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| unique(a, true, a.bool(1), a.bool(2), a.opt_int(3)),
        "The elements without repetitions of their neighbours.",
    ),
];

fn second(r: Ret) -> Result<Ret> {
    Ok(r.tensors().swap_remove(1).into())
}

fn infer_sort(a: &Args, at: usize) -> Result<Plan> {
    let t = a.tensor(0)?;
    wrap_dim(a.int(at)?, t.ndim())?;
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        " Sort does not support complex dtypes on CPU"
    );
    if t.dtype().is_storage_only() {
        return Err(t.dtype().no_kernel("sorting_kernel_method_name"));
    }
    let strides = preserved_strides(t.shape(), t.strides());
    let mut plan = Plan::one(t.shape().clone(), strides.clone(), t.dtype());
    plan.outs
        .extend(Plan::one(t.shape().clone(), strides, DType::I64).outs);
    Ok(plan)
}

fn sort_cpu(a: &Args, outs: &[Tensor], at: usize) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::sort::sort(
        &outs[0],
        &outs[1],
        t,
        wrap_dim(a.int(at)?, t.ndim())?,
        a.bool(at + 1),
    )
}

fn infer_topk(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (k, d) = (a.int(1)?, wrap_dim(a.int(2)?, t.ndim())?);
    let n = t.shape().get(d).copied().unwrap_or(1);
    ensure!(k >= 0 && k <= n, Runtime, "selected index k out of range");
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        " topk does not support complex dtypes on CPU"
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "topk does not support bool dtypes on CPU"
    );
    comparable("topk_cpu", t.dtype())?;
    let shape = if t.ndim() == 0 {
        Dims::EMPTY
    } else {
        t.shape().with(d, k)
    };
    Ok(Plan::many(&[(&shape, t.dtype()), (&shape, DType::I64)]))
}

fn topk_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::sort::topk(
        &outs[0],
        &outs[1],
        t,
        wrap_dim(a.int(2)?, t.ndim())?,
        a.int(1)? as usize,
        a.bool(3),
    )
}

/// Distinct elements or slices; how many there are depends on values, so this reads them.
fn unique(
    a: &Args,
    consecutive: bool,
    inverse: bool,
    counts: bool,
    dim: Option<i64>,
) -> Result<Ret> {
    let t = a.tensor(0)?;
    if t.dtype().is_complex() || t.dtype().is_storage_only() {
        return Err(t.dtype().no_kernel(if dim.is_some() {
            "unique_dim"
        } else {
            "unique"
        }));
    }
    let d = match dim {
        Some(d) => {
            ensure!(
                t.ndim() > 0,
                Index,
                "Dimension specified as {d} but tensor has no dimensions"
            );
            let d = wrap_dim(d, t.ndim())?;
            let empty = t.shape().iter().enumerate().any(|(i, &n)| n == 0 && i != d);
            ensure!(
                !empty || t.shape()[d] == 0,
                Runtime,
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
            );
            Some(d)
        }
        None => None,
    };
    if t.is_meta() && t.storage().source().is_none() {
        let name = a.name();
        bail!(
            NotImplemented,
            "{name}(): the shape of the result depends on the values of its input, and meta tensors have none. \
             Call {name}() on real data, or materialize() the input first."
        );
    }
    let device = t.device();
    let real = crate::ops::core::helpers::readable(t, "unique() cannot be called on meta tensors")?;
    let real = crate::ops::core::helpers::resolve(&real)?;
    let (moved, back): (Tensor, Option<SmallVec<[usize; 8]>>) = match d {
        Some(d) => {
            let order: SmallVec<[usize; 8]> = std::iter::once(d)
                .chain((0..t.ndim()).filter(|&i| i != d))
                .collect();
            let mut back: SmallVec<[usize; 8]> = SmallVec::from_elem(0, order.len());
            order
                .iter()
                .enumerate()
                .for_each(|(to, &from)| back[from] = to);
            (real.permuted(&order), Some(back))
        }
        None => (real.clone(), None),
    };
    let dense = cpu::copy::dense(&moved, t.dtype())?;
    let n = if d.is_some() {
        dense.shape()[0]
    } else {
        dense.numel()
    };
    let width = if n == 0 { 1 } else { dense.numel() / n };
    let rows = dense.view_with(
        Dims::from([n, width]),
        contiguous_strides(&[n, width]),
        dense.offset(),
    );
    let groups = cpu::sort::unique(&rows, consecutive)?;
    let shape = if d.is_some() {
        dense.shape().with(0, groups.first.len() as i64)
    } else {
        Dims::from([groups.first.len() as i64])
    };
    let values = Tensor::empty(&shape, t.dtype(), Device::CPU)?;
    for (k, &i) in groups.first.iter().enumerate() {
        let (to, from) = (
            values_row(&values, k as i64, width),
            values_row(&rows, i, width),
        );
        cpu::copy::copy(&to, &from)?;
    }
    let values = if let Some(back) = back {
        values.permuted(&back)
    } else {
        values
    };
    let mut outs = vec![values];
    if inverse {
        let shape = if d.is_some() {
            Dims::from([n])
        } else {
            t.shape().clone()
        };
        outs.push(Tensor::from_slice(&groups.inverse, &shape)?);
    }
    if counts {
        outs.push(Tensor::from_slice(
            &groups.counts,
            &[groups.counts.len() as i64],
        )?);
    }
    if !device.is_cpu() && !device.is_meta() {
        outs = outs
            .iter()
            .map(|t| t.to_device(device))
            .collect::<Result<_>>()?;
    }
    Ok(if outs.len() == 1 {
        Ret::One(outs.remove(0))
    } else {
        Ret::Tuple(outs)
    })
}

/// `width` elements of a dense tensor from row `k` on.
fn values_row(t: &Tensor, k: i64, width: i64) -> Tensor {
    t.view_with(Dims::from([width]), Dims::from([1]), t.offset() + k * width)
}
