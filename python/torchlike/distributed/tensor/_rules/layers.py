"""Layers: softmax, norms, losses, convolutions, attention."""

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
    removed,
    rule,
    uncut,
)
from torchlike.distributed.tensor._rules.reduce import after, evenly
from torchlike.distributed.tensor._spec import Spec
from torchlike.distributed.tensor.placement_types import Shard


@rule("_softmax _log_softmax _safe_softmax")
def _softmax(call: Call) -> Fixed:
    dim = dim_of(call.args[1], call.first.ndim)
    placements = uncut(call.first.placements, [dim])
    return Fixed([placements], [placements], ordered=call.first.ordered)


@rule("_softmax_backward_data _log_softmax_backward_data")
def _softmax_backward(call: Call) -> Fixed:
    grad, out = call.specs[:2]
    chosen = grad if grad.num_shards >= out.num_shards else out
    placements = uncut(chosen.placements, [dim_of(call.args[2], grad.ndim)])
    return Fixed([placements], [placements, placements])


def _no_parts(placements: Any) -> list[Any]:
    return [R] * len(placements)


@rule("nll_loss_forward nll_loss2d_forward")
def _nll(call: Call) -> Fixed:
    spec, target = call.specs[:2]
    weight, reduction = call.args[2], call.args[3]
    channel = 1 if spec.ndim >= 2 else 0
    placements = uncut(spec.placements, [channel])
    to = removed(placements, channel)
    inputs: list[Any] = [placements, to]
    if isinstance(weight, Spec):
        inputs.append(_no_parts(weight.placements))
    if reduction == 0:
        return Fixed([to, [R] * call.mesh.ndim], inputs)
    if reduction == 1 and not evenly(target.shape, target, to):
        raise RuntimeError(
            "The intermediate results of nll_loss cannot be evenly sharded, resulting in biased mean result."
        )
    dims = list(range(target.ndim))
    loss = after(to, dims, target.ndim, False, "avg" if reduction == 1 else "sum")
    return Fixed([loss, after(to, dims, target.ndim, False, "sum")], inputs)


@rule("nll_loss_backward nll_loss2d_backward")
def _nll_backward(call: Call) -> Fixed:
    grad, spec = call.specs[:2]
    weight, reduction, total = call.args[3], call.args[4], call.args[6]
    channel = 1 if spec.ndim >= 2 else 0
    placements = uncut(spec.placements, [channel])
    to = removed(placements, channel)
    inputs: list[Any] = [to if reduction == 0 else _no_parts(grad.placements), placements, to]
    if isinstance(weight, Spec):
        inputs.append(_no_parts(weight.placements))
    inputs.append(_no_parts(total.placements) if reduction == 1 else total.placements)
    return Fixed([placements], inputs)


def _lead(shape: Any, normalized: Any) -> int:
    """How many dimensions are not normalised over."""
    return len(shape) - (1 if isinstance(normalized, int) else len(normalized))


@rule("native_layer_norm _fused_rms_norm")
def _norm(call: Call) -> Rows:
    count = len(call.specs) - 1
    dims = range(_lead(call.first.shape, call.args[1]))
    return Rows([[Cut(d)] * (call.results + 1) + [R] * count for d in dims])


@rule("native_layer_norm_backward")
def _norm_backward(call: Call) -> Rows:
    weight, bias = (isinstance(call.args[i], Spec) for i in (5, 6))
    rows: list[list[Any]] = []
    for d in range(_lead(call.args[1].shape, call.args[2])):
        parts = [P("sum") if given else None for given in (weight, bias)]
        rows.append([Cut(d), *parts, *[Cut(d)] * 4, *[R] * (weight + bias)])
    if not rows:
        gaps = [R if given else None for given in (weight, bias)]
        rows = [[R, *gaps, *[R] * (4 + weight + bias)]]
    return Rows(rows)


@rule("_fused_rms_norm_backward")
def _rms_backward(call: Call) -> Rows:
    weight = isinstance(call.args[4], Spec)
    part = P("sum") if weight else None
    lead = range(_lead(call.args[1].shape, call.args[2]))
    rows: list[list[Any]] = [[Cut(d), part, *[Cut(d)] * 3, *[R] * weight] for d in lead]
    return Rows(rows or [[R, R if weight else None, *[R] * (3 + weight)]])


@rule("convolution")
def _convolution(call: Call) -> Rows:
    return Rows([[Cut(0), Cut(0), *[R] * (len(call.specs) - 1)]])


@rule("convolution_backward")
def _convolution_backward(call: Call) -> Rows:
    wanted = call.args[10]
    row = [Cut(0), P("sum"), P("sum"), Cut(0), Cut(0), R]
    for i, given in enumerate(wanted):
        row[i] = row[i] if given else None
    if call.args[3] is None:
        row[2] = None
    return Rows([row])


@rule(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update"
)
def _batch_norm(call: Call) -> Rows:
    more = [R] if call.results == 4 else []
    return Rows([[Cut(1), Cut(0), Cut(0), *more, Cut(1), *[Cut(0)] * (len(call.specs) - 1)]])


@rule("native_batch_norm_backward")
def _batch_norm_backward(call: Call) -> Rows:
    return Rows([[Cut(1), Cut(0), Cut(0), Cut(1), Cut(1), *[Cut(0)] * (len(call.specs) - 2)]])


@rule("native_group_norm")
def _group_norm(call: Call) -> Rows:
    return Rows([[*[Cut(0)] * 4, *[R] * (len(call.specs) - 1)]])


@rule("native_group_norm_backward")
def _group_norm_backward(call: Call) -> Rows:
    """Examples may be cut; gradients of what all of them share are sums over them."""
    whole: list[Any] = [R, R, R]
    cut: list[Any] = [Cut(0), P("sum"), P("sum")]
    masked = [
        [p if m else None for p, m in zip(row, call.args[9], strict=True)] for row in (whole, cut)
    ]
    weights = len(call.specs) - 4
    return Rows([[*masked[0], *[R] * (4 + weights)], [*masked[1], *[Cut(0)] * 4, *[R] * weights]])


@rule("linalg_cross")
def _cross(call: Call) -> Rows:
    ndim = call.first.ndim
    return Rows(
        [[Cut(d)] * 3 for d in range(ndim) if d != dim_of(call.kwargs.get("dim", -1), ndim)]
    )


def _heads(call: Call, outs: list[Any], first: int) -> Rows:
    """Attention: heads or examples may be cut. `outs`: which results there are; `first`: where the tensors begin that
    are cut."""
    rows: list[list[Any]] = []
    for d in (1, 0):
        cut = [None if o is None else Shard(d) for o in outs]
        rows.append([*cut, *[Shard(d)] * (len(call.specs) - first), *[R] * first])
    return Rows([[None if o is None else R for o in outs] + [R] * len(call.specs), *rows])


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _flash(call: Call) -> Rows:
    return _heads(call, [R, R], 1 if len(call.specs) > 3 else 0)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_backward(call: Call) -> Rows:
    return _heads(call, [R, R, R], 1 if len(call.specs) > 6 else 0)
