"""Running results of an associative function, in a logarithmic number of calls."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.utils import _pytree

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """`combine_fn` of all slices up to each one along a dimension of the tensors in `xs`.

    Raises:
        ValueError: if an argument is of the wrong kind.
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves, tree = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    rank = leaves[0].dim()
    dim = dim + rank if dim < 0 else dim

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        made = combine_fn(_pytree.tree_unflatten(a, tree), _pytree.tree_unflatten(b, tree))
        out: list[Any] = _pytree.tree_leaves(made)
        return out

    def part(values: list[Any], start: int, stop: int, step: int = 1) -> list[Any]:
        index = (slice(None),) * dim + (slice(start, stop, step),)
        return [v[index] for v in values]

    def running(values: list[Any]) -> list[Any]:
        n = values[0].shape[dim]
        if n < 2:
            return values
        # Pairs first, then the places between them.
        pairs = combine(part(values, 0, n - 1, 2), part(values, 1, n, 2))
        odd = running(pairs)
        even = combine(part(odd, 0, (n - 1) // 2), part(values, 2, n, 2)) if n > 2 else None
        joined = []
        for i, first in enumerate(part(values, 0, 1)):
            places = first if even is None else torchlike.cat([first, even[i]], dim)
            out = torchlike.empty_like(values[i], dtype=odd[i].dtype)
            out[(slice(None),) * dim + (slice(0, n, 2),)] = places
            out[(slice(None),) * dim + (slice(1, n, 2),)] = odd[i]
            joined.append(out)
        return joined

    leaves = [leaf.flip([dim]) for leaf in leaves] if reverse else leaves
    found = running(leaves)
    found = [leaf.flip([dim]) for leaf in found] if reverse else found
    return _pytree.tree_unflatten(found, tree)
