"""What operators and plain functions of code do, by the nodes and the names that stand for them."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from torchlike.jit import _values

if TYPE_CHECKING:
    from collections.abc import Callable


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: _values.add, ast.Sub: _values.sub, ast.Mult: _values.mul, ast.Div: _values.divide,
    ast.FloorDiv: _values.floor_divide, ast.Mod: _values.remainder, ast.Pow: _values.power,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: _values.shift,
    ast.RShift: operator.rshift,
}  # fmt: skip


_INPLACE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul, ast.Div: operator.itruediv,
}  # fmt: skip


_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip


def _mixed(a: Any, b: Any) -> bool:
    """True for a list and a tuple: code has sizes as lists, which are compared with tuples too."""
    return type(a) is not type(b) and isinstance(a, list | tuple) and isinstance(b, list | tuple)


def _equal(a: Any, b: Any) -> Any:
    return list(a) == list(b) if _mixed(a, b) else a == b


def _unequal(a: Any, b: Any) -> Any:
    return list(a) != list(b) if _mixed(a, b) else a != b


_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: _equal, ast.NotEq: _unequal, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: operator.contains(b, a), ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


def _rounded(x: Any, *digits: int) -> Any:
    """The nearest whole number, which stays a real one."""
    return type(x)(round(x, *digits))


_PLAIN_CALLS: dict[str, Callable[..., Any]] = {
    "int": lambda x=0, *b: _values.whole(int(x, *b)), "float": lambda x=0.0: float(x),
    "bool": lambda x=False: bool(x), "str": str, "len": len, "range": range, "abs": abs, "min": min, "max": max,
    "sum": sum, "round": _rounded, "sorted": sorted, "reversed": lambda x: list(reversed(x)), "any": any, "all": all,
    "enumerate": enumerate, "zip": zip, "list": list, "tuple": tuple, "dict": dict, "ord": ord, "chr": chr,
    "hex": hex, "oct": oct, "bin": bin, "print": print, "divmod": divmod, "complex": complex,
    "pow": _values.power,
}  # fmt: skip
