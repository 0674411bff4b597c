"""Functions of the array API that compute along axes: reductions, sums and products up to each element, differences."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._array_api._types import UNSIGNED, axes_of, one_axis

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]


def _wide(x: Any, dtype: Any) -> Any:
    """The type that sums and products have."""
    if dtype is not None or x.dtype.is_floating_point or x.dtype.is_complex:
        return dtype or x.dtype
    return torch.uint64 if x.dtype in UNSIGNED else torch.int64


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """The sum along axes."""
    kind, axes = _wide(x, dtype), axes_of(x, axis)
    if kind == torch.uint64:
        return x.to(torch.int64).sum(axes, keepdim=keepdims).to(kind) if axes else x.to(kind)
    return x.sum(axes, keepdim=keepdims, dtype=kind) if axes else x.to(kind).clone()


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """The product along axes."""
    kind = _wide(x, dtype)
    made = x.to(torch.int64 if kind == torch.uint64 else kind)
    for d in sorted((d % x.ndim for d in axes_of(x, axis)), reverse=True):
        made = made.prod(d, keepdim=keepdims)
    return made.to(kind)


def mean(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The mean along axes."""
    axes = axes_of(x, axis)
    return x.mean(axes, keepdim=keepdims) if axes else x.clone()


def var(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """The variance along axes."""
    axes = axes_of(x, axis)
    if not axes:
        return torch.zeros_like(x)
    return x.var(axes, correction=correction, keepdim=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """The standard deviation along axes."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def max(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The largest element along axes."""
    axes = axes_of(x, axis)
    return x.amax(axes, keepdim=keepdims) if axes else x.clone()


def min(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The smallest element along axes."""
    axes = axes_of(x, axis)
    return x.amin(axes, keepdim=keepdims) if axes else x.clone()


def all(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Whether no element along axes is zero."""
    axes = axes_of(x, axis)
    return x.to(torch.bool).all(axes, keepdim=keepdims) if axes else x.to(torch.bool)


def any(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Whether an element along axes is not zero."""
    axes = axes_of(x, axis)
    return x.to(torch.bool).any(axes, keepdim=keepdims) if axes else x.to(torch.bool)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """How many elements along axes are not zero."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def argmax(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the largest element is."""
    return torch.argmax(x, axis, keepdim=keepdims)


def argmin(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the smallest element is."""
    return torch.argmin(x, axis, keepdim=keepdims)


def _scan(x: Any, axis: Any, dtype: Any, include_initial: Any, ours: Any, start: int) -> Any:
    axis = one_axis(x, axis)
    kind = _wide(x, dtype)
    made = ours(x.to(torch.int64 if kind == torch.uint64 else kind), axis).to(kind)
    if not include_initial:
        return made
    shape = list(x.shape)
    shape[axis] = 1
    return torch.cat([torch.full(shape, start, dtype=kind, device=x.device), made], dim=axis)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """The sums up to each element."""
    return _scan(x, axis, dtype, include_initial, torch.cumsum, 0)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """The products up to each element."""
    return _scan(x, axis, dtype, include_initial, torch.cumprod, 1)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours, `n` times."""
    return torch.diff(x, n=n, dim=axis, prepend=prepend, append=append)
