"""Functions of the array API that join arrays and move, repeat and reshape what is in them."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._array_api._types import axes_of

__all__ = [
    "concat",
    "expand_dims",
    "flip",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]


def concat(arrays: Any, /, *, axis: Any = 0) -> Any:
    """Arrays one after another."""
    if axis is None:
        arrays, axis = [a.reshape(-1) for a in arrays], 0
    return torch.cat(tuple(arrays), dim=axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays along a new axis."""
    return torch.stack(tuple(arrays), dim=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of an array along an axis."""
    return tuple(x.unbind(axis))


def expand_dims(x: Any, /, *, axis: int = 0) -> Any:
    """With a new axis of size 1."""
    return torch.unsqueeze(x, axis)


def squeeze(x: Any, /, axis: Any) -> Any:
    """Without axes of size 1.

    Raises:
        ValueError: if one has another size.
    """
    axes = axes_of(x, axis)
    if not torch.Size(x.shape[a] for a in axes).numel() == 1:
        raise ValueError("squeezed axes have to be of size 1")
    return torch.squeeze(x, axes)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """The axes in another order."""
    return x.permute(tuple(axes))


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The elements in another shape.

    Raises:
        ValueError: if that needs a copy and `copy` is false.
    """
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements moved along axes, those that fall off coming in again."""
    return torch.roll(x, shift, () if axis is None else axis)


def repeat(x: Any, repeats: Any, /, *, axis: Any = None) -> Any:
    """Each element several times."""
    return torch.repeat_interleave(x, repeats, dim=axis)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """The elements along axes in reverse."""
    return torch.flip(x, axes_of(x, axis))


def tile(x: Any, repetitions: Any, /) -> Any:
    """The array several times along each axis."""
    return torch.tile(x, tuple(repetitions))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Axes at other places, the others in their order."""
    return torch.moveaxis(x, source, destination)
