"""Shapes as tensors, as exported models want them."""

from __future__ import annotations

from typing import Any

import torchlike


def shape_as_tensor(x: Any) -> Any:
    """The sizes of a tensor as a tensor."""
    return torchlike.ops.aten._shape_as_tensor(x)


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """A tensor in the sizes that a tensor holds."""
    return x.reshape(shape.tolist())
