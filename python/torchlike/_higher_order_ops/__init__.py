"""Operators that take functions: they call them."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._higher_order_ops.associative_scan import associative_scan

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`.

    Raises:
        RuntimeError: if `pred` is no truth value.
    """
    if isinstance(pred, torchlike.Tensor):
        if pred.dtype != torchlike.bool or pred.numel() != 1:
            raise RuntimeError(
                f"Expected pred to be bool or single-element bool tensor, but got {pred}."
            )
    elif not isinstance(pred, bool | int | float):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """Calls `body_fn` on its own results as long as `cond_fn` says so."""
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        made = body_fn(*carried)
        carried = tuple(made) if isinstance(made, tuple | list) else (made,)
    return carried


def map(f: Any, xs: Any, *args: Any) -> Any:
    """`f` of each slice along dimension 0, stacked."""
    from torchlike.utils import _pytree

    leaves, tree = _pytree.tree_flatten(xs)
    rows = [
        f(_pytree.tree_unflatten([leaf[i] for leaf in leaves], tree), *args)
        for i in range(leaves[0].shape[0])
    ]
    return _pytree.tree_map(lambda *parts: torchlike.stack(parts), *rows)


def scan(combine_fn: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """Goes along a dimension with a carried value; returns its last, and the results stacked."""
    from torchlike.utils import _pytree

    leaves, tree = _pytree.tree_flatten(xs)
    steps = range(leaves[0].shape[dim])
    carry, results = init, []
    for i in reversed(steps) if reverse else steps:
        carry, result = combine_fn(
            carry, _pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], tree)
        )
        results.append(result)
    if reverse:
        results.reverse()
    return carry, _pytree.tree_map(lambda *parts: torchlike.stack(parts), *results)
