"""Marks for NVIDIA's profilers: none are made, and code that makes them runs on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_depth = 0


def range_push(msg: str) -> int:
    """Opens a range; returns how many were open."""
    global _depth
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """Closes a range; returns how many stay open."""
    global _depth
    _depth -= 1
    return _depth


def range_start(msg: str) -> int:
    """A range that is closed by its number."""
    return 0


def range_end(range_id: int) -> None:
    """Closes such a range."""


def mark(msg: str) -> None:
    """Marks a moment."""


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for a block."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
