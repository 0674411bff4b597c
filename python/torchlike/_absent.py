"""What torchlike has not: names that can be imported, and that say so themselves when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


def _public(module: str) -> str:
    return "torch" + module.removeprefix("torchlike")


def function(module: str, name: str, why: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError with its own name and the reason."""

    def absent(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{_public(module)}.{name} is not supported by torchlike: {why}")

    absent.__name__ = absent.__qualname__ = name
    absent.__module__ = module
    absent.__doc__ = f"Not supported: {why}."
    return absent


def kind(module: str, name: str, why: str, base: type = object) -> type:
    """A class of which nothing is an instance: to make one raises NotImplementedError with its name."""

    def new(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{_public(module)}.{name} is not supported by torchlike: {why}")

    body = {"__module__": module, "__doc__": f"Not supported: {why}.", "__new__": new}
    return type(name, (base,), body)


def names(module: str, why: str, text: str) -> dict[str, Any]:
    """Absent functions, and classes (capitalised), by their names in a text."""
    return {
        name: (kind if name.lstrip("_")[:1].isupper() else function)(module, name, why)
        for name in text.split()
    }
