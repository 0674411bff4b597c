"""The accelerator's memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torchlike import cuda

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def empty_cache() -> None:
    """Gives cached memory back; nothing without an accelerator."""
    if cuda.is_initialized():
        cuda.empty_cache()


def empty_host_cache() -> None:
    """Nothing is cached on the host."""


def memory_stats(device_index: Any = None, /) -> OrderedDict[str, Any]:
    """Figures of memory; none without an accelerator."""
    return OrderedDict(cuda.memory_stats(device_index))


def memory_allocated(device_index: Any = None, /) -> int:
    """Bytes that living tensors hold."""
    return cuda.memory_allocated(device_index) if cuda.is_initialized() else 0


def max_memory_allocated(device_index: Any = None, /) -> int:
    """The most bytes that living tensors held."""
    return cuda.max_memory_allocated(device_index) if cuda.is_initialized() else 0


def memory_reserved(device_index: Any = None, /) -> int:
    """Bytes taken from the driver."""
    return cuda.memory_reserved(device_index) if cuda.is_initialized() else 0


def max_memory_reserved(device_index: Any = None, /) -> int:
    """The most bytes taken from the driver."""
    return cuda.max_memory_reserved(device_index) if cuda.is_initialized() else 0


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """Free and total bytes."""
    return cuda.mem_get_info(device_index)


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    """Accumulated figures are not kept."""


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Begins the count of the highest use anew."""
    cuda.reset_peak_memory_stats(device_index)
