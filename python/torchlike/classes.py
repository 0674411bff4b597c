"""Classes that C++ registers: those of quantised layers; libraries cannot be loaded."""

from __future__ import annotations

from typing import Any


class _Namespace:
    """The classes of one library."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from torchlike import _script_objects

        if (found := _script_objects.maker(f"{self.name}.{name}")) is not None:
            return found
        raise RuntimeError(
            f"Class {self.name}.{name} not registered! torchlike cannot load libraries made for PyTorch"
        )


loaded_libraries: set[str] = set()


def load_library(path: str) -> None:
    """Fails: torchlike cannot load libraries made for PyTorch.

    Raises:
        OSError: always.
    """
    raise OSError(f"{path}: torchlike cannot load libraries made for PyTorch")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Namespace(name)
