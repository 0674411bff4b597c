"""How the library was made."""

from __future__ import annotations

from torchlike import _C


def show() -> str:
    """The version and the vector instructions that it uses."""
    import torchlike
    from torchlike.backends.cpu import get_cpu_capability

    return (
        f"torchlike {torchlike.__version__} built with:\n  - Rust\n"
        f"  - CPU capability usage: {get_cpu_capability()}\n"
    )


def parallel_info() -> str:
    """How many threads compute."""
    return f"torchlike threads:\n\tget_num_threads() : {_C.get_num_threads()}\n"
