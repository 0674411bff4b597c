"""Questions and decorators of compilers. Nothing is compiled here: what is decorated runs as it is."""

from __future__ import annotations

from typing import Any

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


def is_compiling() -> bool:
    """False: code is never being compiled."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: Any = None) -> Any:
    """A decorator that changes nothing."""
    return fn if fn is not None else lambda f: f


def allow_in_graph(fn: Any) -> Any:
    """A decorator that changes nothing.

    Raises:
        AssertionError: if it is no function, or a list of them.
    """
    if isinstance(fn, list | tuple):
        return [allow_in_graph(f) for f in fn]
    assert callable(fn), "allow_in_graph expects a callable"
    return fn


def assume_constant_result(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


def substitute_in_graph(original_fn: Any, **_: Any) -> Any:
    """A decorator that changes nothing: the original is called."""
    return lambda f: f


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """No backends."""
    return []


def reset() -> None:
    """Nothing to forget."""


class set_stance:
    """Accepted, without an effect."""

    def __init__(self, stance: str = "default", **_: Any) -> None:
        self.stance = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn
