"""Memory of GPUs, as far as figures of it are kept."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torchlike import _C, _absent, cuda
from torchlike.cuda import (
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

# what was allocated as plain bytes, by address: the tensors that own it
_lent: dict[int, Any] = {}


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of bytes on a GPU, which stay until `caching_allocator_delete`.

    Args:
        stream: accepted; a GPU has one.
    """
    from torchlike import empty, uint8

    index = cuda._index(device)
    _C._cuda_check(index)
    made = empty(size, dtype=uint8, device=f"cuda:{index}")
    _lent[made.data_ptr()] = made
    return made.data_ptr()


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back bytes of `caching_allocator_alloc`.

    Raises:
        RuntimeError: for an address that it did not give.
    """
    if _lent.pop(mem_ptr, None) is None:
        raise RuntimeError(f"invalid device pointer: {mem_ptr:#x}")


def caching_allocator_enable(value: bool = True) -> None:
    """Accepted while no GPU is used.

    Raises:
        NotImplementedError: to switch it off on a GPU.
    """
    if not value and cuda.is_initialized():
        raise NotImplementedError(
            "torch.cuda.memory.caching_allocator_enable(False) is not supported by torchlike: "
            "memory has one allocator"
        )


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A block without the caching allocator; see :func:`caching_allocator_enable`."""
    caching_allocator_enable(False)
    yield


def get_allocator_backend() -> str:
    """The name of the allocator: there is one."""
    return "native"


def get_per_process_memory_fraction(device: Any = None) -> float:
    """1: the driver's memory is the limit."""
    _C._cuda_check(cuda._index(device))
    return 1.0


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Not supported: the driver's memory is the limit."""
    _C._cuda_check(cuda._index(device))
    raise NotImplementedError(
        "torch.cuda.set_per_process_memory_fraction is not supported by torchlike"
    )


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The figures of memory that are kept; none without a GPU in use."""
    if not cuda.is_initialized():
        return OrderedDict()
    allocated, reserved, peak = _C._cuda_memory_stats(cuda._index(device))
    return OrderedDict(
        {
            "allocated_bytes.all.current": allocated,
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": reserved,
        }
    )


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The figures of :func:`memory_stats`, a dictionary for each part of their names."""
    found: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        here = found
        for part in path:
            here = here.setdefault(part, {})
        here[last] = value
    return found


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures that are kept as a table."""
    stats = memory_stats(device)
    line = "=" * 56
    rows = [line, f"  torchlike CUDA memory, device {cuda._index(device)}", line]
    rows.append(f"  {'':<24}{'now':>14}{'peak':>14}")
    for label, name in (
        ("allocated", "allocated_bytes"),
        ("taken from the driver", "reserved_bytes"),
    ):
        now = stats.get(f"{name}.all.current", 0)
        peak = stats.get(f"{name}.all.peak", now)
        rows.append(f"  {label:<24}{_shown(now):>14}{_shown(peak):>14}")
    return "\n".join([*rows, line, ""])


def _shown(count: int) -> str:
    """Bytes as people read them."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}"


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[Any]:
    """Nothing: blocks are not noted."""
    return []


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the driver: those of now, as none are given back unasked."""
    return memory_reserved(device)


def memory_cached(device: Any = None) -> int:
    """The old name of `memory_reserved`."""
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """The old name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing to reset: sums over time are not kept.

    Raises:
        RuntimeError: without a GPU in use.
    """
    if not cuda.is_initialized():
        raise RuntimeError("invalid argument to reset_accumulated_memory_stats")


def reset_peak_memory_stats(device: Any = None) -> None:
    """Not supported with a GPU.

    Raises:
        RuntimeError: without a GPU in use.
    """
    if not cuda.is_initialized():
        raise RuntimeError("invalid argument to reset_peak_memory_stats")
    raise NotImplementedError(
        "torch.cuda.reset_peak_memory_stats is not supported by torchlike: the peak is the process's"
    )


def reset_max_memory_allocated(device: Any = None) -> None:
    """The old name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """The old name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def host_memory_stats() -> OrderedDict[str, Any]:
    """Nothing: memory of the host is not cached."""
    return OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Nothing: memory of the host is not cached."""
    return {}


def reset_accumulated_host_memory_stats() -> None:
    """Nothing to reset: memory of the host is not cached."""


def reset_peak_host_memory_stats() -> None:
    """Nothing to reset: memory of the host is not cached."""


absent_names = _absent.names(
    "torchlike.cuda",
    "memory has one allocator",
    "MemPool use_mem_pool CUDAPluggableAllocator change_current_allocator",
)
absent_names |= _absent.names(
    "torchlike.cuda", "the driver's figures are not read", "list_gpu_processes"
)
globals().update(absent_names)
