"""Parameters as one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.nn._registry import type_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_param_device(param: Any, old_param_device: Any) -> Any:
    """The device seen so far; raises when this parameter is elsewhere."""
    device = param.device
    where = device.index if device.type == "cuda" else -1
    if old_param_device is not None and where != old_param_device:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return where


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All parameters, flattened and put together."""
    device = None
    parts = []
    for param in parameters:
        device = _check_param_device(param, device)
        parts.append(param.view(-1))
    return torch.cat(parts)


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Slices of a vector as the new data of parameters."""
    if not isinstance(vec, torch.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type_name(vec)}")
    device = None
    at = 0
    for param in parameters:
        device = _check_param_device(param, device)
        size = param.numel()
        param.data = vec[at : at + size].view_as(param).data
        at += size
