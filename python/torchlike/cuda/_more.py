"""What programs ask of GPUs and seldom need: figures, states of generators, graphs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torchlike import _C, _absent, _legacy, cuda, storage
from torchlike._C import OutOfMemoryError as OutOfMemoryError
from torchlike._streams import AcceleratorError as AcceleratorError
from torchlike.cuda.streams import Event as Event
from torchlike.cuda.streams import ExternalStream as ExternalStream
from torchlike.cuda.streams import Stream, StreamContext
from torchlike.cuda.streams import current_stream as current_stream
from torchlike.cuda.streams import default_stream as default_stream

_module = "torchlike.cuda"


def stream(stream: Stream | None) -> StreamContext:
    """Makes the GPU of a stream the current one for a block."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Makes the GPU of a stream the current one; its stream is the only one it has."""
    if stream is not None:
        cuda.set_device(stream.device_index)


def is_current_stream_capturing() -> bool:
    """False: there are no graphs of a GPU's work."""
    return False


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


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the driver: those of now, as none are given back unasked."""
    return cuda.memory_reserved(device)


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[Any]:
    """Nothing: blocks are not noted."""
    return []


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


def memory_cached(device: Any = None) -> int:
    """The old name of `memory_reserved`."""
    return cuda.memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """The old name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed with: on every GPU."""
    return cuda.is_available()


def is_tf32_supported() -> bool:
    """Whether a GPU has products of 19-bit floats."""
    return cuda.is_available() and cuda.get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """Nothing: kernels are compiled for the GPU that is there."""
    return []


def get_gencode_flags() -> str:
    """Nothing: kernels are compiled for the GPU that is there."""
    return ""


def get_rng_state_all() -> list[Any]:
    """The states of all GPUs' generators."""
    return [get_rng_state(i) for i in range(cuda.device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Sets the states of all GPUs' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a GPU's generator: 16 bytes on the host, its seed and how much was drawn."""
    return _C._cuda_generator(cuda._index(device)).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Puts a GPU's generator into a state."""
    _C._cuda_generator(cuda._index(device)).set_state(new_state)


def initial_seed() -> int:
    """The seed that the current GPU's generator was given last."""
    return _C._cuda_generator(_C._cuda_current()).initial_seed()


def seed() -> None:
    """Seeds the generator of the current GPU by chance; nothing without one."""
    import secrets

    cuda.manual_seed(secrets.randbits(63))


def seed_all() -> None:
    """Seeds the generators of all GPUs by chance; nothing without any."""
    import secrets

    cuda.manual_seed_all(secrets.randbits(63))


def ipc_collect() -> None:
    """Nothing to collect: memory of GPUs is not shared with processes."""
    _C._cuda_check(cuda._index(None))


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: GPUs exchange data by way of the host."""
    _C._cuda_check(cuda._index(device))
    return False


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Not supported: the driver's memory is the limit."""
    _C._cuda_check(cuda._index(device))
    raise NotImplementedError(
        "torch.cuda.set_per_process_memory_fraction is not supported by torchlike"
    )


def host_memory_stats() -> OrderedDict[str, Any]:
    """Nothing: memory of the host is not cached."""
    return OrderedDict()


def get_sync_debug_mode() -> int:
    """0: nothing is said of waiting."""
    return 0


def set_sync_debug_mode(debug_mode: Any) -> None:
    """Accepted, without an effect."""


def _is_in_bad_fork() -> bool:
    """False: a GPU is opened at its first use."""
    return False


def _lazy_init() -> None:
    cuda.init()


def _lazy_call(callable: Any, **_: Any) -> None:
    """Calls the function now, if there is a GPU."""
    if cuda.is_available():
        callable()


has_half = True
has_magma = False

_absent_names = _absent.names(
    _module,
    "a GPU's work is one stream, without graphs",
    "CUDAGraph graph make_graphed_callables graph_pool_handle",
)
_absent_names |= _absent.names(
    _module,
    "memory has one allocator",
    "MemPool use_mem_pool CUDAPluggableAllocator change_current_allocator caching_allocator_alloc "
    "caching_allocator_delete caching_allocator_enable memory_summary memory_stats_as_nested_dict",
)
_absent_names |= _absent.names(
    _module,
    "the driver's figures are not read",
    "utilization temperature power_draw clock_rate memory_usage device_memory_used list_gpu_processes cudart",
)
globals().update(_absent_names)
globals().update(_legacy.types(_module, "cuda"))
globals().update(storage._legacy_storages(_module, "cuda"))
