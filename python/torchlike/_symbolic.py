"""Sizes that have symbols in PyTorch: every size is a number here, so nothing is an instance of these classes."""

from __future__ import annotations

import builtins
import math
from typing import Any

from torchlike import _absent

__all__ = [
    "SymBool", "SymFloat", "SymInt", "sym_float", "sym_fresh_size", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip

_WHY = "sizes are numbers"
SymInt: Any = _absent.kind("torchlike", "SymInt", _WHY)
SymFloat: Any = _absent.kind("torchlike", "SymFloat", _WHY)
SymBool: Any = _absent.kind("torchlike", "SymBool", _WHY)
sym_fresh_size = _absent.function("torchlike", "sym_fresh_size", _WHY)


def sym_int(a: Any) -> int:
    """`a` as an integer, rounded towards zero."""
    return builtins.int(a)


def sym_float(a: Any) -> float:
    """`a` as a float."""
    return builtins.float(a)


def sym_not(a: Any) -> bool:
    """Whether `a` is not so."""
    return not a


def _wider(a: Any, b: Any, chosen: Any) -> Any:
    """A float if one of the two is."""
    floating = isinstance(a, builtins.float) or isinstance(b, builtins.float)
    return builtins.float(chosen) if floating else chosen


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float if one of them is."""
    return _wider(a, b, max(a, b))


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float if one of them is."""
    return _wider(a, b, min(a, b))


def sym_sum(args: Any) -> Any:
    """The sum of numbers."""
    return sum(args)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b` holds, else `f`, which have to be of one type.

    Raises:
        AssertionError: if they are not.
    """
    if not isinstance(b, builtins.bool) or type(t) is not type(f):
        raise AssertionError(
            f"expected a bool and two values of one type, got {type(b)}, {type(t)}, {type(f)}"
        )
    return t if b else f


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)
