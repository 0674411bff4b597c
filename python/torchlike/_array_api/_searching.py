"""Functions of the array API that choose and search elements, sort them, and find distinct ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torchlike as torch
from torchlike._array_api._types import one_axis

__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "argsort",
    "nonzero",
    "searchsorted",
    "sort",
    "take",
    "take_along_axis",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


def take(x: Any, indices: Any, /, *, axis: Any = None) -> Any:
    """The parts of an array with these numbers along an axis."""
    return x.index_select(one_axis(x, axis), indices)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """An element along an axis for each index."""
    return torch.take_along_dim(x, indices, dim=axis)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Where elements are not zero, an array a dimension."""
    if x.ndim == 0:
        raise ValueError("nonzero: the array has no dimensions")
    return tuple(torch.nonzero(x, as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements belong in a sorted array."""
    return torch.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """The elements in order."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """The numbers of the elements in order."""
    return torch.argsort(x, dim=axis, descending=descending, stable=stable)


class UniqueAll(NamedTuple):
    """Distinct values, where each comes first, which of them each element is, and how often it comes."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values, and how often each comes."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values, and which of them each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """Everything that is to say of the distinct values of an array."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    order = torch.argsort(inverse.reshape(-1), stable=True)
    first = counts.cumsum(0) - counts
    return UniqueAll(values, order[first], inverse, counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """Distinct values and their counts."""
    return UniqueCounts(*torch.unique(x, return_counts=True))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Distinct values and which of them each element is."""
    return UniqueInverse(*torch.unique(x, return_inverse=True))


def unique_values(x: Any, /) -> Any:
    """Distinct values."""
    return torch.unique(x)
