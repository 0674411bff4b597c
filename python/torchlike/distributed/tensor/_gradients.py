"""How gradients go between a tensor on a mesh and its pieces, and to where the tensor was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.tensor import _dtensor, _moves
from torchlike.distributed.tensor._spec import Spec, TensorMeta, meta_of
from torchlike.distributed.tensor.placement_types import WHOLE, Placement

if TYPE_CHECKING:
    from collections.abc import Sequence


class ToLocal(torch.autograd.Function):
    """This process's piece."""

    @staticmethod
    def forward(ctx: Any, t: Any, grad_placements: Any) -> Any:
        ctx.spec, ctx.grad_placements = t._spec, grad_placements
        ctx.set_materialize_grads(False)
        local = t._local_tensor
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None
        spec: Spec = ctx.spec
        lies = spec.of_piece(grad, ctx.grad_placements or spec.unsplit)
        return _dtensor.DTensor._of([grad], lies), None


class FromLocal(torch.autograd.Function):
    """The whole of which this is a piece."""

    @staticmethod
    def forward(ctx: Any, local: Any, spec: Spec, grad_placements: Any) -> Any:
        ctx.spec, ctx.grad_placements = spec, grad_placements
        ctx.set_materialize_grads(False)
        pieces = [local.view_as(local)]
        if len(spec.mesh._seats) > 1:
            pieces += [local.clone() for _ in spec.mesh._seats[1:]]
        return _dtensor.DTensor._of(pieces, spec)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None
        wanted, spec, pieces = ctx.grad_placements or ctx.spec.unsplit, grad._spec, grad._locals
        if spec.placements != wanted:
            pieces = _moves.redistribute(pieces, spec, spec.placed(wanted))
        return (pieces[0] if len(pieces) == 1 else sum(pieces[1:], pieces[0])), None, None


class Redistribute(torch.autograd.Function):
    """The same whole with other placements, and perhaps in another type."""

    @staticmethod
    def forward(ctx: Any, t: Any, placements: Any, dtypes: Any) -> Any:
        forward, ctx.backward_dtype, ctx.out_dtype = dtypes
        spec, pieces = _cast(t._spec, t._locals, forward)
        ctx.spec = spec
        target = spec
        if spec.placements != placements:
            target = spec.placed(placements, True)
            pieces = _moves.redistribute(pieces, spec, target)
        return _dtensor.DTensor._of(pieces, target)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return (
            _GradOfRedistribute.apply(grad, ctx.spec, ctx.backward_dtype, ctx.out_dtype),
            None,
            None,
        )


class _GradOfRedistribute(torch.autograd.Function):
    """The gradient goes back to where the tensor came from; it stays partial where that was partial."""

    @staticmethod
    def forward(ctx: Any, grad: Any, previous: Spec, dtype: Any, out_dtype: Any) -> Any:
        ctx.spec, ctx.dtype = grad._spec, dtype
        spec, pieces = _cast(grad._spec, grad._locals, dtype)
        wanted = _grad_placements(spec.placements, previous.placements)
        target = spec.placed(wanted, previous.ordered)
        pieces = _moves.redistribute(pieces, spec, target)
        target, pieces = _cast(target, pieces, out_dtype)
        return _dtensor.DTensor._of(pieces, target)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.redistribute(placements=ctx.spec.unsplit), None, None, None


def _grad_placements(now: Sequence[Placement], before: Sequence[Placement]) -> list[Placement]:
    """Where a gradient goes: a tensor that was partial has one that is replicated, or stays partial."""
    wanted: list[Placement] = []
    for current, target in zip(now, before, strict=True):
        if target.is_partial():
            wanted.append(current if current.is_partial() else WHOLE)
        else:
            wanted.append(target)
    return wanted


def _cast(spec: Spec, pieces: Sequence[Any], dtype: Any) -> tuple[Spec, list[Any]]:
    if dtype is None or spec.dtype == dtype:
        return spec, list(pieces)
    meta = TensorMeta(spec.shape, spec.stride, dtype)
    return spec.of(meta), [p.to(dtype) for p in pieces]


class FirstOf(torch.autograd.Function):
    """One of the pieces of a replicated tensor, all of which this process has."""

    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        ctx.spec = t._spec
        return t._locals[0].clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _dtensor.DTensor._of([grad] * len(ctx.spec.mesh._seats), ctx.spec.of(meta_of(grad)))
