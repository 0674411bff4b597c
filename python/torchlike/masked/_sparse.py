"""Masked reductions of sparse tensors: over the elements that a mask lets through, or that are specified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torchlike as torch
from torchlike import Tensor

LAYOUTS = (torch.sparse_coo, torch.sparse_csr)
_WITHOUT_KEEPDIM = "reduction operations on CSR tensors with keepdim=False is unsupported"
_FOLDS = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "amax", "amin": "amin"}


def _entries(input: Tensor, mask: Tensor | None, identity: float) -> tuple[Tensor, Tensor, Tensor]:
    """Where elements count, one column each, their values, and which of these do: the others are `identity`."""
    if mask is None:
        own = input.coalesce()
        return own.indices(), own.values(), torch.ones_like(own.values(), dtype=torch.bool)
    within = mask.flatten(input.sparse_dim()).any(-1) if input.dense_dim() else mask
    places = within.nonzero()
    # A dimension more, as a number has none to be indexed by.
    at = (places.new_zeros(len(places)), *places.unbind(1))
    values, counted = input.to_dense()[None][at], mask[None][at]
    return places.t(), torch.where(counted, values, values.new_full((), identity)), counted


def _fold(op: str, values: Tensor, groups: Tensor, count: int, identity: float) -> Tensor:
    """The values of each group together."""
    made = values.new_full((count, *values.shape[1:]), identity)
    where = groups.view(-1, *(1 for _ in values.shape[1:])).expand_as(values)
    return made.scatter_reduce(0, where, values, _FOLDS[op])


def reduced(
    op: str,
    input: Tensor,
    dims: tuple[int, ...],
    keepdim: bool,
    dtype: torch.dtype,
    mask: Tensor | None,
    identity: float,
) -> Tensor:
    """A reduction of a sparse tensor, in its layout; lines of which nothing counts are not specified.

    Raises:
        RuntimeError: for a compressed tensor, if the reduced dimensions are not kept.
        ValueError: if there is no mask where what is not specified would count.
    """
    compressed = input.layout is torch.sparse_csr
    if mask is None and op != "sum":
        layout = str(input.layout).rpartition(".")[2]
        raise ValueError(f"masked {op} expects explicit mask for {layout} tensor input")
    if compressed and not keepdim:
        raise (RuntimeError if op in ("sum", "prod") else AssertionError)(_WITHOUT_KEEPDIM)
    if compressed:
        input = input.to_sparse_coo()
    if input.ndim == 0:
        dims = ()
    sparse = input.sparse_dim()
    indices, values, counted = _entries(input, mask, identity)
    kept = [d for d in range(sparse) if d not in dims]
    if kept:
        places, groups = torch.unique(indices[kept], dim=1, return_inverse=True)
    else:
        places = indices.new_zeros(0, 1)
        groups = indices.new_zeros(indices.shape[1])

    def folded(values: Tensor) -> Tensor:
        """What is left of values by the sparse dimensions, and then by the dense ones."""
        made = _fold(op, values, groups, places.shape[1], identity)
        inner = [d - sparse + 1 for d in dims if d >= sparse]
        if op == "prod":
            for d in reversed(inner):
                made = made.prod(d, keepdim)
            return made
        fold: Callable[..., Any] = getattr(torch, _FOLDS[op])
        return fold(made, inner, keepdim) if inner else made

    made = folded(values.to(dtype))
    if op == "mean":
        made = made / folded(counted.to(dtype))
    if keepdim:
        zeros = places.new_zeros(places.shape[1])
        rows = [places[kept.index(d)] if d in kept else zeros for d in range(sparse)]
        places = torch.stack(rows) if rows else places
    size = [1 if d in dims else n for d, n in enumerate(input.shape) if keepdim or d not in dims]
    result = torch.sparse_coo_tensor(places, made, size)
    return result.to_sparse_csr() if compressed else result
