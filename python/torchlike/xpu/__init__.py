"""Intel's GPUs: there are none, and this module says what PyTorch's does then."""

from __future__ import annotations

from torchlike import _elsewhere

_text = "Torch not compiled with XPU enabled"

is_available = is_initialized = _elsewhere.available
is_bf16_supported = _elsewhere.no_bf16
is_tf32_supported = is_current_stream_capturing = _elsewhere.available
device_count = _elsewhere.count
memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _elsewhere.zero
empty_cache = seed = seed_all = manual_seed = manual_seed_all = _elsewhere.nothing
set_rng_state_all = _elsewhere.nothing
get_rng_state_all = get_arch_list = memory_snapshot = _elsewhere.empty_list
device = device_of = stream = _elsewhere.unchanged

for _name in (
    "init",
    "current_device",
    "set_device",
    "current_stream",
    "set_stream",
    "synchronize",
    "get_device_name",
    "mem_get_info",
    "get_device_capability",
    "get_device_properties",
    "get_rng_state",
    "set_rng_state",
    "initial_seed",
    "memory_stats",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "can_device_access_peer",
):
    globals()[_name] = _elsewhere.failing(__name__, _name, AssertionError, _text)
for _name in ("Stream", "Event", "StreamContext", "XPUGraph", "MemPool"):
    globals()[_name] = _elsewhere.failing_class(__name__, _name, AssertionError, _text)
