"""Images and lines: pooling, resizing, padding, patches, points between elements. Examples and channels may be cut."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.tensor._rules import Call, Cut, P, R, Rows, dim_of, rule
from torchlike.distributed.tensor._rules.sizes import RESIZED
from torchlike.distributed.tensor.placement_types import Shard


def _examples(call: Call, spatial: int, count: int) -> list[list[Any]]:
    """Rows in which examples or channels are cut, of all tensors alike; without examples, the channels come first."""
    return [[Cut(d)] * count for d in range(max(call.first.ndim - spatial, 0))]


_AVERAGES = (
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d"
)
_MAXIMA = (
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d "
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices"
)


def _spatial(name: str) -> int:
    """How many dimensions windows have: 2 of `max_pool2d_with_indices`."""
    return int(next(c for c in name if c.isdigit()))


@rule(_AVERAGES, _MAXIMA)
def _pool(call: Call) -> Rows:
    count = call.results + len(call.specs)
    rows: list[list[Any]] = [[R] * count, [Shard(0)] * count]
    if call.name in _AVERAGES.split():
        rows += [[P("sum")] * count, [P("avg")] * count]
    if call.first.ndim >= _spatial(call.name) + 2:
        rows.append([Shard(1)] * count)
    return Rows(rows)


@rule("max_unpool2d max_unpool3d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward")
def _pool_two(call: Call) -> Rows:
    return Rows(_examples(call, _spatial(call.name), 3))


@rule("avg_pool2d_backward avg_pool3d_backward")
def _average_backward(call: Call) -> Rows:
    """Of the second tensor only the size matters."""
    rows = _examples(call, _spatial(call.name), 3)
    return Rows(rows + [[P(r), P(r), R] for r in ("sum", "avg")])


@rule("max_pool2d_with_indices_backward max_pool3d_with_indices_backward")
@rule("adaptive_max_pool2d_backward adaptive_max_pool3d_backward")
def _max_pool_backward(call: Call) -> Rows:
    rows = _examples(call, _spatial(call.name), 4)
    return Rows(rows + [[P(r), P(r), R, R] for r in ("sum", "avg")])


@rule(*RESIZED, *(n + "_backward" for n in RESIZED))
def _resized(call: Call) -> Rows:
    return Rows([[Cut(0)] * 2, [Cut(1)] * 2, [P("sum")] * 2, [P("avg")] * 2])


@rule("grid_sampler_2d grid_sampler_3d")
def _grid(call: Call) -> Rows:
    return Rows([[Cut(0)] * 3, [P("sum"), P("sum"), R], [P("avg"), P("avg"), R]])


@rule("grid_sampler_2d_backward grid_sampler_3d_backward")
def _grid_backward(call: Call) -> Rows:
    return Rows([[Cut(0)] * 5])


@rule("pixel_shuffle pixel_unshuffle")
def _shuffle(call: Call) -> Rows:
    """Whole pictures; what is moved may be partial."""
    rows: list[list[Any]] = [[Cut(d)] * 2 for d in range(call.first.ndim - 3)]
    return Rows(rows + [[P(r), P(r)] for r in ("sum", "avg")])


_PADS = " ".join(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
_PADS += " " + " ".join(n + "_backward" for n in _PADS.split())


@rule(_PADS)
def _pads(call: Call) -> Rows:
    """Lines whose edges are repeated; the gradient also looks at the size of what was padded."""
    count = call.results + len(call.specs)
    rows = _examples(call, _spatial(call.name), count)
    return Rows(rows + [[P(r)] * 2 + [R] * (count - 2) for r in ("sum", "avg")])


@rule("im2col col2im")
def _patches(call: Call) -> Rows:
    """Patches of one example; their columns mix channels and places."""
    batched = call.first.ndim == (4 if call.name == "im2col" else 3)
    linear: list[list[Any]] = [[P(r), P(r)] for r in ("sum", "avg")]
    return Rows([[Cut(0)] * 2, *linear] if batched else linear)


@rule("unfold")
def _windows(call: Call) -> Rows:
    """Windows along a dimension."""
    dim = dim_of(call.args[1], call.first.ndim)
    return Rows([[Cut(d)] * 2 for d in range(call.first.ndim) if d != dim])


@rule("unfold_backward")
def _windows_backward(call: Call) -> Rows:
    ndim = len(call.args[1])
    dim = dim_of(call.args[2], ndim)
    rows: list[list[Any]] = [[Cut(d)] * 2 for d in range(ndim) if d != dim]
    return Rows([*rows, [P("sum"), P("sum")]])
