"""Context managers: gradient modes, inference mode, and devices as decorators."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._once import warn_once
from torchlike._storage_names import _dtype_to_storage_type_map

if TYPE_CHECKING:
    from collections.abc import Callable


def _generator(context: Any, func: Any) -> Any:
    """A generator that runs in a context, which its caller does not see."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        running = func(*args, **kwargs)
        step: Any = running.send
        given: tuple[Any, ...] = (None,)
        while True:
            try:
                with context:
                    value = step(*given)
            except StopIteration as end:
                return end.value
            try:
                step, given = running.send, ((yield value),)
            except GeneratorExit:
                with context:
                    running.close()
                raise
            except BaseException as e:
                step, given = running.throw, (e,)

    return wrapped


# The flag of generators' code, as `inspect` has it: importing that costs more than all else here.
_GENERATOR = 0x20


def _makes_generators(func: Any) -> bool:
    """Whether a function is a generator function."""
    while isinstance(func, functools.partial):
        func = func.func
    code = getattr(func, "__code__", None)
    return code is not None and bool(code.co_flags & _GENERATOR)


def _with_context(context: Any, func: Any) -> Any:
    """A function that runs in a context each time it is called."""
    if isinstance(func, type):
        warnings.warn(
            "Decorating classes is deprecated and will be disabled in future versions. You should only "
            "decorate functions or methods. To preserve the current behavior of class decoration, you can "
            "directly decorate the `__init__` method and nothing else.",
            FutureWarning,
            stacklevel=3,
        )
        decorated: Any = func
        decorated.__init__ = _with_context(context, decorated.__init__)
        return decorated
    if _makes_generators(func):
        return _generator(context, func)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with context:
            return func(*args, **kwargs)

    return wrapped


class _Mode:
    """A mode that is switched on entry and restored on exit; also a decorator, with or without parentheses."""

    __slots__ = ("_before",)
    _before: list[Any]

    def __new__(cls, func: Callable[..., Any] | None = None) -> Any:
        self = object.__new__(cls)
        self._before = []
        return self if func is None or isinstance(func, bool) else self(func)

    def __call__(self, func: Callable[..., Any]) -> Any:
        return _with_context(self, func)

    def __exit__(self, *exc: object) -> None:
        _C._set_grad_enabled(self._before.pop())

    def clone(self) -> Any:
        """Another one that does the same."""
        return type(self)(*([self._mode] if hasattr(self, "_mode") else []))


class no_grad(_Mode):
    """Results made inside do not require gradients."""

    __module__ = "torchlike.autograd.grad_mode"

    __slots__ = ()

    def __enter__(self) -> None:
        self._before.append(_C._set_grad_enabled(False))


class enable_grad(_Mode):
    """Gradients are recorded inside, whatever holds outside."""

    __module__ = "torchlike.autograd.grad_mode"

    __slots__ = ()

    def __enter__(self) -> None:
        self._before.append(_C._set_grad_enabled(True))


class set_grad_enabled(_Mode):
    """Switches gradients at once; as a context manager, until its end."""

    __module__ = "torchlike.autograd.grad_mode"

    __slots__ = ("_mode",)
    _mode: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _Mode.__new__(cls)

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(
                "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not "
                f"{type(mode).__name__}"
            )
        self._mode = mode
        self._before.append(_C._set_grad_enabled(mode))

    def __call__(self, func: Callable[..., Any]) -> Any:
        _C._set_grad_enabled(self._before.pop())
        return _with_context(_SetGradEnabledLater(self._mode), func)

    def __enter__(self) -> None:
        _C._set_grad_enabled(self._mode)


class _SetGradEnabledLater:
    """The decorator form of `set_grad_enabled`: nothing is switched before the call."""

    __slots__ = ("_before", "_mode")

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_C._set_grad_enabled(self._mode))

    def __exit__(self, *exc: object) -> None:
        _C._set_grad_enabled(self._before.pop())


class inference_mode(_Mode):
    """Like `no_grad`; tensors made inside are marked as inference tensors."""

    __module__ = "torchlike.autograd.grad_mode"

    __slots__ = ("_mode",)
    _mode: bool

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        self._before = []
        self._mode = True if callable(mode) else bool(mode)
        return self(mode) if callable(mode) else self

    def __enter__(self) -> None:
        self._before.append((_C._set_inference(self._mode), _C._set_grad_enabled(not self._mode)))

    def __exit__(self, *exc: object) -> None:
        inference, grad = self._before.pop()
        _C._set_inference(inference)
        _C._set_grad_enabled(grad)


def set_default_dtype(d: Any) -> None:
    """Sets the dtype of tensors made from Python floats, and of `torch.Storage`."""
    _C.set_default_dtype(d)
    name = _dtype_to_storage_type_map().get(d)
    if name is not None:
        import torchlike as torch

        torch.Storage = getattr(torch, name)


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype by an old tensor type's name, such as `torch.DoubleTensor`."""
    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives."
    )
    if not isinstance(t, str | type):
        raise TypeError(
            "invalid type object: only floating-point types are supported as the default type"
        )
    name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
    from torchlike import _legacy

    found = getattr(_legacy, name.rpartition(".")[2], None)
    if not isinstance(found, _legacy.tensortype) or not found.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    set_default_dtype(found.dtype)
