"""Questions about sizes that may be symbols. Sizes are numbers here, so every question has an answer."""

from __future__ import annotations

from typing import Any

__all__ = [
    "GuardOnDataDependentSymNode",
    "ShapeEnv",
    "definitely_false",
    "definitely_true",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_int",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "has_free_symbols",
    "hint_int",
    "is_concrete_bool",
    "is_concrete_int",
    "is_symbolic",
    "statically_known_true",
]


class GuardOnDataDependentSymNode(RuntimeError):
    """A decision depends on data; never raised, as sizes are numbers."""


class ShapeEnv:
    """Where PyTorch keeps the symbols of sizes: there are none, and so nothing is guarded.

    Args:
        assume_static_by_default: whether sizes are numbers, as they always are here; what takes an environment refuses
            one that asks for symbols.
        options: accepted.
    """

    def __init__(self, *, assume_static_by_default: bool = False, **options: Any) -> None:
        self.assume_static_by_default = assume_static_by_default
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, int] = {}


def guard_or_false(a: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(a)


def statically_known_true(x: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(x)


def guard_size_oblivious(expr: Any) -> bool:
    """The truth of a condition on sizes."""
    return bool(expr)


guard_or_true = guard_or_false
definitely_true = guard_bool = guard_or_false


def definitely_false(a: Any) -> bool:
    """True if a condition on sizes is false."""
    return not a


def guard_int(a: Any) -> int:
    """A size."""
    return int(a)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """A size."""
    return int(a)


def free_symbols(val: Any) -> set[Any]:
    """No symbols."""
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(val: Any) -> bool:
    """False."""
    return False


is_symbolic = has_free_symbols


def is_concrete_int(a: Any) -> bool:
    """True."""
    return True


is_concrete_bool = is_concrete_int
