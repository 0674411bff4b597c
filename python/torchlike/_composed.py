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


def _check_histogram(input: Any, bins: Any, limits: Any, weight: Any) -> list[Any]:
    """PyTorch's words before anything is counted; what is said of each column."""
    if not isinstance(input, torchlike.Tensor):
        raise TypeError("histogramdd(): argument 'input' (position 1) must be Tensor")
    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if input.dtype not in (torchlike.float32, torchlike.float64):
        raise NotImplementedError(f'"histogramdd" not implemented for {_shown(input.dtype)!r}')
    columns = input.shape[-1]
    if isinstance(bins, int) and not isinstance(bins, bool):
        bins = [bins] * columns
    if not isinstance(bins, list | tuple):
        raise TypeError(
            "histogramdd() received an invalid combination of arguments: bins have to be an integer, or a list of "
            "integers or tensors"
        )
    if len(bins) != columns:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    if limits is not None and len(limits) != 2 * columns:
        raise RuntimeError(
            f"torch.histogramdd: for a {columns}-dimensional histogram range should have {2 * columns} elements, "
            f"but got {len(limits)}"
        )
    if weight is not None:
        if weight.dtype != input.dtype:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                f"dtype, but got input({_spelled(input.dtype)}), and weight({_spelled(weight.dtype)})"
            )
        if weight.shape != input.shape[:-1]:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with "
                f"shape {list(weight.shape)}"
            )
    return list(bins)


def _spelled(dtype: Any) -> str:
    """The name of a type in C++."""
    return {"float32": "float", "float64": "double"}.get(_plain(dtype), _plain(dtype))


def _plain(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _shown(dtype: Any) -> str:
    """The name of a type in messages about kernels."""
    names = {"float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int"}
    return names.get(_plain(dtype), _plain(dtype).capitalize())


@overridable
def histogramdd(
    input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """How many vectors (the last dimension of `input`) fall in each cell of a grid, or the sum of their weights.

    `bins` is the number of cells along each dimension, or the edges between them; `density` divides by the whole and by
    the size of a cell.
    """
    given = _check_histogram(input, bins, range, weight)
    if all(isinstance(b, torchlike.Tensor) for b in given):
        for d, b in enumerate(given):
            if b.dtype != input.dtype:
                raise RuntimeError(
                    "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with "
                    f"dtype {_spelled(input.dtype)} and bins for dimension {d} with dtype {_spelled(b.dtype)}"
                )
            if b.dim() != 1:
                raise RuntimeError(
                    "torch.histogramdd: bins tensor should have one dimension, but got "
                    f"{b.dim()} dimensions in the bins tensor for dimension {d}"
                )
            if b.numel() == 0:
                raise RuntimeError(
                    "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins "
                    f"tensor for dimension {d}"
                )
        edges = given
        hist = rows._histogramdd_from_bin_tensors(input, given, weight=weight, density=density)
    else:
        options = {"range": range, "weight": weight, "density": density}
        edges = rows._histogramdd_bin_edges(input, given, **options)
        hist = rows._histogramdd_from_bin_cts(input, given, **options)
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
