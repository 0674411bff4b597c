"""Sizes that have symbols in PyTorch: every size is a number here, but for the ragged ones of nested tensors."""

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
SymFloat: Any = _absent.kind("torchlike", "SymFloat", _WHY)
SymBool: Any = _absent.kind("torchlike", "SymBool", _WHY)
sym_fresh_size = _absent.function("torchlike", "sym_fresh_size", _WHY)


class SymInt:
    """A size that is no number: that of a dimension in which the parts of a nested tensor differ.

    What can be asked of it says its node (`nested._internal.nested_int`): it equals itself, and is two at least.
    """

    __module__ = "torchlike"

    def __init__(self, node: Any) -> None:
        self.node = node

    def __repr__(self) -> str:
        return repr(self.node)

    def __hash__(self) -> int:
        return hash(self.node.nested_int())

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        number: int = self.node.int_()
        return number

    def __neg__(self) -> SymInt:
        return SymInt(self.node.neg())

    def __deepcopy__(self, memo: Any) -> SymInt:
        return self


def _of_two(name: str, other_first: bool = False) -> Any:
    """A method that asks the node; numbers are given as they are."""

    def ask(self: SymInt, other: Any) -> Any:
        other = other.node if isinstance(other, SymInt) else other
        if not isinstance(other, builtins.int) and not hasattr(other, "nested_int"):
            return NotImplemented
        made = getattr(self.node, name)(other)
        return made if isinstance(made, builtins.bool) else SymInt(made)

    ask.__name__ = f"__{'r' if other_first else ''}{name.removeprefix('int_')}__"
    return ask


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SymInt, f"__{_name}__", _of_two(_name))
for _name in ("add", "sub", "mul", "int_floordiv", "int_truediv", "mod"):
    _bare = _name.removeprefix("int_")
    setattr(SymInt, f"__{_bare}__", _of_two(_name))
    setattr(SymInt, f"__r{_bare}__", _of_two(_name, True))


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
