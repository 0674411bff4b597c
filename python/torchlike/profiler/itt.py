"""Marks for Intel's profilers, which this library does not make: a program may ask whether there are any."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """False: no marks are made."""
    return False


def _absent(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")


def range_push(msg: str) -> NoReturn:
    """Begins a span.

    Raises:
        RuntimeError: always.
    """
    _absent(msg)


def range_pop() -> NoReturn:
    """Ends a span.

    Raises:
        RuntimeError: always.
    """
    _absent()


def mark(msg: str) -> NoReturn:
    """Marks a moment.

    Raises:
        RuntimeError: always.
    """
    _absent(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A span as a block.

    Raises:
        RuntimeError: always.
    """
    range_push(msg.format(*args, **kwargs))
    yield
