"""Nodes of code, and what is known of values while it is compiled."""

from __future__ import annotations

import ast
import enum
import math
from typing import Any

import torchlike
from torchlike.jit import _types
from torchlike.jit._functions import DTYPES, FORMATS
from torchlike.jit._scope import Known, Of, Run, Several

_FOLDED = (int, float, bool, str, type(None), tuple, list, dict)


_KEPT_CALLS = frozenset(
    ("int", "float", "bool", "str", "len", "range", "abs", "min", "max", "sum", "round", "sorted", "any", "all", "list",
     "print", "ord", "chr", "enumerate", "zip", "reversed", "hex", "oct", "bin", "divmod",
     "pow", "complex")
)  # fmt: skip


# Methods of lists that take an item.
_OF_ITEMS = frozenset(("append", "insert", "index", "count", "remove"))


# Casts that code has no methods for, as the numbers of their types.
_TO = {"bool": 11, "bfloat16": 15}


_TENSOR_CASTS = frozenset(
    [
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "short",
        "char",
        "byte",
        "bool",
        "cpu",
        "cuda",
        "type_as",
        "size",
        "dim",
        "item",
        "tolist",
        "numel",
        "nelement",
        "view_as",
        "is_floating_point",
        "is_complex",
        "stride",
        "requires_grad_",
        "detach_",
        "contiguous",
        "is_contiguous",
        "element_size",
        "to",
    ]
)


def name(text: str) -> ast.expr:
    """A dotted name as a node."""
    first, *rest = text.split(".")
    node: ast.expr = ast.Name(first, ast.Load())
    for part in rest:
        node = ast.Attribute(node, part, ast.Load())
    return node


def call(
    function: str | ast.expr, args: list[ast.expr], keywords: list[ast.keyword] | None = None
) -> ast.expr:
    """A call as a node."""
    return ast.Call(name(function) if isinstance(function, str) else function, args, keywords or [])


def of_setting(value: Any) -> ast.expr | None:
    """The code of a dtype, a layout, a memory format, which are numbers in code, or a device."""
    if isinstance(value, torchlike.dtype):
        return ast.Constant(next(n for n, d in DTYPES.items() if d == value))
    if isinstance(value, torchlike.memory_format):
        return ast.Constant(next(n for n, f in FORMATS.items() if f == value))
    if isinstance(value, torchlike.layout):
        return ast.Constant(0)
    if isinstance(value, torchlike.device):
        return call("torch.device", [ast.Constant(str(value))])
    return None


_ATTRIBUTE_KINDS = {
    "shape": "List[int]", "dtype": "int", "device": "Device", "ndim": "int", "T": "Tensor", "mT": "Tensor",
    "H": "Tensor", "is_cuda": "bool", "requires_grad": "bool", "data": "Tensor", "real": "Tensor", "imag": "Tensor",
}  # fmt: skip


def _plain(value: Any) -> bool:
    return isinstance(value, Known) and isinstance(value.value, _FOLDED)


def is_member(value: Any) -> bool:
    """True for a member of an enumeration, which code has not: all that depends on it is decided while compiling."""
    return isinstance(value, Known) and isinstance(value.value, enum.Enum)


def _kind(value: Any) -> str | None:
    """The type of a value, where it is known."""
    if isinstance(value, Run):
        return value.kind
    if isinstance(value, Several):
        kinds = [_kind(v) for v in value.items]
        known = value.items and None not in kinds
        return f"Tuple[{', '.join(k or '' for k in kinds)}]" if known else None
    if isinstance(value, Known):
        try:
            return _types.of_value(value.value, lambda k: None)
        except _types.UnknownType:
            return None
    return None


def _never_none(kind: str) -> bool:
    return not kind.startswith(("Optional", "NoneType", "Any", "Union"))


def _item_kind(kind: str | None, key: ast.AST) -> str | None:
    """The type of an item, or of a slice: what may be missing is there if it is asked for items."""
    if kind and kind.startswith("Optional["):
        kind = kind[9:-1]
    if kind == "Tensor":
        return "Tensor"
    if kind and kind.startswith("List["):
        return kind if isinstance(key, ast.Slice) else kind[5:-1]
    if kind and kind.startswith("Dict["):
        return _types.parts_of(kind)[1]
    if kind and kind.startswith("Tuple[") and isinstance(key, ast.Constant):
        parts = _types.parts_of(kind)
        return parts[key.value] if isinstance(key.value, int) and key.value < len(parts) else None
    return None


def _each_kind(kind: str | None) -> str | None:
    """The type of what a loop over a value gives."""
    kind = kind or ""
    if kind.startswith("Optional["):
        kind = kind[9:-1]
    if kind.startswith("Dict["):
        return _types.parts_of(kind)[0]
    if kind == "Tensor" or kind == "str":
        return kind
    return kind[5:-1] if kind.startswith("List[") else None


def _member(node: ast.expr, attribute: str) -> ast.expr:
    """An attribute, by `getattr` where it is no name."""
    if attribute.isidentifier():
        return ast.Attribute(node, attribute, ast.Load())
    return call("getattr", [node, ast.Constant(attribute)])


def _called(node: ast.AST) -> str:
    names = {
        "Lambda": "Lambda functions",
        "Set": "Sets",
        "Yield": "Generators",
        "Await": "Coroutines",
        "Starred": "Starred expressions",
    }
    return names.get(type(node).__name__, f"{type(node).__name__} expressions")


def plain_constant(value: Any) -> ast.expr | None:
    """The code for a number, a text, a truth value or nothing; None for another value."""
    if value is None or isinstance(value, bool | str) or value is Ellipsis:
        return ast.Constant(value)
    if isinstance(value, complex):
        return call("complex", [c for v in (value.real, value.imag) if (c := plain_constant(v))])
    if not isinstance(value, int | float):
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return call("float", [ast.Constant(str(value))])
    negative = value < 0 if isinstance(value, int) else math.copysign(1, value) < 0
    made = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), made) if negative else made


def of_dictionary(of: Of) -> str | None:
    """The type of what a method of a dictionary gives, of its keys and values."""
    if of.kind is None or not of.kind.startswith("Dict["):
        return None
    key, value = _types.parts_of(of.kind)
    found = {"keys": f"List[{key}]", "values": f"List[{value}]"}
    return found.get(of.name) or (f"List[Tuple[{key}, {value}]]" if of.name == "items" else None)


def as_list(value: Any) -> Any:
    """Numbers side by side as a list, which operators take."""
    if (
        _plain(value)
        and isinstance(value.value, tuple)
        and value.value
        and all(isinstance(v, int | float) for v in value.value)
    ):
        return Known(list(value.value))
    if isinstance(value, Several) and value.items and all(_kind(v) == "int" for v in value.items):
        items = [v.node if isinstance(v, Run) else ast.Constant(v.value) for v in value.items]
        return Run(ast.List(items, ast.Load()), "List[int]")
    return value


def count_of(value: Any) -> int | None:
    """How many values one stands for, where compiling knows that."""
    if isinstance(value, Several):
        return len(value.items)
    if isinstance(value, Known) and isinstance(value.value, tuple):
        return len(value.value)
    kind = _kind(value) or ""
    return len(_types.parts_of(kind)) if kind.startswith("Tuple[") and kind != "Tuple[()]" else None
