"""Devices that torchlike does not know: their modules answer as PyTorch's do without such a device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def available() -> bool:
    """False: there is no such device."""
    return False


def no_bf16(including_emulation: bool = True) -> bool:
    """False: there is no such device."""
    return False


def count() -> int:
    """0: there is no such device."""
    return 0


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing, as there is no such device."""


def zero(*_: Any, **__: Any) -> int:
    """0, as there is no such device."""
    return 0


def empty_list(*_: Any, **__: Any) -> list[Any]:
    """An empty list, as there is no such device."""
    return []


def failing(module: str, name: str, error: type[Exception], text: str) -> Callable[..., NoReturn]:
    """A function that says that there is no such device."""

    def absent(*_: Any, **__: Any) -> NoReturn:
        raise error(text)

    absent.__name__ = absent.__qualname__ = name
    absent.__module__ = module
    absent.__doc__ = f"Fails: {text}."
    return absent


def failing_class(module: str, name: str, error: type[Exception], text: str) -> type:
    """A class of which there are no objects."""

    def new(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise error(text)

    return type(name, (), {"__module__": module, "__doc__": f"Fails: {text}.", "__new__": new})


@contextmanager
def unchanged(*_: Any, **__: Any) -> Iterator[None]:
    """A block in which nothing is different, as there is no such device."""
    yield
