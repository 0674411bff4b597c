"""How Python objects are taken apart for saving, and the names that PyTorch knows their classes by."""

from __future__ import annotations

import copyreg
import sys
from pickle import PicklingError, whichmodule  # type: ignore[attr-defined]
from types import FunctionType
from typing import Any, NamedTuple

from torchlike import _C
from torchlike._opaque import Opaque, OpaqueClass
from torchlike._parts import qscheme


class Name(NamedTuple):
    """A class or function by its name."""

    module: str
    name: str


class Parts(NamedTuple):
    """What makes an object again: a call, then a state, items and pairs."""

    new: bool  # `func.__new__(func, *args)`, else `func(*args)`
    func: Any
    args: tuple[Any, ...]
    state: Any
    items: list[Any]
    pairs: list[tuple[Any, Any]]


def _torch_module(module: str) -> str:
    if module == "torchlike" or module.startswith("torchlike."):
        return "torch" + module.removeprefix("torchlike")
    return module


def name_of(obj: Any, name: str | None = None) -> Name | Parts:
    """The name of a class or function, or how it is looked up in another one."""
    if obj is type(None) or obj is type(...) or obj is type(NotImplemented):
        value = {type(None): None, type(...): ..., type(NotImplemented): NotImplemented}[obj]
        return Parts(False, type, (value,), None, [], [])
    name = name or getattr(obj, "__qualname__", None) or obj.__name__
    module = whichmodule(obj, name)
    if "<locals>" in name:
        raise AttributeError(f"Can't pickle local object {name!r}")
    parent = None
    try:
        __import__(module)
        found: Any = sys.modules[module]
        for part in name.split("."):
            parent, found = found, getattr(found, part)
    except (ImportError, KeyError, AttributeError) as e:
        raise PicklingError(f"Can't pickle {obj!r}: it's not found as {module}.{name}") from e
    if found is not obj:
        raise PicklingError(f"Can't pickle {obj!r}: it's not the same object as {module}.{name}")
    if "." in name:
        return Parts(False, getattr, (parent, name.rpartition(".")[2]), None, [], [])
    return Name(_torch_module(module), name)


def parts_of(obj: Any) -> Name | Parts:
    """Takes an object apart, as the pickle protocol asks it to."""
    cls = type(obj)
    if isinstance(obj, type | FunctionType):
        return name_of(obj)
    if cls is qscheme:
        return Name("torch", repr(obj).rpartition(".")[2])
    if cls is Name:
        return obj
    if cls is _C.Generator:
        seed = (obj.initial_seed(), None, obj.get_state())
        return Parts(False, Name("torch._C", "Generator"), (obj.device,), seed, [], [])
    if cls is OpaqueClass:
        return Name(obj.module, obj.name)
    if cls is Opaque:
        if obj.kwargs:
            raise PicklingError(f"Can't pickle {obj!r}: it is made with keyword arguments")
        return Parts(
            obj.new,
            Name(obj.module, obj.name),
            obj.args,
            obj.state,
            obj.items,
            list(obj.pairs.items()),
        )
    custom = copyreg.dispatch_table.get(cls)
    reduced = custom(obj) if custom else obj.__reduce_ex__(2)
    if isinstance(reduced, str):
        return name_of(obj, reduced)
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6:
        raise PicklingError(f"{cls.__name__}.__reduce_ex__() must return a string or a tuple")
    func, args, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    if setter is not None:
        raise PicklingError(f"Can't pickle {cls.__name__}: it asks for a function to set its state")
    new = getattr(func, "__name__", "") == "__newobj__"
    if new:
        func, *rest = args
        args = tuple(rest)
    elif getattr(func, "__name__", "") == "__newobj_ex__":
        func, args, keywords = args
        if keywords:
            raise PicklingError(f"Can't pickle {cls.__name__}: it is made with keyword arguments")
        new = True
    return Parts(new, func, tuple(args), state, list(items or ()), list(pairs or ()))
