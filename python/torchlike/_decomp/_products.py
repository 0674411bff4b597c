"""Products in core operators."""

from __future__ import annotations

from typing import Any

from torchlike._decomp._table import aten, core, in_single


@core("mv.default")
@in_single
def mv(self: Any, vec: Any) -> Any:
    """A matrix times a vector."""
    return aten.sum.dim_IntList(aten.mul.Tensor(self, vec), [1])


@core("dot.default")
@in_single
def dot(self: Any, tensor: Any) -> Any:
    """The sum of products."""
    return aten.sum.dim_IntList(aten.mul.Tensor(self, tensor), [])


@core("vdot.default")
def vdot(self: Any, other: Any) -> Any:
    """The sum of products with the conjugate."""
    return NotImplemented if self.is_complex() else dot(self, other)


@core("baddbmm.default")
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * self + alpha * batch1 @ batch2."""
    made = aten.bmm.default(batch1, batch2)
    made = made if alpha == 1 else aten.mul.Tensor(made, alpha)
    if beta == 0:
        return made
    return aten.add.Tensor(self if beta == 1 else aten.mul.Tensor(self, beta), made)


@core("addr.default")
@in_single
def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * self + alpha * vec1 x vec2."""
    self = aten.expand.default(self, [vec1.shape[0], vec2.shape[0]])
    before = None if beta == 0 else aten.mul.Tensor(self, beta)
    column = aten.view.default(vec1, [vec1.shape[0], 1])
    made = aten.mul.Tensor(aten.mul.Tensor(column, vec2), alpha)
    return made if before is None else aten.add.Tensor(before, made)
