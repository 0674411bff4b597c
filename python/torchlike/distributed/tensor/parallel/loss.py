"""Cross entropy of logits whose classes are cut: three small reductions in place of gathering the classes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed.tensor import _handlers, _moves
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._rules import removed, uncut
from torchlike.distributed.tensor._spec import Spec, TensorMeta, contiguous
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Replicate,
    Shard,
    _MaskPartial,
    is_cut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["loss_parallel"]

_NONE, _MEAN, _SUM = 0, 1, 2


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside, `log_softmax` and `nll_loss`, and so `cross_entropy`, work on logits whose classes are cut along one
    dimension of the mesh, and leave them so. Backward has to run inside too."""
    before = {name: _handlers.HANDLERS.get(name) for name in _LOSSES}
    _handlers.HANDLERS.update(_LOSSES)
    context = _C._calls_context(1)
    try:
        yield
    finally:
        _C._calls_context(context)
        for name, handler in before.items():
            if handler is None:
                _handlers.HANDLERS.pop(name, None)
            else:
                _handlers.HANDLERS[name] = handler


def _cut_at(spec: Spec, dim: int) -> int:
    """The dimension of the mesh that cuts a dimension.

    Raises:
        ValueError: if there is not exactly one, or another one is partial.
    """
    found = [i for i, p in enumerate(spec.placements) if p == Shard(dim)]
    if len(found) != 1:
        raise ValueError(
            f"loss_parallel() requires exactly one mesh dim to shard tensor dimension {dim}, but got placements "
            f"{spec.placements} with {len(found)} such mesh dim(s)."
        )
    for i, p in enumerate(spec.placements):
        if i != found[0] and not (p.is_shard() or p.is_replicate()):
            raise ValueError(
                f"loss_parallel() expects non-TP mesh dims to be Shard or Replicate, got {p} at dim {i}."
            )
    return found[0]


def _pieces(t: Any, spec: Spec, placements: Any) -> list[Any]:
    """The pieces of a tensor that has to lie like this, or is the same on all ranks.

    Raises:
        RuntimeError: if it lies otherwise.
        ValueError: if a plain tensor would have to be cut.
    """
    if isinstance(t, DTensor):
        if t.placements != tuple(placements):
            raise RuntimeError(f"Expected {tuple(placements)} but got {t.placements}.")
        return list(t._locals)
    if any(map(is_cut, placements)):
        raise ValueError(
            "loss_parallel() requires a DTensor (not a plain torch.Tensor) when the derived placements "
            f"{tuple(placements)} contain Shard — this happens on a multi-dimensional mesh with a batch-sharded "
            "non-TP dim. Wrap the tensor with DTensor.from_local or distribute_tensor to make the sharding explicit."
        )
    return [t] * len(spec.mesh._seats)


def _log_softmax(func: Any, args: Any, kwargs: Any) -> Any:
    x, dim = args[0], args[1]
    spec = x._spec
    dim = dim + spec.ndim if dim < 0 else dim
    at = _cut_at(spec, dim)
    dtype = spec.dtype
    wide = [p.float() if dtype.itemsize < 4 else p for p in x._locals]
    if any(p.numel() for p in wide):
        tops = [p.amax(dim, keepdim=True) for p in wide]
        tops = _moves.all_reduce(tops, spec.mesh, at, "max")
        wide = [p - t for p, t in zip(wide, tops, strict=True)]
    sums = [p.exp().sum(dim, keepdim=True) for p in wide]
    sums = _moves.all_reduce(sums, spec.mesh, at, "sum")
    made = [(p - s.log()).to(dtype) for p, s in zip(wide, sums, strict=True)]
    return DTensor._of(made, spec)


def _log_softmax_backward(func: Any, args: Any, kwargs: Any) -> Any:
    """The gradient of both is computed with that of the loss, and arrives here as it is."""
    return args[0].to(args[3]) if args[0].dtype != args[3] else args[0]


def _spread(weight: Any, ndim: int) -> Any:
    """Weights of classes, which are the second dimension."""
    return weight.view([1, -1, *[1] * (ndim - 2)]) if ndim > 1 else weight


def _valid(target: Any, ignored: int) -> Any:
    return target != ignored


