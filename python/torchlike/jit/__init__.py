"""Decorators of TorchScript. Nothing is compiled: scripted and traced code runs as Python."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Attribute",
    "Final",
    "annotate",
    "export",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
    "wait",
]


def is_scripting() -> bool:
    """False: code always runs as Python."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


def script(obj: Any, *_: Any, **__: Any) -> Any:
    """The object itself: a function, module or class."""
    return obj


def trace(func: Any, example_inputs: Any = None, *_: Any, **__: Any) -> Any:
    """The function or module itself."""
    return func


def trace_module(mod: Any, inputs: Any = None, *_: Any, **__: Any) -> Any:
    """The module itself."""
    return mod


def freeze(mod: Any, *_: Any, **__: Any) -> Any:
    """The module itself."""
    return mod


def optimize_for_inference(mod: Any, *_: Any, **__: Any) -> Any:
    """The module itself."""
    return mod


def ignore(drop: Any = False, **_: Any) -> Any:
    """A decorator that changes nothing, with or without arguments."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


def export(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


def script_method(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


def interface(obj: Any) -> Any:
    """A decorator that changes nothing."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


_script_if_tracing = script_if_tracing


def _overload(fn: Any) -> Any:
    return fn


def _overload_method(fn: Any) -> Any:
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """As Python's, also for types with parameters, whose items are looked at."""
    from builtins import isinstance as plain
    from typing import get_args, get_origin

    if plain(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    origin, inner = get_origin(target_type), get_args(target_type)
    if origin is None:
        return plain(obj, target_type)
    if not plain(origin, type):
        return any(isinstance(obj, t) for t in inner)
    return plain(obj, origin) and _items_are(obj, origin, inner)


def _items_are(obj: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """True if what a container holds is of the types in brackets."""
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(item, inner[0]) for item in obj)


class Attribute:
    """A value with a type, for attributes of modules."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value = value
        self.type = type


class _Future:
    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        """The result."""
        return self._value


def fork(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the function at once; `wait` gives its result."""
    return _Future(func(*args, **kwargs))


def wait(future: Any) -> Any:
    """The result of `fork`."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Accepted, without an effect."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accepted, without an effect."""
    yield


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def __getattr__(name: str) -> Any:
    """Classes of TorchScript: a scripted module is a module."""
    if name in ("ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule"):
        from torchlike.nn import Module

        return Module
    if name == "ScriptFunction":
        from types import FunctionType

        return FunctionType
    if name == "annotations":
        from importlib import import_module

        return import_module("torchlike.jit.annotations")
    raise AttributeError(f"module 'torchlike.jit' has no attribute '{name}'")


import torchlike.jit.annotations  # noqa: E402  (in place of the future statement's name)
