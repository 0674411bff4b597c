"""Dimensions by name: `rearrange`."""

from __future__ import annotations

import re
from typing import Any

import torchlike as torch


def _groups(side: str, pattern: str) -> list[list[str]]:
    """The names of each dimension: several if they are one dimension together."""
    found: list[list[str]] = []
    inside: list[str] | None = None
    words = re.findall(r"\.\.\.|\w+|[()]|\S", side)
    for word in words:
        if word == "(" and inside is None:
            inside = []
        elif word == ")" and inside is not None:
            found.append(inside)
            inside = None
        elif word != "..." and not word.isidentifier() and word != "1":
            raise ValueError(f"Invalid token '{word}' in the rearrange pattern: '{pattern}'")
        elif inside is not None:
            inside += [] if word == "1" else [word]
        else:
            found.append([] if word == "1" else [word])
    if inside is not None:
        raise ValueError(f"Unbalanced parentheses in the rearrange pattern: '{pattern}'")
    names = [n for g in found for n in g]
    repeated = {n for n in names if names.count(n) > 1}
    if repeated:
        raise ValueError(f"Indexing expression contains duplicate dimension '{min(repeated)}'")
    return found


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Dimensions in another order, put together or apart, by a pattern as ``'b (h w) c -> b c h w'``.

    Args:
        tensor: a tensor, or several of one shape, whose number is the first dimension.
        axes_lengths: sizes of dimensions that are put apart, but for one of each group.

    Raises:
        ValueError: if the pattern is malformed, or does not fit the tensor.
    """
    x = tensor if isinstance(tensor, torch.Tensor) else torch.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = (_groups(side, pattern) for side in sides)
    left_names, right_names = ({n for g in side for n in g} for side in (left, right))
    if left_names != right_names:
        raise ValueError(
            "Identifiers only on one side of rearrange expression (should be on both): "
            f"{left_names ^ right_names}"
        )
    unknown = set(axes_lengths) - left_names
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    rest = x.dim() - sum(g != ["..."] for g in left)
    if rest < 0 or (rest > 0 and ["..."] not in left):
        raise ValueError(
            f"Number of dimensions in pattern ({x.dim() - rest}) must be equal to the number of dimensions in the "
            f"tensor ({x.dim()})"
        )
    sizes: dict[str, list[int]] = {}
    at = 0
    for group in left:
        if group == ["..."]:
            sizes["..."] = list(x.shape[at : at + rest])
            at += rest
            continue
        for name, size in zip(
            group, _apart(group, x.shape[at], axes_lengths, pattern), strict=True
        ):
            sizes[name] = [size]
        at += 1
    order = [n for g in left for n in g]
    x = x.reshape([s for n in order for s in sizes[n]])
    starts, start = {}, 0
    for name in order:
        starts[name] = range(start, start + len(sizes[name]))
        start += len(sizes[name])
    x = x.permute([d for g in right for n in g for d in starts[n]])
    shape: list[int] = []
    for group in right:
        if group == ["..."]:
            shape += sizes["..."]
        else:
            size = 1
            for name in group:
                for s in sizes[name]:
                    size *= s
            shape.append(size)
    return x.reshape(shape)


def _apart(group: list[str], size: int, lengths: dict[str, int], pattern: str) -> list[int]:
    """The sizes of dimensions that are one of this size together."""
    unknown = [n for n in group if n not in lengths]
    known = 1
    for n in group:
        known *= lengths.get(n, 1)
    if len(unknown) > 1:
        raise ValueError(
            f"The sizes of dimensions {unknown} in '{pattern}' do not follow from the tensor"
        )
    if known == 0 or size % known or (not unknown and size != known):
        raise ValueError(f"Dimensions {group} of '{pattern}' do not fit a dimension of size {size}")
    return [lengths.get(n, size // known) for n in group]
