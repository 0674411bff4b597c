"""What decorators note on functions, and what compiled code is told of them."""

from __future__ import annotations

from typing import Any

EXPORT, UNUSED, IGNORE, COPY_TO_SCRIPT = "export", "unused", "ignore", "copy_to_script"
_NAME = "_torchscript_modifier"


def mark(function: Any, how: str) -> Any:
    """Notes on a function how it is compiled."""
    target = function.fget if isinstance(function, property) else function
    setattr(target, _NAME, how)
    return function


def mark_of(function: Any) -> str | None:
    """What is noted on a function."""
    found = getattr(getattr(function, "__func__", function), _NAME, None)
    return found if isinstance(found, str) else None


class ScriptMethodStub:
    """A method of a class of script modules, until the class takes it to compile it."""

    def __init__(self, function: Any) -> None:
        self.function = function


_overloads: dict[tuple[str, str], list[Any]] = {}


def overload(function: Any) -> Any:
    """Notes a signature of the method that is defined below by the same name."""
    known = _overloads.setdefault((function.__module__, function.__qualname__), [])
    code = function.__code__
    place = (code.co_filename, code.co_firstlineno)
    if known and not place > (known[-1].__code__.co_filename, known[-1].__code__.co_firstlineno):
        known.clear()  # the class is defined once more
    known.append(function)
    return function


def overloads_of(function: Any) -> list[Any]:
    """The signatures that were noted for a method."""
    name = (getattr(function, "__module__", ""), getattr(function, "__qualname__", ""))
    return _overloads.get(name, [])
