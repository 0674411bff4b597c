"""Functions of the array API that make arrays."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._array_api._types import default_index

__all__ = [
    "arange",
    "asarray",
    "empty",
    "eye",
    "full",
    "linspace",
    "meshgrid",
    "ones",
    "zeros",
]


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    """An array of anything that looks like one."""
    return torch.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Any:
    """Evenly spaced numbers of an interval without its end."""
    if stop is None:
        start, stop = 0, start
    if (step > 0 and stop <= start) or (step < 0 and stop >= start):
        real = [v for v in (start, stop, step) if not isinstance(v, int)]
        kind = dtype or (torch.get_default_dtype() if real else default_index)
        return torch.empty(0, dtype=kind, device=device)
    return torch.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of memory that nobody has written."""
    return torch.empty(shape, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of zeros."""
    return torch.zeros(shape, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of ones."""
    return torch.ones(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of one number."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.full(shape, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: Any = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Ones on the diagonal `k`, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    made = torch.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        made.diagonal(k).fill_(1)
    return made


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: Any = True,
) -> Any:
    """`num` evenly spaced numbers, the last one left out unless `endpoint`."""
    if endpoint:
        return torch.linspace(start, stop, num, dtype=dtype, device=device)
    return torch.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of a grid."""
    if not arrays:
        return []
    return list(torch.meshgrid(*arrays, indexing=indexing))
