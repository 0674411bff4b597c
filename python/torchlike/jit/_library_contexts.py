"""`torch.no_grad` and its like as TorchScript: what `with` enters and leaves."""

from __future__ import annotations

import contextlib
from typing import Any

import torchlike
from torchlike import get_autocast_dtype, is_grad_enabled
from torchlike._C import _set_grad_enabled as set_grad
from torchlike.jit._functions import DTYPES


class no_grad:
    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = is_grad_enabled()
        set_grad(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)


class enable_grad:
    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = is_grad_enabled()
        set_grad(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)


class set_grad_enabled:
    def __init__(self, mode: bool) -> None:
        self.prev = is_grad_enabled()
        set_grad(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)


class autocast:
    def __init__(
        self,
        device_type: str,
        dtype: int | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if dtype is None:
            self.fast_dtype = get_autocast_dtype(device_type)
        else:
            self.fast_dtype = dtype
        self._enabled = enabled
        self.device = device_type

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class cuda_autocast:
    def __init__(self, enabled: bool = True, dtype: int = 5, cache_enabled: bool = True) -> None:
        self.fast_dtype = dtype
        self._enabled = enabled
        self.device = "cuda"

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


CONTEXTS: dict[type, type] = {
    torchlike.no_grad: no_grad,
    torchlike.enable_grad: enable_grad,
    torchlike.set_grad_enabled: set_grad_enabled,
    torchlike.autocast: autocast,
    torchlike.cuda.amp.autocast: cuda_autocast,
}
"""The classes of code that stand for those of the library."""
_MIXED = {
    autocast: "__torch__.torch.amp.autocast_mode.autocast",
    cuda_autocast: "__torch__.torch.cuda.amp.autocast_mode.autocast",
}
NAMES = {
    kind: _MIXED.get(kind, f"__torch__.torch.autograd.grad_mode.{kind.__name__}")
    for kind in CONTEXTS.values()
}
"""Their names in code, which are PyTorch's."""


def entered(context: Any) -> Any:
    """What an object of code stands for that does nothing itself: mixed precision, which calls ask about."""
    spec = getattr(context, "_spec", None)
    if spec is None or spec.name not in _MIXED.values():
        return contextlib.nullcontext()
    number, held = context.fast_dtype, context.__dict__
    return torchlike.autocast(held["device"], DTYPES[number], held["_enabled"])
