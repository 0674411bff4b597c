"""GPUs, under PyTorch's names. Without a driver nothing here fails but what needs a GPU."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any, NamedTuple

from torchlike import _C, _lazy

amp = _lazy.module("torchlike.cuda.amp")

_loaded = False


def _load_libraries() -> None:
    """Opens NVRTC, cuBLAS and cuDNN from NVIDIA's Python packages, where the loader would not look."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for folder in sys.path:
        root = Path(folder) / "nvidia"
        if not root.is_dir():
            continue
        for name in (
            "libnvrtc-builtins",
            "libnvrtc",
            "libcublasLt",
            "libcublas",
            "libcudnn",
            "libcufft",
        ):
            for pattern in (f"*/lib/{name}.so.*", f"*/bin/{name}*.dll"):
                for file in sorted(root.glob(pattern)):
                    if ".alt." in file.name:
                        continue
                    try:
                        ctypes.CDLL(
                            str(file)
                        )  # known by its name from now on, its symbols to nobody
                    except OSError:
                        continue
        return


def device_count() -> int:
    """How many GPUs there are."""
    n = _C._cuda_device_count()
    if n > 0:
        _load_libraries()
    return n


def is_available() -> bool:
    """True if there is a GPU with a driver."""
    return device_count() > 0


def is_initialized() -> bool:
    """True once a GPU was used."""
    return _C._cuda_is_initialized()


def init() -> None:
    """Opens the current GPU, which otherwise happens at its first use."""
    synchronize()


def _index(device: Any = None, optional: bool = True) -> int:
    """The number of a device given as a number, a string or a `torchlike.device`."""
    if device is None:
        if not optional:
            raise ValueError(
                "Expected a torch.device with a specified index or an integer, but got:None"
            )
        return _C._cuda_current()
    if isinstance(device, int):
        return device
    given = _C.device(device) if isinstance(device, str) else device
    index = _C._cuda_index(given)
    if index is None:
        raise ValueError(f"Expected a cuda device, but got: {given}")
    return _C._cuda_current() if index < 0 else index


def current_device() -> int:
    """The number of the GPU in use."""
    current = _C._cuda_current()
    _C._cuda_check(current)
    return current


def set_device(device: Any) -> None:
    """Makes a GPU the one that these functions mean when none is named."""
    index = _index(device)
    if index >= 0:
        _C._cuda_set_current(index)


class device:
    """Makes a GPU the current one for a block."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device, optional=False)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C._cuda_current()
        if self.idx >= 0:
            _C._cuda_set_current(self.idx)

    def __exit__(self, *_: object) -> None:
        if self.idx >= 0:
            _C._cuda_set_current(self.prev_idx)


class device_of(device):
    """Makes the GPU of a tensor the current one for a block."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class _DeviceProperties(NamedTuple):
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int


def get_device_properties(device: Any = None) -> _DeviceProperties:
    """What a GPU is and has."""
    name, (major, minor), memory, processors, threads = _C._cuda_properties(_index(device))
    return _DeviceProperties(name, major, minor, memory, processors, threads)


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU."""
    p = get_device_properties(device)
    return p.major, p.minor


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""
    return _C._cuda_memory(_index(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes that living tensors hold."""
    return _C._cuda_memory_stats(_index(device))[0]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that living tensors held."""
    return _C._cuda_memory_stats(_index(device))[2]


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver, cached ones included."""
    return _C._cuda_memory_stats(_index(device))[1]


def empty_cache() -> None:
    """Gives cached device memory back."""
    _C._cuda_empty_cache()


def synchronize(device: Any = None) -> None:
    """Waits for all work of a GPU."""
    _C._cuda_synchronize(_index(device))


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current GPU; nothing without one."""
    if device_count() > 0:
        _C._cuda_generator(_C._cuda_current()).manual_seed(int(seed) % 2**64)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs; nothing without any."""
    if device_count() > 0:
        _C._cuda_seed(int(seed) % 2**64)


def __getattr__(name: str) -> Any:
    """What programs seldom need is loaded when it is first asked for."""
    if name in ("streams", "nvtx", "random", "memory", "graphs", "profiler", "_more"):
        from importlib import import_module

        try:
            return import_module(f"torchlike.cuda.{name}")
        except ModuleNotFoundError as e:
            raise AttributeError(f"module 'torchlike.cuda' has no attribute {name!r}") from e
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return tuple(_C._cuda_generator(i) for i in range(device_count()))
    from torchlike.cuda import _more

    # Private names and those of other modules are not this module's.
    if name in ("OrderedDict", "Any", "annotations") or name not in vars(_more):
        from torchlike import _naming

        raise AttributeError(f"module '{_naming.shown}.cuda' has no attribute '{name}'")
    return vars(_more)[name]
