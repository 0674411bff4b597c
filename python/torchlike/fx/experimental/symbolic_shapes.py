"""Questions about sizes that may be symbols. Sizes are numbers here, so every question has an answer."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConstraintViolationError",
    "GuardOnDataDependentSymNode",
    "ShapeEnv",
    "canonicalize_bool_expr",
    "check_consistent",
    "create_contiguous",
    "definitely_false",
    "definitely_true",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_float",
    "guard_int",
    "guard_or_false",
    "guard_or_true",
    "guard_scalar",
    "guard_size_oblivious",
    "guarding_hint_or_throw",
    "has_free_symbols",
    "has_free_unbacked_symbols",
    "has_static_value",
    "has_symbolic_sizes_strides",
    "hint_int",
    "is_concrete_bool",
    "is_concrete_float",
    "is_concrete_int",
    "is_nested_int",
    "is_symbolic",
    "optimization_hint",
    "statically_known_false",
    "statically_known_true",
    "sym_and",
    "sym_eq",
    "sym_or",
]


class ConstraintViolationError(RuntimeError):
    """A size of an example is none that its `Dim` allows."""


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


def has_free_unbacked_symbols(x: Any) -> bool:
    """False."""
    return False


def has_symbolic_sizes_strides(elem: Any) -> bool:
    """False."""
    return False


def is_nested_int(s: Any) -> bool:
    """Whether a size is that of sequences of different lengths."""
    from torchlike import SymInt

    return isinstance(s, SymInt)


def has_static_value(a: Any) -> bool:
    """Whether a size is a number."""
    return not is_nested_int(a)


def statically_known_false(x: Any) -> bool:
    """True if a condition on sizes is false."""
    return not x


def guard_float(a: Any) -> float:
    """A number."""
    if not isinstance(a, float):
        raise AssertionError(f"Expected float, got {a}")
    return a


def guard_scalar(a: Any) -> bool | int | float:
    """A number or truth value."""
    if not isinstance(a, bool | int | float):
        raise AssertionError(f"unrecognized scalar {a}")
    return a


def guarding_hint_or_throw(a: Any) -> Any:
    """A size or truth value."""
    return a if isinstance(a, bool) else int(a)


def optimization_hint(a: Any, fallback: int | None = None) -> int:
    """A size."""
    return int(a)


def sym_and(x: Any, *others: Any) -> Any:
    """Whether all conditions hold."""
    return all((x, *others))


def sym_or(x: Any, *others: Any) -> Any:
    """Whether one of the conditions holds."""
    return any((x, *others))


def sym_eq(x: Any, y: Any) -> Any:
    """Whether sizes, or lists of them, are equal."""
    if isinstance(x, list | tuple) and isinstance(y, list | tuple):
        return len(x) == len(y) and all(map(sym_eq, x, y))
    return bool(x == y)


def create_contiguous(shape: Any) -> list[int]:
    """The strides of a tensor without gaps."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(size * strides[-1])
    return strides[::-1]


def check_consistent(new: Any, old: Any) -> None:
    """Checks that numbers are equal, and tensors have the same sizes.

    Raises:
        RuntimeError: if not.
    """
    from torchlike import Tensor

    if isinstance(new, Tensor):
        new, old = new.shape, old.shape
    if new != old:
        raise RuntimeError(f"{old} != {new} (old != new)")


def canonicalize_bool_expr(expr: Any) -> Any:
    """The condition itself."""
    return expr


def is_concrete_int(a: Any) -> bool:
    """True."""
    return True


is_concrete_bool = is_concrete_float = is_concrete_int
