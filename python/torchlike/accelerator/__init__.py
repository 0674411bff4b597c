"""The accelerator, whichever it is: here a CUDA GPU, or none."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import _C, _absent, cuda
from torchlike.accelerator.memory import (
    empty_cache,
    empty_host_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def device_count() -> int:
    """How many accelerators there are."""
    return cuda.device_count()


def is_available() -> bool:
    """Whether there is an accelerator."""
    return cuda.device_count() > 0


def current_accelerator(check_available: bool = False) -> torchlike.device | None:
    """The type of accelerator, or None where there is none."""
    return _C.device("cuda") if is_available() else None


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """What an accelerator can do: the dtypes it computes with."""
    cuda.get_device_capability(device)
    dtypes = {d for d in vars(torchlike).values() if isinstance(d, torchlike.dtype)}
    return {"supported_dtypes": dtypes}


def current_device_index() -> int:
    """The number of the accelerator in use."""
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Makes an accelerator the current one."""
    cuda.set_device(device)


set_device_idx = set_device_index


class device_index:
    """Makes an accelerator the current one for a block; `None` changes nothing."""

    def __init__(self, device: int | None) -> None:
        self.idx = device
        self._inside: Any = None

    def __enter__(self) -> None:
        if self.idx is not None:
            self._inside = cuda.device(self.idx)
            self._inside.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._inside is not None:
            self._inside.__exit__(*exc)


def synchronize(device: Any = None) -> None:
    """Waits for all work of an accelerator."""
    cuda.synchronize(device)


_why = "a GPU's work is one stream"
current_stream = _absent.function(__name__, "current_stream", _why)
set_stream = _absent.function(__name__, "set_stream", _why)
Graph = _absent.kind(__name__, "Graph", "there are no graphs of a GPU's work")
