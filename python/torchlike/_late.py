"""Names of `_C` that are written in Python and seldom asked for."""

from __future__ import annotations

import enum
from typing import Any

from torchlike import _C


class DispatchKey(enum.Enum):
    """The layers and devices that PyTorch's dispatcher knows; those that mean something here."""

    CPU = "CPU"
    CUDA = "CUDA"
    Meta = "Meta"
    AutogradCPU = "AutogradCPU"
    AutogradCUDA = "AutogradCUDA"
    AutogradMeta = "AutogradMeta"
    Autograd = "Autograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    Python = "Python"


def _known(name: str) -> bool:
    from torchlike._ops import _find

    try:
        _find(name)
    except AttributeError:
        return False
    return True


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    return _known(name)


def _dispatch_has_kernel(name: str) -> bool:
    return _known(name)


def _is_autocast_available(device_type: str) -> bool:
    from torchlike import amp

    return amp.is_autocast_available(device_type)


def _is_any_autocast_enabled() -> bool:
    return any(map(_C._autocast_is_on, _C._autocast_supported_devices()))


def _get_default_device() -> str:
    return str(_C.get_default_device())


def _is_alias_of(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


class _functorch:
    """Questions about batched tensors, which there are none of."""

    @staticmethod
    def is_batchedtensor(t: Any) -> bool:
        """False."""
        return False


_NAMES = {
    "DispatchKey": DispatchKey,
    "_dispatch_has_kernel": _dispatch_has_kernel,
    "_dispatch_has_kernel_for_dispatch_key": _dispatch_has_kernel_for_dispatch_key,
    "_functorch": _functorch,
    "_get_default_device": _get_default_device,
    "_is_alias_of": _is_alias_of,
    "_is_any_autocast_enabled": _is_any_autocast_enabled,
    "_is_autocast_available": _is_autocast_available,
}


def find(name: str) -> Any:
    """The attribute of `_C` of this name.

    Raises:
        AttributeError: if there is none.
    """
    if name in ("parse_schema", "FunctionSchema"):
        from torchlike._ops import schema

        return {"parse_schema": schema.parse, "FunctionSchema": schema.FunctionSchema}[name]
    if "_autocast_" in name:
        from torchlike import _autocast

        if name in _autocast.__all__:
            return getattr(_autocast, name)
    if name not in _NAMES:
        raise AttributeError(f"module 'torchlike._C' has no attribute '{name}'")
    return _NAMES[name]
