"""Operators that PyTorch has as one, made of others here."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import return_types
from torchlike._function import overridable

__all__ = [
    "_shape_as_tensor",
    "cond",
    "histogramdd",
]

rows: Any = torchlike  # those that begin with an underscore are in no stub


@overridable
def histogramdd(
    input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """How many vectors (the last dimension of `input`) fall in each cell of a grid, or the sum of their weights.

    `bins` is the number of cells along each dimension, or the edges between them; `density` divides by the whole and by
    the size of a cell.
    """
    if not isinstance(input, torchlike.Tensor):
        raise TypeError("histogramdd(): argument 'input' (position 1) must be Tensor")
    if isinstance(bins, int) and not isinstance(bins, bool):
        bins = [bins] * sum(input.shape[-1:])
    if not isinstance(bins, list | tuple):
        raise TypeError(
            "histogramdd() received an invalid combination of arguments: bins have to be an integer, or a list of "
            "integers or tensors"
        )
    if bins and all(isinstance(b, torchlike.Tensor) for b in bins):
        edges = bins
        hist = rows._histogramdd_from_bin_tensors(input, bins, weight=weight, density=density)
    else:
        options = {"range": range, "weight": weight, "density": density}
        edges = rows._histogramdd_bin_edges(input, bins, **options)
        hist = rows._histogramdd_from_bin_cts(input, bins, **options)
    made = return_types._class("histogramdd", ("hist", "bin_edges"))
    return made((hist, tuple(edges)))


def _shape_as_tensor(self: Any) -> Any:
    """The sizes of a tensor, as a tensor of integers on the host."""
    return torchlike.tensor(list(self.shape), dtype=torchlike.int64)


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`.

    Raises:
        RuntimeError: if `pred` is no truth value.
    """
    from torchlike import _higher_order_ops

    return _higher_order_ops.cond(pred, true_fn, false_fn, operands)
