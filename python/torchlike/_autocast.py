"""Settings of automatic mixed precision on this thread, under the names that PyTorch has at its top."""

from __future__ import annotations

import warnings
from typing import Any

from torchlike import _C
from torchlike._C import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    is_autocast_cache_enabled,
)

__all__ = [
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_autocast_ipu_dtype",
    "get_autocast_xla_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "is_autocast_ipu_enabled",
    "is_autocast_xla_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
    "set_autocast_ipu_dtype",
    "set_autocast_ipu_enabled",
    "set_autocast_xla_dtype",
    "set_autocast_xla_enabled",
]

_KNOWN = frozenset(_C._autocast_supported_devices())


def _of(call: str, device_type: Any) -> str:
    """The type of device that a call names, which may have a number."""
    if not isinstance(device_type, str):
        name = type(device_type).__name__
        raise TypeError(f"{call}(): argument 'device_type' (position 1) must be str, not {name}")
    kind = device_type.partition(":")[0]
    # What is no device at all is refused as one; what autocast does not know, by autocast.
    return kind if kind in _KNOWN else _C.device(device_type).type


def _checked(call: str, name: str, place: int, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        due, given = kind.__name__, type(value).__name__
        due = "torch.dtype" if due == "dtype" else due
        raise TypeError(
            f"{call}(): argument '{name}' (position {place}) must be {due}, not {given}"
        )
    return value


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether calls are cast on a type of device."""
    return _C._autocast_is_on(_of("is_autocast_enabled", device_type))


def get_autocast_dtype(device_type: str) -> Any:
    """The low precision of a type of device."""
    return _C._autocast_low(_of("get_autocast_dtype", device_type))


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """Casts calls, or not: `set_autocast_enabled(device_type, enabled)`; with one argument, on GPUs."""
    call = "set_autocast_enabled"
    device_type, enabled = _device_and_value(call, "enabled", args, kwargs)
    place = 1 + (len(args) != 1 or "device_type" in kwargs)
    _C._autocast_switch(_of(call, device_type), _checked(call, "enabled", place, enabled, bool))


def _device_and_value(call: str, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    names = (name,) if len(args) == 1 and not kwargs else ("device_type", name)
    given: dict[str, Any] = dict(zip(names, args, strict=False))
    given.update(kwargs)
    if set(given) - {"device_type", name} or name not in given or len(args) > 2:
        raise TypeError(f"{call}() received an invalid combination of arguments")
    return given.get("device_type", "cuda"), given[name]


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the low precision of a type of device."""
    call = "set_autocast_dtype"
    kind = _of(call, device_type)
    _C._autocast_set_low(kind, _checked(call, "dtype", 2, dtype, _C.dtype))


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keeps casts of parameters until the outermost context is left, or not."""
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool (got {type(enabled).__name__})")
    _C._autocast_set_keeps(enabled)


def _deprecated(call: str, instead: str) -> None:
    warnings.warn(
        f"torch.{call} is deprecated. Please use torch.{instead} instead.",
        DeprecationWarning,
        stacklevel=3,
    )


def old_name(call: str, instead: str) -> None:
    """Warns that something has another name now."""
    warnings.warn(
        f"`torch.{call}` is deprecated. Please use `torch.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def is_autocast_cpu_enabled() -> bool:
    """Whether calls are cast on the CPU."""
    _deprecated("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def is_autocast_ipu_enabled() -> bool:
    """Whether calls are cast on IPUs."""
    _deprecated("is_autocast_ipu_enabled()", "is_autocast_enabled('ipu')")
    return is_autocast_enabled("ipu")


def is_autocast_xla_enabled() -> bool:
    """Whether calls are cast on XLA devices."""
    _deprecated("is_autocast_xla_enabled()", "is_autocast_enabled('xla')")
    return is_autocast_enabled("xla")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Casts calls on the CPU, or not."""
    _deprecated("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def set_autocast_ipu_enabled(enabled: bool) -> None:
    """Casts calls on IPUs, or not."""
    _deprecated("set_autocast_ipu_enabled(enabled)", "set_autocast_enabled('ipu', enabled)")
    set_autocast_enabled("ipu", enabled)


def set_autocast_xla_enabled(enabled: bool) -> None:
    """Casts calls on XLA devices, or not."""
    _deprecated("set_autocast_xla_enabled(enabled)", "set_autocast_enabled('xla', enabled)")
    set_autocast_enabled("xla", enabled)


def get_autocast_cpu_dtype() -> Any:
    """The low precision of the CPU."""
    _deprecated("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> Any:
    """The low precision of GPUs."""
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def get_autocast_ipu_dtype() -> Any:
    """The low precision of IPUs."""
    _deprecated("get_autocast_ipu_dtype()", "get_autocast_dtype('ipu')")
    return get_autocast_dtype("ipu")


def get_autocast_xla_dtype() -> Any:
    """The low precision of XLA devices."""
    _deprecated("get_autocast_xla_dtype()", "get_autocast_dtype('xla')")
    return get_autocast_dtype("xla")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """Sets the low precision of the CPU."""
    _deprecated("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """Sets the low precision of GPUs."""
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)


def set_autocast_ipu_dtype(dtype: Any) -> None:
    """Sets the low precision of IPUs."""
    _deprecated("set_autocast_ipu_dtype(dtype)", "set_autocast_dtype('ipu', dtype)")
    set_autocast_dtype("ipu", dtype)


def set_autocast_xla_dtype(dtype: Any) -> None:
    """Sets the low precision of XLA devices."""
    _deprecated("set_autocast_xla_dtype(dtype)", "set_autocast_dtype('xla', dtype)")
    set_autocast_dtype("xla", dtype)