def _nll(func: Any, args: Any, kwargs: Any) -> Any:
    x, target, weight, reduction, ignored = args
    spec = x._spec
    channel = 1 if spec.ndim >= 2 else 0
    at = _cut_at(spec, channel)
    placements = removed(uncut(spec.placements, [channel]), channel)
    if reduction == _MEAN and spec.mesh.ndim > 1:
        raise NotImplementedError(
            "loss_parallel() with reduction='mean' is only supported on one-dimensional DeviceMesh; got mesh with "
            f"ndim={spec.mesh.ndim}. Use reduction='sum' or 'none' instead."
        )
    targets = _pieces(target, spec, placements)
    weights = _weights(weight, spec)
    values = list(x._locals)
    if weights is not None:
        values = [
            p * _spread(_own_classes(w, spec, s, channel), spec.ndim)
            for s, (p, w) in enumerate(zip(values, weights, strict=True))
        ]
    picked = _picked(values, targets, spec, at, channel, ignored)
    if weights is None:
        total = [_valid(t, ignored).sum().to(p.dtype) for t, p in zip(targets, picked, strict=True)]
    else:
        total = [_weighted(t, w, ignored) for t, w in zip(targets, weights, strict=True)]
    return _reduced(spec, picked, total, placements, reduction, at, target)


def _weights(weight: Any, spec: Spec) -> list[Any] | None:
    if weight is None:
        return None
    return _pieces(weight, spec, (Replicate(),) * spec.mesh.ndim)


def _own_classes(weight: Any, spec: Spec, seat: int, channel: int) -> Any:
    """The weights of the classes that a rank has."""
    codes = spec.lies[0]
    shape, offset = spec.mesh._seats[seat].local(list(spec.shape), codes)
    start = min(offset[channel], weight.shape[0] - shape[channel])
    return weight.narrow(0, start, shape[channel])


def _picked(
    values: list[Any], targets: list[Any], spec: Spec, at: int, channel: int, ignored: int
) -> list[Any]:
    """The negative log-probability of each target, from the rank that has its class."""
    safe = [torch.where(_valid(t, ignored), t, 0).unsqueeze(channel) for t in targets]
    masked = _MaskPartial(offset_shape=spec.shape, offset_dim=channel)
    found = masked._partition(safe, spec.mesh, at)
    rows = [torch.gather(v, channel, i) for v, i in zip(values, found, strict=True)]
    rows = _moves.all_reduce(masked.applied(rows), spec.mesh, at, "sum")
    return [
        torch.where(_valid(t, ignored), -r.squeeze(channel), 0)
        for r, t in zip(rows, targets, strict=True)
    ]


def _weighted(target: Any, weight: Any, ignored: int) -> Any:
    safe = torch.where(_valid(target, ignored), target, 0)
    taken = weight.index_select(0, safe.flatten()).view(safe.shape)
    return torch.where(_valid(target, ignored), taken, 0).sum()


def _reduced(
    spec: Spec,
    picked: list[Any],
    total: list[Any],
    placements: Any,
    reduction: int,
    at: int,
    target: Any,
) -> Any:
    shape = tuple(target.shape)
    if reduction == _NONE:
        meta = TensorMeta(shape, contiguous(shape), spec.dtype)
        return DTensor._of(picked, Spec(spec.mesh, placements, meta)), picked[0].new_zeros(())
    sums = [p.sum() for p in picked]
    if reduction == _MEAN:
        sums = [s / t for s, t in zip(sums, total, strict=True)]
    out = [
        Replicate() if i == at else Partial() if is_cut(p) else p
        for i, p in enumerate(spec.placements)
    ]
    return DTensor._of(sums, Spec(spec.mesh, out, TensorMeta((), (), spec.dtype))), total[0]


def _nll_backward(func: Any, args: Any, kwargs: Any) -> Any:
    grad, x, target, weight, reduction, ignored, total = args
    spec = x._spec
    channel = 1 if spec.ndim >= 2 else 0
    at = _cut_at(spec, channel)
    placements = removed(uncut(spec.placements, [channel]), channel)
    targets = _pieces(target, spec, placements)
    weights = _weights(weight, spec)
    if reduction == _NONE:
        grad = grad.redistribute(placements=placements)
    grads = list(grad._locals)
    if reduction == _MEAN:
        grads = [
            g / (total._locals[s] if isinstance(total, DTensor) else total)
            for s, g in enumerate(grads)
        ]
    masked = _MaskPartial(offset_shape=spec.shape, offset_dim=channel)
    safe = [torch.where(_valid(t, ignored), t, 0).unsqueeze(channel) for t in targets]
    found = masked._partition(safe, spec.mesh, at)
    made = []
    for s, (piece, target_piece, index, mask) in enumerate(
        zip(x._locals, targets, found, masked.masks, strict=True)
    ):
        update = mask.to(piece.dtype) - 1.0
        own = torch.zeros_like(piece).scatter(channel, index, update)
        g = grads[s]
        g = g.unsqueeze(channel) if piece.ndim > g.ndim > 0 else g
        if weights is not None:
            g = g * weights[s].index_select(0, safe[s].flatten()).view(safe[s].shape)
        g = torch.where(_valid(target_piece, ignored).unsqueeze(channel), g, 0)
        made.append((own + piece.exp()) * g)
    return DTensor._of(made, spec)


_LOSSES = {
    "_log_softmax": _log_softmax,
    "_log_softmax_backward_data": _log_softmax_backward,
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
}
