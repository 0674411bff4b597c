"""Data in pinned memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torchlike as torch

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """``data`` with its tensors in pinned memory, where there is an accelerator that reads it."""
    if isinstance(data, torch.Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        pinned = {key: pin_memory(value, device) for key, value in data.items()}
        if type(data) is dict:
            return pinned
        made = copy.copy(data)
        made.update(pinned)  # type: ignore[attr-defined]
        return made
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(item, device) for item in data))
    if isinstance(data, (list, tuple)):
        return type(data)(pin_memory(item, device) for item in data)
    if isinstance(data, Sequence):
        return [pin_memory(item, device) for item in data]
    return data
