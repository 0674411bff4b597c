"""Memory of GPUs."""

from torchlike.cuda import (
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
)
from torchlike.cuda._more import (
    max_memory_reserved,
    memory_snapshot,
    memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "reset_peak_memory_stats",
]
