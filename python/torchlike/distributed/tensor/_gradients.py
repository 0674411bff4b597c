"""How the gradient of one piece becomes that of a whole, where this process has all pieces."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.distributed.tensor import _dtensor
from torchlike.distributed.tensor._spec import meta_of


class FirstOf(torch.autograd.Function):
    """One of the pieces of a replicated tensor, all of which this process has."""

    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        ctx.spec = t._spec
        return t._locals[0].clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _dtensor.DTensor._of([grad] * len(ctx.spec.mesh._seats), ctx.spec.of(meta_of(grad)))
