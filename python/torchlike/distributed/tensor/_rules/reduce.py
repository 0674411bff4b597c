"""Reductions: a cut dimension that is reduced leaves a partial result, if the reduction can be done in parts."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.tensor._rules import (
    Call,
    Cut,
    Fixed,
    P,
    R,
    Rows,
    dim_of,
    dims_of,
    rule,
    uncut,
)
from torchlike.distributed.tensor._spec import Spec
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Shard,
    _NormPartial,
    _StridedShard,
    is_cut,
    moved,
)

_LINEAR = {
    "all": "product",
    "sum": "sum",
    "nansum": "sum",
    "any": "sum",
    "prod": "product",
    "mean": "avg",
    "max": "max",
    "min": "min",
    "amax": "max",
    "amin": "min",
}


def _even(spec: Spec, dim: int) -> bool:
    """Whether all parts along a dimension are of one size."""
    parts = 1
    for i, p in enumerate(spec.placements):
        if is_cut(p) and p.dim == dim:  # type: ignore[attr-defined]
            parts *= spec.mesh.size(i)
            if isinstance(p, _StridedShard) and spec.shape[dim] % (p.split_factor * parts):
                return False
    return spec.shape[dim] % parts == 0


def evenly(shape: Any, spec: Spec, placements: Any) -> bool:
    """Whether all parts of a tensor of this shape are of one size."""
    parts = [1] * len(shape)
    for i, p in enumerate(placements):
        if is_cut(p):
            factor = p.split_factor if isinstance(p, _StridedShard) else 1
            parts[p.dim] *= spec.mesh.size(i)
            if p.dim >= len(shape) or shape[p.dim] % (parts[p.dim] * factor):
                return False
    return True


def _partial(op: Any) -> Placement:
    if isinstance(op, str):
        return Partial(op)
    return Partial("sum") if op == 0 else _NormPartial(float(op))


def after(placements: Any, dims: list[int], ndim: int, keep: bool, op: Any) -> list[Placement]:
    """The placements of the result of a reduction over `dims`; `op` is its name, or the order of a norm."""
    places, count = [], 0
    for d in range(ndim):
        places.append(-1 if d in dims and not keep else count)
        count += not (d in dims and not keep)
    found: list[Placement] = []
    for p in placements:
        if not is_cut(p):
            found.append(p)
        elif p.dim in dims:
            found.append(_partial(op))
        else:
            found.append(moved(p, places[p.dim]))
    return found


def reduced(
    call: Call, dims: list[int], keep: bool = False, linear: bool = True, op: Any = "sum"
) -> Fixed:
    """A reduction of the first tensor."""
    spec = call.first
    if op == "avg":
        linear = linear and all(_even(spec, d) for d in dims)
    if any(isinstance(p, Partial) and p.reduce_op != op for p in spec.placements):
        linear = False
    inputs = list(spec.placements) if linear else uncut(spec.placements, dims)
    out = after(inputs, dims, spec.ndim, keep, op)
    return Fixed([out] * call.results, [inputs, *_others(call)], ordered=spec.ordered)


def _others(call: Call) -> list[Any]:
    return [s.placements for s in call.specs[1:]]


@rule(*(n for n in _LINEAR if n not in ("max", "min")), "max.default", "min.default")
def _linear(call: Call) -> Fixed:
    dims = dims_of(call.arg(1) if not isinstance(call.arg(1), bool) else None, call.first.ndim)
    return reduced(call, dims, bool(call.arg(2, False)), op=_LINEAR[call.name])


@rule("argmax argmin")
def _arguments(call: Call) -> Fixed:
    keep = bool(call.arg(2, False))
    return reduced(
        call, dims_of(call.arg(1), call.first.ndim), keep, linear=False, op=call.name[3:]
    )


@rule("cumsum cumprod logcumsumexp cumsum_ cumprod_")
def _scans(call: Call) -> Fixed:
    return reduced(call, [dim_of(call.arg(1), call.first.ndim)], True, linear=False)


@rule("median.default nanmedian.default")
def _medians(call: Call) -> Fixed:
    return reduced(call, list(range(call.first.ndim)), linear=False)


@rule("std.correction var.correction var_mean.correction std_mean.correction std.dim var.dim")
def _moments(call: Call) -> Fixed:
    keep = bool(call.kwargs.get("keepdim", False))
    return reduced(call, dims_of(call.arg(1), call.first.ndim), keep, linear=False)


@rule("logsumexp")
def _logsumexp(call: Call) -> Fixed:
    keep = bool(call.arg(2, call.kwargs.get("keepdim", False)))
    return reduced(call, dims_of(call.arg(1), call.first.ndim), keep, linear=False)


@rule("linalg_vector_norm norm.Scalar norm.ScalarOpt_dim")
def _norms(call: Call) -> Fixed:
    order = call.arg(1, 2)
    op = {float("inf"): "max", float("-inf"): "min"}.get(order, order)
    dims = dims_of(call.arg(2), call.first.ndim)
    return reduced(call, dims, bool(call.arg(3, False)), op=2 if op is None else op)


def _along(call: Call, dim: int, keep: bool) -> Rows:
    rows: list[list[Any]] = []
    for d in range(call.first.ndim):
        if d != dim:
            out = d if keep or d < dim else d - 1
            rows.append([Cut(out), Cut(out), Cut(d)])
    return Rows(rows)


@rule("max.dim min.dim median.dim nanmedian.dim mode")
def _with_indices(call: Call) -> Rows:
    return _along(call, dim_of(call.arg(1, -1), call.first.ndim), bool(call.arg(2, False)))


@rule("kthvalue")
def _kthvalue(call: Call) -> Rows:
    return _along(call, dim_of(call.arg(2, -1), call.first.ndim), bool(call.arg(3, False)))


def _sorted(call: Call, dim: int) -> Rows:
    dims = [d for d in range(call.first.ndim) if d != dim_of(dim, call.first.ndim)]
    return Rows([[R] * 3, *([Shard(d)] * 3 for d in dims)])


@rule("cummax cummin sort.default")
def _sort(call: Call) -> Rows:
    return _sorted(call, call.arg(1, -1))


@rule("sort.stable")
def _stable(call: Call) -> Rows:
    return _sorted(call, call.kwargs.get("dim", call.arg(2, -1)))


@rule("topk")
def _topk(call: Call) -> Rows:
    return _sorted(call, call.arg(2, -1))


@rule("histc")
def _histc(call: Call) -> Rows:
    rows: list[list[Any]] = [[R, R]]
    if len(call.args) == 4:
        rows += [[P("sum"), Shard(d)] for d in range(call.first.ndim)]
    return Rows(rows)
