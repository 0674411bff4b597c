"""What to tell in a report of an error."""

from __future__ import annotations

import platform
import sys
from typing import Any, NamedTuple

import torchlike


class SystemEnv(NamedTuple):
    """What `get_env_info` finds; None is what it does not look for, or what is not there."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_runtime_version: str | None
    cuda_module_loading: str
    nvidia_driver_version: str | None
    nvidia_gpu_models: str | None
    cudnn_version: str | None
    is_xpu_available: str
    pip_version: str
    pip_packages: str
    conda_packages: str | None
    hip_compiled_version: str
    hip_runtime_version: str
    miopen_runtime_version: str
    caching_allocator_config: Any
    is_xnnpack_available: str
    cpu_info: str


_PACKAGES = ("numpy", "torch", "nvidia", "safetensors", "transformers", "triton", "onnx")


def get_python_platform() -> str:
    """The system as Python calls it."""
    return platform.platform()


def get_libc_version() -> str:
    """The C library's version."""
    return "-".join(platform.libc_ver()) if platform.system() == "Linux" else "N/A"


def get_pip_packages(run_lambda: Any = None, patterns: Any = None) -> tuple[str, str]:
    """The packages that may matter, with their versions.

    Args:
        run_lambda: accepted; no program is run.
        patterns: beginnings of names.
    """
    from importlib.metadata import distributions

    wanted = tuple(_PACKAGES if patterns is None else patterns)
    found = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    rows = [f"{name}=={found[name]}" for name in sorted(found) if name.lower().startswith(wanted)]
    return "pip3", "\n".join(rows)


def get_env_info() -> SystemEnv:
    """Versions and machine; no program is run to find them out."""
    from torchlike.backends.cpu import get_cpu_capability

    cuda = torchlike.cuda.is_available()
    gpus = [torchlike.cuda.get_device_name(i) for i in range(torchlike.cuda.device_count())]
    pip, packages = get_pip_packages()
    bits = sys.maxsize.bit_length() + 1
    return SystemEnv(
        torch_version=str(torchlike.__version__),
        is_debug_build="False",
        cuda_compiled_version=str(torchlike.version.cuda),
        gcc_version=None,
        clang_version=None,
        cmake_version=None,
        os=f"{platform.platform()} ({platform.machine()})",
        libc_version=get_libc_version(),
        python_version=f"{sys.version} ({bits}-bit runtime)".replace("\n", " "),
        python_platform=get_python_platform(),
        is_cuda_available=str(cuda),
        cuda_runtime_version=None,
        cuda_module_loading="N/A",
        nvidia_driver_version=None,
        nvidia_gpu_models="\n".join(gpus) or None,
        cudnn_version=None,
        is_xpu_available="False",
        pip_version=pip,
        pip_packages=packages,
        conda_packages=None,
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config={},
        is_xnnpack_available="False",
        cpu_info=f"{platform.processor()} {get_cpu_capability()}".strip(),
    )


def pretty_str(envinfo: SystemEnv) -> str:
    """What was found, as lines of text."""
    return "\n".join(f"{k}: {v}" for k, v in envinfo._asdict().items() if v not in (None, "N/A"))


def get_pretty_env_info() -> str:
    """Versions and machine as lines of text."""
    from torchlike.backends.cpu import get_cpu_capability

    rows = {
        "torchlike version": str(torchlike.__version__),
        "Python version": sys.version.replace("\n", " "),
        "OS": platform.platform(),
        "CPU capability": get_cpu_capability(),
        "Is CUDA available": str(torchlike.cuda.is_available()),
    }
    return "\n".join(f"{name}: {value}" for name, value in rows.items())


def main() -> None:
    """Prints them."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
