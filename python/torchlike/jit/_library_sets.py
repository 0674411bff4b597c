"""`unique` and `unique_consecutive` as TorchScript: a function for each choice of results."""

from __future__ import annotations

import torchlike
from torchlike import Tensor

aten = torchlike.ops.aten


def _unique(
    input: Tensor, sorted: bool, inverse: bool, counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is None:
        return aten._unique2(input, sorted, inverse, counts)
    return aten.unique_dim(input, dim, sorted, inverse, counts)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return _unique(input, sorted, return_inverse, return_counts, dim)[0]


def unique_inverse(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = True,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, inverse, _ = _unique(input, sorted, return_inverse, return_counts, dim)
    return values, inverse


def unique_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = True,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, _, counts = _unique(input, sorted, return_inverse, return_counts, dim)
    return values, counts


def unique_inverse_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = True,
    return_counts: bool = True,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _unique(input, sorted, return_inverse, return_counts, dim)


def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return aten.unique_consecutive(input, return_inverse, return_counts, dim)[0]


def unique_consecutive_inverse(
    input: Tensor,
    return_inverse: bool = True,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, inverse, _ = aten.unique_consecutive(input, return_inverse, return_counts, dim)
    return values, inverse


def unique_consecutive_counts(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = True,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, _, counts = aten.unique_consecutive(input, return_inverse, return_counts, dim)
    return values, counts


def unique_consecutive_inverse_counts(
    input: Tensor,
    return_inverse: bool = True,
    return_counts: bool = True,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return aten.unique_consecutive(input, return_inverse, return_counts, dim)
