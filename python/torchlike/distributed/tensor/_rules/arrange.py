"""Joining, splitting, slicing and turning round: the dimension along which it happens cannot be cut."""

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
    inserted,
    removed,
    rule,
    uncut,
)
from torchlike.distributed.tensor.placement_types import Partial, Placement, Replicate, is_cut

_KEPT = ("sum", "avg", "max", "min")


def _is_cut_along(placements: Any, dim: int) -> bool:
    return any(is_cut(p) and p.dim == dim for p in placements)


def _merge(a: Placement, b: Placement) -> Placement:
    if a == b:
        return a
    if isinstance(a, Partial):
        if is_cut(b):
            return b
        return R if isinstance(b, Partial) else a
    if is_cut(a):
        return R if is_cut(b) else a
    return b


@rule("stack")
def _stack(call: Call) -> Fixed:
    placements = list(call.first.placements)
    for spec in call.specs[1:]:
        placements = [_merge(a, b) for a, b in zip(placements, spec.placements, strict=True)]
    dim = dim_of(call.arg(1, 0), call.first.ndim + 1)
    return Fixed([inserted(placements, dim)], [placements] * len(call.specs))


@rule("cat")
def _cat(call: Call) -> Fixed:
    dim = dim_of(call.arg(1, 0), call.first.ndim)
    best: tuple[float, Any] | None = None
    at_rest = None
    for spec in call.specs:
        placements = uncut(spec.placements, [dim], partial=False)
        cost = sum(cost_of(s, placements) for s in call.specs)
        if cost == 0 and all(s.placements == tuple(placements) for s in call.specs):
            at_rest = placements
        if best is None or cost < best[0]:
            best = (cost, placements)
    assert best is not None
    chosen = at_rest or best[1]
    return Fixed([chosen], [chosen] * len(call.specs))


def cost_of(spec: Any, placements: Any) -> float:
    """What it costs to bring a tensor there, in microseconds."""
    cost: float = spec.mesh._seats[0].cost(
        list(spec.shape), spec.dtype.itemsize, spec.lies, spec.placed(placements).lies
    )
    return cost


@rule("split.Tensor split_with_sizes split_with_sizes_copy split_copy.Tensor chunk")
@rule("unsafe_split.Tensor unsafe_split_with_sizes")
def _split(call: Call) -> Fixed:
    dim = dim_of(call.arg(2, 0), call.first.ndim)
    placements = uncut(call.first.placements, [dim], partial=False)
    return Fixed([placements], [placements], ordered=call.first.ordered)


@rule("unbind.int")
def _unbind(call: Call) -> Fixed:
    spec = call.first
    dim = dim_of(call.arg(1, 0), spec.ndim)
    if _is_cut_along(spec.placements, dim):
        raise RuntimeError(
            f"Attempted to unbind along the sharded dimension {dim}. ",
            "It cannot be performed without redistribution, which is disallowed by the current operator.",
        )
    return Fixed([removed(spec.placements, dim)], [spec.placements], ordered=spec.ordered)


@rule("select.int select_copy.int")
def _select(call: Call) -> Fixed:
    dim = dim_of(call.args[1], call.first.ndim)
    placements = uncut(call.first.placements, [dim], partial=False)
    return Fixed([removed(placements, dim)], [placements], ordered=call.first.ordered)


@rule("select_backward")
def _select_backward(call: Call) -> Fixed:
    dim = dim_of(call.args[2], call.first.ndim + 1)
    return Fixed([inserted(call.first.placements, dim)], [call.first.placements])


@rule("slice.Tensor slice_copy.Tensor")
def _slice(call: Call) -> Fixed:
    spec = call.first
    dim = dim_of(call.arg(1, 0), spec.ndim)
    size = spec.shape[dim]
    start, end, step = call.arg(2), call.arg(3), call.arg(4, 1)
    end = size if end is None or end > size else end
    whole = (start or 0) == 0 and end == size and step == 1
    placements = spec.placements if whole else uncut(spec.placements, [dim], partial=False)
    return Fixed([placements], [placements], ordered=spec.ordered)


@rule("slice_backward")
def _slice_backward(call: Call) -> Fixed:
    dim = dim_of(call.args[2], call.first.ndim)
    placements = uncut(call.first.placements, [dim], partial=False)
    return Fixed([placements], [placements])


@rule("slice_scatter")
def _slice_scatter(call: Call) -> Fixed:
    dim = dim_of(call.arg(2, 0), call.first.ndim)
    placements = uncut(call.first.placements, [dim])
    return Fixed([placements], [placements, placements])


@rule("select_scatter")
def _select_scatter(call: Call) -> Rows:
    ndim = call.first.ndim
    dim = dim_of(call.args[2], ndim)
    dims = [d for d in range(ndim) if d != dim]
    return Rows([[Cut(d), Cut(d), Cut(d if d < dim else d - 1)] for d in dims])


@rule("diagonal_scatter")
def _diagonal_scatter(call: Call) -> Rows:
    ndim = call.first.ndim
    taken = sorted(dim_of(d, ndim) for d in (call.arg(3, 0), call.arg(4, 1)))
    free = [d for d in range(ndim) if d not in taken]
    return Rows([[Cut(d), Cut(d), Cut(d - sum(d > t for t in taken))] for d in free])


def _beside(call: Call, dims: Any) -> Rows:
    ndim = call.first.ndim
    active = {dim_of(d, ndim) for d in dims}
    rows: list[list[Any]] = [[Cut(d), Cut(d)] for d in range(ndim) if d not in active]
    return Rows(rows + [[P(r), P(r)] for r in _KEPT])


@rule("roll")
def _roll(call: Call) -> Rows:
    return _beside(call, call.arg(2) or range(call.first.ndim))


@rule("channel_shuffle")
def _channel_shuffle(call: Call) -> Rows:
    return _beside(call, [1])


@rule("flip _fft_c2c _fft_r2c _fft_c2r")
def _flip(call: Call) -> Rows:
    return _beside(call, call.args[1])


@rule("constant_pad_nd")
def _pad(call: Call) -> Rows:
    ndim, pad = call.first.ndim, call.args[1]
    padded = {ndim - 1 - i for i in range(len(pad) // 2) if pad[2 * i] or pad[2 * i + 1]}
    rows: list[list[Any]] = [[Cut(d), Cut(d)] for d in range(ndim) if d not in padded]
    zero = not padded or call.arg(2, 0) == 0
    ops = _KEPT if zero else _KEPT[1:]
    return Rows(rows + [[P(r), P(r)] for r in ops])


@rule("equal is_same_size")
def _equal(call: Call) -> Fixed:
    """Compared in the same placements: those of the tensor that is cut more."""
    a, b = call.specs[:2]
    chosen = a if a.num_shards >= b.num_shards else b
    placements = [Replicate() if isinstance(p, Partial) else p for p in chosen.placements]
    if a.ndim == 0 or b.ndim == 0:
        placements = [Replicate()] * call.mesh.ndim
    return Fixed([None], [placements, placements])
