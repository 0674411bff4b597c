"""Small questions that programs ask PyTorch's private helpers."""

from __future__ import annotations

from typing import Any

from torchlike import _C


def _element_size(dtype: Any) -> int:
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 for the CPU, if that is allowed.

    Raises:
        ValueError: for other devices than CUDA ones.
    """
    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = _C.device(device)
    if found.type == "cpu" and allow_cpu:
        return -1
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return found.index or 0


def is_compiling() -> bool:
    """False."""
    return False
