//! Sorting, and the best few.

use crate::cpu::lines_room;
use crate::dims::{preserved_strides, wrap_dim};
use crate::ops::core::op::{FM, FMO, OpDef, OutSpec, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::reduce::rule::comparable;
use crate::{DType, Dims, Result, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "sort",
        "(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(|a| sorted(a.input, a.dim), anywhere: |a, dim, outs| {
            kernels::sort::sort(&outs[0], &outs[1], a.input, *dim, a.descending)
        }, scratch: |a, dim, outs, room| lines_room::sort(room, outs, a.input, *dim, None)),
        "The elements along a dimension in order, and where they were.",
    ).alike(1)
    .samples("f32[3, 4]; i64[2, 3, 4].below(125), -3, True; f32[3, 4], -2, False")
    .grad("self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, True)"),
    kernel(
        "sort#stable",
        "(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(|a| sorted(a.input, a.dim), anywhere: |a, dim, outs| {
            kernels::sort::sort(&outs[0], &outs[1], a.input, *dim, a.descending)
        }, scratch: |a, dim, outs, room| lines_room::sort(room, outs, a.input, *dim, None)),
        "The elements along a dimension in order, and where they were.",
    ).alike(1)
    .samples(
        "f32[3, 4], stable=True; \
         b8[3, 4], dim=0, descending=True, stable=True; \
         f32[2, 3, 4], dim=-3, descending=True, stable=True",
    )
    .grad("SortBackward1 | self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, True)"),
    compose(
        "argsort",
        "(Tensor self, int dim=-1, bool descending=False)",
        FM,
        |a| {
            let sort = f::Sort::new(a.input).dim(a.dim).descending(a.descending);
            sort.call().map(|[_, indices]| indices)
        },
        "The indices that sort a dimension.",
    ).samples("f32[3, 4]; b8[3, 4]; f32[3, 4], 1, False"),
    compose(
        "argsort#stable",
        "(Tensor self, *, bool stable, int dim=-1, bool descending=False)",
        FMO | X,
        |a| {
            let sort = f::SortStable::new(a.input, a.stable)
                .dim(a.dim)
                .descending(a.descending);
            sort.call().map(|[_, indices]| indices)
        },
        "The indices that sort a dimension.",
    ).samples("f32[3, 4], stable=True; f32[3, 4], dim=-2, descending=True, stable=True"),
    compose(
        "msort",
        "(Tensor self)",
        FMO | X,
        |a| {
            f::Sort::new(a.input)
                .dim(0)
                .call()
                .map(|[values, _]| values)
        },
        "The elements along the first dimension in order.",
    ).alike(1)
    .samples("b8[3, 4]"),
    kernel(
        "topk",
        "(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(topk, anywhere: |a, dim, outs| {
            kernels::sort::topk(&outs[0], &outs[1], a.input, *dim, a.k as usize, a.largest, a.sorted)
        }, scratch: |a, dim, outs, room| lines_room::sort(room, outs, a.input, *dim, Some(a.k as usize))),
        "The k largest or smallest elements along a dimension.",
    ).apart(1)
    .samples("f32[3, 4], 1; f32[3, 4], 1, 0, True, True")
    .grad("self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, True)"),
];

/// Rule of sorting; finds the dimension.
fn sorted(t: &Tensor, dim: i64) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        " Sort does not support complex dtypes on CPU"
    );
    t.dtype()
        .check_kernel(!t.dtype().is_storage_only(), "sorting_kernel_method_name")?;
    let strides = preserved_strides(t.shape(), t.strides());
    let mut plan = Plan::one(t.shape().clone(), strides.clone(), t.dtype());
    plan.outs.push(OutSpec {
        shape: t.shape().clone(),
        strides,
        dtype: DType::I64,
    });
    Ok((plan, dim))
}

fn topk(a: &calls::Topk) -> Result<(Plan, usize)> {
    let (t, d) = (a.input, a.input.dtype());
    let dim = wrap_dim(a.dim, t.ndim())?;
    let n = t.shape().get(dim).copied().unwrap_or(1);
    ensure!(
        a.k >= 0 && a.k <= n,
        Runtime,
        "selected index k out of range"
    );
    ensure!(
        !d.is_complex(),
        Runtime,
        " topk does not support complex dtypes on CPU"
    );
    ensure!(
        d != DType::Bool,
        Runtime,
        "topk does not support bool dtypes on CPU"
    );
    comparable("topk_cpu", d)?;
    let shape = if t.ndim() == 0 {
        Dims::EMPTY
    } else {
        t.shape().with(dim, a.k)
    };
    Ok((Plan::many(&[(&shape, d), (&shape, DType::I64)]), dim))
}
