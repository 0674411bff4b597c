"""The CPU as a device, under PyTorch's names: it is always there, and calls on it are done when they return."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torchlike import _C, _lazy

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_capabilities",
    "is_available",
    "is_initialized",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "stream",
    "synchronize",
]

amp = _lazy.module("torchlike.cpu.amp")


def get_capabilities() -> Mapping[str, Any]:
    """The instruction sets of this processor by their names in PyTorch, false where none are listed, and its name."""
    from torchlike.cpu import _features  # reads what few ask for

    return _features.capabilities()


def memory_stats(device: Any = None) -> dict[str, int]:
    """What the allocator of host memory holds, in bytes, under the names of `cuda.memory_stats`.

    `allocated_bytes.all.current` and `.peak` count blocks in use, `reserved_bytes.all.current` those that wait
    for reuse too.
    """
    current, peak, waiting = _C._cpu_memory()
    return {
        "allocated_bytes.all.current": current,
        "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": current + waiting,
    }


def memory_allocated(device: Any = None) -> int:
    """Bytes of the blocks in use."""
    return memory_stats()["allocated_bytes.all.current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of blocks that were in use since `reset_peak_memory_stats()`."""
    return memory_stats()["allocated_bytes.all.peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes of the blocks in use and of those that wait for reuse."""
    return memory_stats()["reserved_bytes.all.current"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """The peak is what is in use now."""
    _C._cpu_reset_peak()


def empty_cache() -> None:
    """Gives blocks that wait for reuse back to the system."""
    _C._cpu_empty_cache()


class Stream:
    """The order in which calls run: one after the other."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing: what was called is done."""


class Event:
    """A moment in a stream, which is past."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""

    def wait(self, stream: Any = None) -> None:
        """Nothing."""


class StreamContext(nullcontext[Any]):
    """A context of a stream, which changes nothing."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)


_stream = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Nothing: calls are done when they return."""


def current_stream(device: Any = None) -> Stream:
    """The only stream."""
    return _stream


def stream(stream: Stream) -> AbstractContextManager[Any]:
    """A context that changes nothing."""
    return StreamContext(stream)


def set_device(device: Any) -> None:
    """Nothing: there is one CPU."""


def current_device() -> str:
    """`cpu`."""
    return "cpu"


def device_count() -> int:
    """One."""
    return 1
