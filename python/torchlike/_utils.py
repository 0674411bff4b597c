"""Small questions that programs ask PyTorch's private helpers."""

from __future__ import annotations

from typing import Any

from torchlike import _C


def _element_size(dtype: Any) -> int:
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 for the CPU, if that is allowed.

    Raises:
        ValueError: for other devices than CUDA ones.
    """
    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = _C.device(device)
    if found.type == "cpu" and allow_cpu:
        return -1
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return found.index or 0


def is_compiling() -> bool:
    """False."""
    return False


class KeyErrorMessage(str):
    """A message that `KeyError` shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, which can go to another process and be raised there."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import sys
        import traceback

        if exc_info is None:
            exc_info = sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        """Raises an exception of that type, or a `RuntimeError` if none can be made of a text."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(text))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error


def cpu_count() -> int | None:
    """How many cores this process may use."""
    import os

    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _rebuild_nested_tensor(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    """A nested tensor of the strided layout as PyTorch's files keep it."""
    from torchlike.nested._strided import rebuilt

    return rebuilt(buffer, sizes, strides, offsets)
