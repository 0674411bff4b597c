"""Looking up by places, which PyTorch makes of other operators."""

from __future__ import annotations

import itertools
import operator
from typing import Any

from torchlike._ops import ops
from torchlike._ops.decompositions import of

aten: Any = ops.aten


@of("take_along_dim")
def take_along_dim(self: Any, indices: Any, dim: Any = None) -> Any:
    """`gather`, of what is expanded; without a dimension of all elements in a row."""
    if dim is None:
        return aten.gather(aten.view(self, [-1]), 0, aten.view(indices, [-1]))
    from torchlike import broadcast_shapes, int64

    if not -self.dim() <= dim < self.dim() or indices.dtype != int64:
        return NotImplemented
    d = dim % self.dim()
    apart = [[*t.shape[:d], 1, *t.shape[d + 1 :]] for t in (self, indices)]
    shape = list(broadcast_shapes(*apart))

    def wide(t: Any) -> Any:
        return aten.expand(t, [*shape[:d], t.shape[d], *shape[d + 1 :]])

    return gather_wrapped(wide(self), d, wide(indices))


@of("_gather_wrapped")
def gather_wrapped(self: Any, dim: int, index: Any) -> Any:
    """`gather`, of places that may count from the end."""
    size = self.shape[dim] if self.dim() else 1
    return aten.gather(self, dim, aten.remainder.Scalar(index, size))


@of("_unravel_index")
def unravel_index(self: Any, shape: Any) -> Any:
    """Quotients by the number of elements behind each dimension, within its size."""
    from torchlike import tensor

    behind = itertools.accumulate([1, *reversed(list(shape)[1:])], operator.mul)
    column = aten.unsqueeze(self, -1)
    quotients = aten.floor_divide(column, tensor(list(behind)[::-1], device=self.device))
    return aten.remainder.Tensor(quotients, tensor(list(shape), device=self.device))


@of("combinations")
def combinations(self: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """The elements at all choices of places, each place of a choice a column."""
    if r < 1 or self.dim() != 1:
        return NotImplemented
    from torchlike import int64, tensor

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(self.shape[0]), r))
    places = [tensor([row[k] for row in rows], dtype=int64, device=self.device) for k in range(r)]
    return aten.stack([aten.index_select(self, 0, p) for p in places], 1)
