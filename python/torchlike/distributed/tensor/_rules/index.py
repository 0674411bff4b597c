"""Elements by their positions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torchlike.distributed.tensor._rules import Call, Cut, P, R, Rows, dim_of, rule
from torchlike.distributed.tensor._rules.pointwise import shared
from torchlike.distributed.tensor._spec import Spec
from torchlike.distributed.tensor.placement_types import Partial, Shard, _MaskPartial


@rule("scatter.value scatter_.value scatter.src scatter_.src")
@rule("scatter.reduce scatter_.reduce scatter.value_reduce scatter_.value_reduce")
def _scatter(call: Call) -> Rows:
    spec, index = call.specs[:2]
    source = call.specs[2].shape if len(call.specs) > 2 else None
    dim = dim_of(call.args[1], spec.ndim)
    count = len(call.specs) + 1
    rows: list[list[Any]] = [[R] * count]
    if spec.ndim == index.ndim:
        for d in range(spec.ndim):
            alike = spec.shape[d] == index.shape[d] and (
                source is None or source[d] == index.shape[d]
            )
            if d != dim and alike:
                rows.append([Shard(d)] * count)
    return Rows(rows)


@rule("scatter_add scatter_add_ scatter_reduce.two")
def _scatter_add(call: Call) -> Rows:
    spec, index = call.specs[:2]
    dim = dim_of(call.args[1], spec.ndim)
    rows: list[list[Any]] = [[R] * 4]
    if spec.ndim == index.ndim:
        dims = [d for d in range(spec.ndim) if d != dim and spec.shape[d] == index.shape[d]]
        rows += [[Shard(d)] * 4 for d in dims]
    return Rows(rows)


@rule("gather")
def _gather(call: Call) -> Rows:
    spec, index = call.specs[:2]
    dim = dim_of(call.args[1], spec.ndim)
    rows: list[list[Any]] = [[R] * 3]
    if dim < index.ndim and index.shape[dim] == 1:
        masked = _MaskPartial(offset_shape=spec.shape, offset_dim=dim)
        rows.append([masked, Shard(dim), masked])
    rows.append([Shard(dim), R, Shard(dim)])
    if spec.ndim == index.ndim:
        # Fewer places than elements would lie on other ranks than those.
        alike = [d for d in range(spec.ndim) if d != dim and spec.shape[d] == index.shape[d]]
        rows += [[Shard(d)] * 3 for d in alike]
    return Rows(rows)


@rule("index_select")
def _index_select(call: Call) -> Rows:
    spec = call.first
    dim = dim_of(call.args[1], spec.ndim)
    rows: list[list[Any]] = [[Cut(d), Cut(d), R] for d in range(spec.ndim) if d != dim]
    rows.append([Cut(dim), R, Cut(0)])
    return Rows(rows + [[P(r), P(r), R] for r in Partial.ALL_REDUCE_OPS])


def _broadcast_rows(metas: list[Spec], at: int) -> list[list[Any]]:
    """Rows in which positions are cut, along each dimension that they are broadcast to."""
    ndim = max(m.ndim for m in metas)
    rows: list[list[Any]] = []
    for b in range(ndim):
        dims = [(b - (ndim - m.ndim), m) for m in metas]
        sizes = [m.shape[d] if d >= 0 else 1 for d, m in dims]
        if all(s == 1 for s in sizes):
            continue
        cut = [Cut(d) if s > 1 else R for (d, _), s in zip(dims, sizes, strict=True)]
        rows.append([Cut(b + at), R, *cut])
    return rows


@rule("index.Tensor _unsafe_index.Tensor")
def _index(call: Call) -> Rows:
    spec, indices = call.first, call.args[1]
    at = [i for i, x in enumerate(indices) if x is not None]
    metas = [x for x in indices if x is not None]
    ndim = max(m.ndim for m in metas)
    together = all(b - a == 1 for a, b in pairwise(at))
    first = at[0] if together else 0
    rows: list[list[Any]] = []
    for d in (d for d in range(spec.ndim) if d not in at):
        out = d if d < first else d + ndim - sum(d > i for i in at)
        rows.append([Cut(out), Cut(d), *[R] * len(at)])
    rows += _broadcast_rows(metas, first)
    return Rows(rows + [[P(r), P(r), *[R] * len(at)] for r in Partial.LINEAR_REDUCE_OPS])


@rule("index_put index_put_ _index_put_impl_ _unsafe_index_put")
def _index_put(call: Call) -> Rows:
    spec, indices, values = call.first, call.args[1], call.args[2]
    at = sorted(i for i, x in enumerate(indices) if x is not None)
    ndim = len(shared([x.shape for x in indices if x is not None]))
    together = len(at) <= 1 or at[-1] - at[0] + 1 == len(at)
    free = [d for d in range(spec.ndim) if d not in at]
    rows: list[list[Any]] = []
    for i, d in enumerate(free):
        if together and at:
            place = d if d < at[0] else d - len(at) + ndim
        else:
            place = ndim + i
        place -= ndim + len(free) - values.ndim
        cut = Cut(place) if place >= 0 and values.shape[place] != 1 else R
        rows.append([Cut(d), Cut(d), *[R] * len(at), cut])
    return Rows([*rows, [P("sum"), P("sum"), *[R] * len(at), P("sum")]])


def _beside(call: Call, row: Any, partial: list[list[Any]] | None = None) -> Rows:
    ndim = call.first.ndim
    dim = dim_of(call.args[1], ndim)
    return Rows([row(d) for d in range(ndim) if d != dim] + (partial or []))


@rule("index_fill.int_Scalar index_fill_.int_Scalar")
def _fill(call: Call) -> Rows:
    partial = [[P(r), P(r), R] for r in ("avg", "max", "min")]
    return _beside(call, lambda d: [Cut(d), Cut(d), R], partial)


@rule("index_fill.int_Tensor index_fill_.int_Tensor")
def _fill_tensor(call: Call) -> Rows:
    partial = [[P(r), P(r), R, P(r)] for r in Partial.ALL_REDUCE_OPS]
    return _beside(call, lambda d: [Cut(d), Cut(d), R, R], partial)


@rule("index_reduce index_reduce_")
def _beside_dim(call: Call) -> Rows:
    return _beside(call, lambda d: [Cut(d), Cut(d), R, Cut(d)])


@rule("bucketize.Tensor")
def _bucketize(call: Call) -> Rows:
    rows: list[list[Any]] = [[Cut(d), Cut(d), R] for d in range(call.first.ndim)]
    rows.append([P("sum"), R, Cut(0)])
    return Rows(rows + [[P(r), P(r), R] for r in ("max", "min")])


@rule("searchsorted.Tensor")
def _searchsorted(call: Call) -> Rows:
    """One line for all values, or one for each line of them."""
    edges, values = call.specs[:2]
    sorter = [R] * (len(call.specs) - 2)
    if edges.ndim == 1:
        return Rows([[Cut(d), R, Cut(d), *sorter] for d in range(values.ndim)])
    return Rows([[Cut(d)] * (len(call.specs) + 1) for d in range(values.ndim - 1)])


@rule("bucketize.Scalar searchsorted.Scalar")
def _place(call: Call) -> Rows:
    return Rows([[R] * (len(call.specs) + 1)])


@rule("embedding")
def _embedding(call: Call) -> Rows:
    """The weight first, then the positions; rows of a cut table are masked where they are not."""
    weight, index = call.specs[:2]
    masked = _MaskPartial(offset_shape=weight.shape, offset_dim=0)
    rows: list[list[Any]] = [[Shard(index.ndim), Shard(1), R], [masked, Shard(0), masked]]
    return Rows(rows + [[Shard(d), R, Shard(d)] for d in range(index.ndim)])


@rule("embedding_dense_backward")
def _embedding_backward(call: Call) -> Rows:
    grad, index = call.specs[:2]
    by_frequency = call.arg(4, False)
    rows: list[list[Any]] = [[Shard(1), Shard(grad.ndim - 1), R]]
    if not by_frequency:
        rows += [[P("sum"), Shard(d), Shard(d)] for d in range(index.ndim)]
    return Rows([*rows, [P("sum"), P("sum"), R]])
