"""Contexts in which calls choose the types they compute in."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchlike import _C, _autocast

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_LOW = (_C.bfloat16, _C.float16)


def is_autocast_available(device_type: str) -> bool:
    """True if there is automatic mixed precision for a type of device."""
    return _autocast._of("is_autocast_available", device_type) in _autocast._KNOWN


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Any:
    """The function, run in a context each time."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    decorate_autocast.__script_unsupported = (  # type: ignore[attr-defined]
        "@autocast() decorator is not supported in script mode"
    )
    return decorate_autocast


class autocast:
    """A context, or a decorator, in which calls on a type of device run in the types that suit them.

    Products and convolutions run in low precision, what needs its digits in single precision, and the rest in the
    types of its arguments. Parameters that are cast are cast once while the outermost context lasts.

    Args:
        device_type: "cpu", "cuda" ...
        dtype: the low precision; by default that of the device, see `torchlike.get_autocast_dtype`.
        enabled: whether anything is cast.
        cache_enabled: whether casts of parameters are kept.
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _check_type(device_type)
        self.fast_dtype = _autocast.get_autocast_dtype(device_type) if dtype is None else dtype
        self.device = device_type
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        self.custom_backend_name = "privateuseone"
        if device_type == self.custom_backend_name:
            raise AssertionError(
                f"Tried to use AMP with the `{device_type}` backend, but the backend has not registered a module or  "
                f"the module miss some necessary funcs. The backend should register a module by "
                f"`torch._register_device_module`, and the module must have these funcs: \n"
                f"`get_amp_supported_dtype() -> List[torch.dtype]`. \n"
            )
        kept = _autocast.is_autocast_cache_enabled()
        self._cache_enabled = kept if cache_enabled is None else cache_enabled
        self._enabled = enabled and _is_possible(device_type, self.fast_dtype)

    def __enter__(self) -> Any:
        self.prev_cache_enabled = _autocast.is_autocast_cache_enabled()
        self.prev = _autocast.is_autocast_enabled(self.device)
        self.prev_fastdtype = _autocast.get_autocast_dtype(self.device)
        _autocast.set_autocast_enabled(self.device, self._enabled)
        _autocast.set_autocast_dtype(self.device, self.fast_dtype)
        _autocast.autocast_increment_nesting()
        _autocast.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        # Casts end with the outermost context.
        if _autocast.autocast_decrement_nesting() == 0:
            _autocast.clear_autocast_cache()
        _autocast.set_autocast_enabled(self.device, self.prev)
        _autocast.set_autocast_dtype(self.device, self.prev_fastdtype)
        _autocast.set_autocast_cache_enabled(self.prev_cache_enabled)

    def __call__(self, func: Callable[..., Any]) -> Any:
        return autocast_decorator(self, func)


def _check_type(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _is_possible(device_type: str, dtype: Any) -> bool:
    """Whether a device can compute in a type; warns if it cannot."""
    from torchlike import cuda

    name = device_type.partition(":")[0]
    if name == "cuda" and not cuda.is_available():
        text = "CUDA is not available or torch_xla is imported. Disabling autocast."
    elif dtype not in _LOW:
        name = name.upper()
        text = (
            f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
            f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
        )
    else:
        return True
    warnings.warn(text, stacklevel=3)
    return False


def _enter_autocast(*vals: Any) -> autocast:
    """Enters a context made of these arguments."""
    mode = autocast(*vals)
    mode.__enter__()
    return mode


def _exit_autocast(mode: autocast) -> None:
    """Leaves a context."""
    mode.__exit__(None, None, None)


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """The tensors of a device in another type, inside containers too."""
    if isinstance(value, _C.Tensor):
        meant = (
            value.is_floating_point()
            and value.device.type == device_type
            and value.dtype is not _C.float64
        )
        return value.to(dtype) if meant else value
    if isinstance(value, str) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        pairs = value.items()
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in pairs}
    if isinstance(value, Iterable):
        made = (_cast(v, device_type, dtype) for v in value)
        return type(value)(made) if isinstance(value, list | tuple) else made
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorates `forward` of a `torchlike.autograd.Function` that is called in contexts of `autocast`.

    With `cast_inputs` its tensors are cast to that type, and it runs without autocast; without, it runs in the context
    as it is, and `custom_bwd` restores that.
    """
    _check_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = _autocast.get_autocast_dtype(device_type)
        inside = _autocast.is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return decorate_fwd


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorates `backward` of a function whose `forward` has `custom_fwd`: it runs in the context of that."""
    _check_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type=device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
