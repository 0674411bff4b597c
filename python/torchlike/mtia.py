"""Meta's accelerators: there are none, and this module says what PyTorch's does then."""

from __future__ import annotations

from torchlike import _elsewhere

_text = (
    "Torch not compiled with MTIA enabled. Ensure you have `import mtia.host_runtime.torch_mtia.dynamic_library` in "
    "your python src file and include `//mtia/host_runtime/torch_mtia:torch_mtia` as your target dependency!"
)

is_available = is_initialized = _elsewhere.available
is_bf16_supported = _elsewhere.no_bf16
device_count = _elsewhere.count
memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _elsewhere.zero
empty_cache = manual_seed = manual_seed_all = _elsewhere.nothing
device = stream = _elsewhere.unchanged

for _name in (
    "init",
    "current_device",
    "set_device",
    "current_stream",
    "default_stream",
    "set_stream",
    "synchronize",
    "get_device_capability",
    "get_rng_state",
    "set_rng_state",
    "memory_stats",
    "reset_peak_memory_stats",
):
    globals()[_name] = _elsewhere.failing(__name__, _name, AssertionError, _text)
for _name in ("Stream", "Event", "StreamContext"):
    globals()[_name] = _elsewhere.failing_class(__name__, _name, AssertionError, _text)
