"""`torch.no_grad` and its like as TorchScript: what `with` enters and leaves."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import is_grad_enabled
from torchlike._C import _set_grad_enabled as set_grad


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


CONTEXTS = {
    torchlike.no_grad: no_grad,
    torchlike.enable_grad: enable_grad,
    torchlike.set_grad_enabled: set_grad_enabled,
}
"""The classes of code that stand for those of the library."""
NAMES = {kind: f"__torch__.torch.autograd.grad_mode.{kind.__name__}" for kind in CONTEXTS.values()}
"""Their names in code, which are PyTorch's."""
