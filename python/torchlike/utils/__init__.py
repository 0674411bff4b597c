"""Tools around tensors and modules."""

from __future__ import annotations

from typing import Any

from torchlike import _C, _lazy, _naming
from torchlike.utils import dlpack, hooks

__all__ = ["data", "dlpack", "hooks", "set_module", "swap_tensors"]

# Loaders bring NumPy and processes with them.
data = _lazy.module("torchlike.utils.data")

_LATER = (
    *("_pytree", "_python_dispatch", "checkpoint", "collect_env", "cpp_extension", "deterministic"),
    *("mobile_optimizer", "model_zoo", "tensorboard", "weak", "_contextlib", "_ordered_set"),
)


def __getattr__(name: str) -> Any:
    """Modules that are loaded when they are first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module '{_naming.shown}.utils' has no attribute '{name}'")
    from importlib import import_module

    return import_module(f"torchlike.utils.{name}")


def swap_tensors(t1: _C.Tensor, t2: _C.Tensor) -> None:
    """Exchanges what two tensor objects are: class, attributes and contents. Names for either see the other."""
    import weakref

    for name, t in (("t1", t1), ("t2", t2)):
        if not isinstance(t, _C.Tensor):
            raise AttributeError(f"'{type(t).__name__}' object has no attribute '_use_count'")
        if weakref.getweakrefcount(t) > _C._is_registered(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if _C._viewers(t) > 0:
            raise RuntimeError(f"Cannot swap {name} because there are views of it")
    slots = [set(_slots(type(t))) for t in (t1, t2)]
    if slots[0] != slots[1]:
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    if type(t1) is not type(t2):
        try:
            t1.__class__, t2.__class__ = type(t2), type(t1)
        except TypeError:
            raise RuntimeError(
                f"Cannot swap t1 and t2: a {type(t1).__name__} cannot become a {type(t2).__name__}"
            ) from None
    first, second = dict(t1.__dict__), dict(t2.__dict__)
    for t, attributes in ((t1, second), (t2, first)):
        t.__dict__.clear()
        t.__dict__.update(attributes)
    for name in slots[0]:
        _swap_slot(t1, t2, name)
    _C._swap(t1, t2)


def _slots(cls: type) -> list[str]:
    found = []
    for base in cls.__mro__:
        names = base.__dict__.get("__slots__", ())
        found += [names] if isinstance(names, str) else list(names)
    return [n for n in found if n not in ("__dict__", "__weakref__")]


def _swap_slot(t1: Any, t2: Any, name: str) -> None:
    absent = object()
    values = getattr(t2, name, absent), getattr(t1, name, absent)
    for t, value in zip((t1, t2), values, strict=True):
        if value is not absent:
            setattr(t, name, value)
        elif hasattr(t, name):
            delattr(t, name)


def set_module(obj: Any, mod: str) -> None:
    """Sets the module an object says it is from."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod
