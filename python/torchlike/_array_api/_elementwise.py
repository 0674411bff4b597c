"""Functions of the array API that work element by element, where they differ from the library's."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._array_api._types import array, common

__all__ = [
    "add",
    "clip",
    "divide",
    "floor_divide",
    "maximum",
    "minimum",
    "multiply",
    "pow",
    "remainder",
    "subtract",
    "where",
]


def _binary(name: str) -> Any:
    ours = getattr(torch, name)

    def call(x1: Any, x2: Any, /) -> Any:
        x1, x2 = array(x1, x2), array(x2, x1)
        return ours(*common(x1, x2))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of two arrays, or of an array and a number."
    return call


add, subtract, multiply, divide, floor_divide, remainder, pow = (
    _binary(n)
    for n in ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow")
)
maximum, minimum = _binary("maximum"), _binary("minimum")


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Each element within two bounds."""
    if min is None and max is None:
        return x.clone()
    for bound, fold in ((min, torch.maximum), (max, torch.minimum)):
        if bound is not None:
            x = fold(x, torch.as_tensor(bound, dtype=x.dtype, device=x.device))
    return x


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Elements of one array where the condition holds, of the other elsewhere."""
    x1, x2 = common(array(x1, x2), array(x2, x1))
    return torch.where(condition, x1, x2)
