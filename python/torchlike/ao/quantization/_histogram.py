"""Histograms of values: brought to other bounds, and searched for the range that loses the least as integers."""

from __future__ import annotations

import torchlike as torch
from torchlike import Tensor

__all__ = ["best_range", "moved"]

_STEP = 1e-5


def moved(old: tuple[Tensor, Tensor, Tensor], low: Tensor, high: Tensor, parts: int) -> Tensor:
    """The counts of a histogram (counts, lower, upper bound) between wider bounds; each bin goes in `parts` parts."""
    counts, first, last = old
    bins = len(counts)
    if bool(first == low) and bool(last == high):
        return counts
    if bool(first == last):
        return torch.histc(first.reshape(1), bins, float(low), float(high)) * counts.sum()
    fine = counts.repeat_interleave(parts) / parts
    width = (last - first) / (bins * parts)
    middles = torch.linspace(float(first), float(last), bins * parts + 1)[:-1].to(fine.device)
    edges = torch.linspace(float(low), float(high), bins + 1).to(fine.device)
    at = torch.bucketize(middles + 0.5 * width, edges, right=True) - 1
    made: Tensor = torch.bincount(at.clamp(0, bins - 1), weights=fine, minlength=bins)
    return made.to(counts.dtype)


def _lost(begin: Tensor | float, end: Tensor | float, density: Tensor) -> Tensor:
    """The square error of values that lie evenly between two distances from what they are rounded to."""
    made: Tensor = density * (end * end * end - begin * begin * begin) / 3
    return made


def _error(density: Tensor, width: float, start: int, end: int, levels: int) -> float:
    """The square error if bins from `start` to `end` are what integers of so many levels stand for."""
    step = width * (end - start + 1) / levels
    if step == 0:
        return 0.0
    left = (torch.arange(len(density), device=density.device) - start) * width
    right = left + width
    level_left, level_right = (
        torch.div(edge, step, rounding_mode="floor").clamp(0, levels - 1) for edge in (left, right)
    )
    half = step / 2
    error = _lost(left - (level_left + 0.5) * step, half, density)
    error = error + (level_right - level_left - 1) * _lost(-half, half, density)
    error = error + _lost(-half, right - (level_right * step + half), density)
    return float(error.sum())


def best_range(counts: Tensor, low: Tensor, high: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """The bounds that lose the least: quantiles are taken off, where more bins go with them, until the error grows."""
    bins = len(counts)
    total = float(counts.sum())
    below = counts.cumsum(0).tolist()
    width = (float(high) - float(low)) / bins
    density = counts / width if width else counts
    start, end, taken, kept, least = 0, bins - 1, 0.0, 1.0, float("inf")
    while taken < kept:
        left, right = start, end
        while left < end and below[left] < (taken + _STEP) * total:
            left += 1
        while right > start and below[right] > (kept - _STEP) * total:
            right -= 1
        first, last = start, end
        if left - start > end - right:
            first, taken = left, taken + _STEP
        else:
            last, kept = right, kept - _STEP
        if (first, last) == (start, end):
            continue
        error = _error(density, width, first, last, levels)
        if error > least:
            break
        start, end, least = first, last, error
    size = (high - low) / bins
    return low + size * start, low + size * (end + 1)
