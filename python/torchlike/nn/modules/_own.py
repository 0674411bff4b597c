"""Methods that classes share, under the names of each: errors of the interpreter name the class that was called."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def own(*names: str) -> Callable[[_Class], _Class]:
    """Gives a class functions of its own of the methods that it takes from a base."""

    def give(cls: _Class) -> _Class:
        for name in names:
            shared = getattr(cls, name)
            method = FunctionType(
                shared.__code__,
                shared.__globals__,
                name,
                shared.__defaults__,
                shared.__closure__,
            )
            method.__kwdefaults__ = shared.__kwdefaults__
            method.__annotations__ = shared.__annotations__
            method.__doc__ = shared.__doc__
            method.__module__ = cls.__module__
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
        return cls

    return give
