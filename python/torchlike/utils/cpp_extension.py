"""Extensions in C++: torchlike has no headers to compile them with."""

from __future__ import annotations

import shutil
import subprocess

from torchlike import _absent

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
]

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None
IS_HIP_EXTENSION = False

_why = "there are no headers of torchlike to compile extensions with"
load = _absent.function(__name__, "load", _why)
load_inline = _absent.function(__name__, "load_inline", _why)
include_paths = _absent.function(__name__, "include_paths", _why)
library_paths = _absent.function(__name__, "library_paths", _why)
CppExtension = _absent.function(__name__, "CppExtension", _why)
CUDAExtension = _absent.function(__name__, "CUDAExtension", _why)
SyclExtension = _absent.function(__name__, "SyclExtension", _why)
BuildExtension = _absent.kind(__name__, "BuildExtension", _why)


def is_ninja_available() -> bool:
    """Whether ninja is installed."""
    ninja = shutil.which("ninja")
    return (
        ninja is not None
        and subprocess.run([ninja, "--version"], capture_output=True).returncode == 0
    )


def verify_ninja_availability() -> None:
    """Checks that ninja is installed.

    Raises:
        RuntimeError: if it is not.
    """
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")
