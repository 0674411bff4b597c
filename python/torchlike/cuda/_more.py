"""What programs ask of GPUs and seldom need: figures, states of generators, graphs."""

from __future__ import annotations

from typing import Any

from torchlike import _C, _absent, _legacy, cuda, storage
from torchlike._C import OutOfMemoryError as OutOfMemoryError
from torchlike._streams import AcceleratorError as AcceleratorError
from torchlike.cuda import memory
from torchlike.cuda.streams import Event as Event
from torchlike.cuda.streams import ExternalStream as ExternalStream
from torchlike.cuda.streams import Stream, StreamContext
from torchlike.cuda.streams import current_stream as current_stream
from torchlike.cuda.streams import default_stream as default_stream

_module = "torchlike.cuda"


class CudaError(RuntimeError):
    """A failure of CUDA, by its number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error ({code})")


class DeferredCudaCallError(Exception):
    """A call that waited for the first use of a GPU has failed."""


class cudaStatus:
    """Numbers that CUDA's functions give."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


def check_error(res: int) -> None:
    """Raises `CudaError` for a number that is no success."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """A stream that another library has made."""
    _C._cuda_check(cuda._index(device))
    return ExternalStream(data_ptr, device)


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
    "the driver's figures are not read",
    "utilization temperature power_draw clock_rate memory_usage device_memory_used cudart",
)
_absent_names |= _absent.names(
    _module,
    "what CUDA's libraries hold is not shown",
    "current_blas_handle current_solver_handle GreenContext",
)
globals().update(_absent_names)
globals().update({name: getattr(memory, name) for name in memory.__all__})
globals().update(memory.absent_names)
globals().update(_legacy.types(_module, "cuda"))
globals().update(storage._legacy_storages(_module, "cuda"))
