"""The device on which factories make tensors where nobody says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.context import _with_context

if TYPE_CHECKING:
    from collections.abc import Callable


class DeviceContext:
    """Inside, factories make tensors on a device."""

    def __init__(self, device: Any) -> None:
        self.device = _C.device(device)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *exc: Any) -> Any:
        return self.device.__exit__(*exc)


def device_decorator(device: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """A function inside which factories make tensors on a device."""
    made: Callable[..., Any] = _with_context(DeviceContext(device), func)
    return made


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function as `device_decorator` does."""
    return lambda func: device_decorator(device, func)
