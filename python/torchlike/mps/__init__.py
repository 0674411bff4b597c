"""Apple's GPUs: there are none, and this module says what PyTorch's does then."""

from __future__ import annotations

from torchlike import _elsewhere

__all__ = [
    "Event",
    "compile_shader",
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "get_rng_state",
    "is_available",
    "manual_seed",
    "recommended_max_memory",
    "seed",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "synchronize",
]

is_available = _elsewhere.available
device_count = _elsewhere.count


def _failing(name: str, core: str) -> object:
    text = f"Cannot execute {core}() without MPS backend."
    return _elsewhere.failing(__name__, name, RuntimeError, text)


empty_cache = _failing("empty_cache", "emptyCache")
synchronize = _failing("synchronize", "deviceSynchronize")
current_allocated_memory = _failing("current_allocated_memory", "getCurrentAllocatedMemory")
driver_allocated_memory = _failing("driver_allocated_memory", "getDriverAllocatedMemory")
recommended_max_memory = _failing("recommended_max_memory", "getRecommendedMaxMemory")
set_per_process_memory_fraction = _failing("set_per_process_memory_fraction", "setMemoryFraction")
compile_shader = _failing("compile_shader", "compileShader")
get_rng_state = _failing("get_rng_state", "getDefaultGenerator")
set_rng_state = _failing("set_rng_state", "getDefaultGenerator")
manual_seed = _failing("manual_seed", "getDefaultGenerator")
seed = _failing("seed", "getDefaultGenerator")
Event = _elsewhere.failing_class(
    __name__, "Event", RuntimeError, "Cannot execute acquireEvent() without MPS backend."
)
