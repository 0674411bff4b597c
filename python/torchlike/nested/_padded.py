"""Between sequences one after another and sequences padded to one length, by indices that tell no lengths."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import Tensor

__all__ = ["packed", "padded", "places", "without_holes"]


def places(offsets: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The sequence of each of `total` rows, and its place in that."""
    rows = torch.arange(total, device=offsets.device)
    last = max(offsets.shape[0] - 2, 0)
    sequence = torch.searchsorted(offsets[1:], rows, right=True).clamp(max=last)
    return sequence, rows - offsets[sequence]


def without_holes(operand: Tensor, t: Any) -> Tensor:
    """A plain operand of a nested tensor, whose gradient comes from the rows that belong to sequences alone."""
    if t._lengths is None:
        return operand
    at, total = t._ragged_idx - 1, t._values.shape[t._ragged_idx - 1]
    sequence, place = places(t._offsets, total)
    belongs = (place >= 0) & (place < t._lengths[sequence])
    shape = [total if d == at else 1 for d in range(t._values.dim())]
    return torch.where(belongs.view(shape), operand, operand.detach())


def padded(values: Tensor, offsets: Tensor, ragged_idx: int, length: int, padding: float) -> Tensor:
    """Sequences `[B, ..., length, ...]`: cut where they are longer, filled where they are shorter."""
    v = values.transpose(ragged_idx - 1, 0)
    batch, total = offsets.shape[0] - 1, v.shape[0]
    sequence, place = places(offsets, total)
    rows = torch.arange(total, device=offsets.device)
    inside = (place >= 0) & (place < length) & (rows < offsets[-1])
    # One row more than there are takes what lies outside of every sequence.
    index = torch.where(inside, sequence * length + place, batch * length)
    whole = v.new_full((batch * length + 1, *v.shape[1:]), padding).index_copy(0, index, v)
    made = whole[: batch * length].view(batch, length, *v.shape[1:])
    return made.transpose(ragged_idx, 1)


def packed(padded: Tensor, offsets: Tensor, ragged_idx: int, total: int) -> Tensor:
    """The beginnings of padded sequences, one after another."""
    p = padded.transpose(ragged_idx, 1)
    batch, length = p.shape[:2]
    sequence, place = places(offsets, total)
    index = (sequence * length + place).clamp(0, max(batch * length - 1, 0))
    return p.flatten(0, 1).index_select(0, index).transpose(ragged_idx - 1, 0)
