"""Types of TorchScript as text: of annotations, and of the values that modules hold."""

from __future__ import annotations

import ast
import types
import typing
from typing import Any

import torchlike
from torchlike.nn import Module

Tensor = torchlike.Tensor
_NAMES: dict[Any, str] = {
    int: "int", float: "float", bool: "bool", str: "str", complex: "complex", type(None): "NoneType", None: "NoneType",
    torchlike.device: "Device", torchlike.dtype: "int", torchlike.layout: "int", torchlike.memory_format: "int",
    torchlike.Size: "List[int]", typing.Any: "Any",
}  # fmt: skip


class UnknownType(Exception):
    """An annotation, or a value, that TorchScript has no type for."""


# What is no type without the types in its brackets.
_BARE: dict[Any, str] = {
    torchlike.Future: "Future",
    **{getattr(typing, name): name for name in ("List", "Dict", "Tuple", "Optional", "Union")},
}


def of_annotation(kind: Any, named: Any) -> str:
    """The text of an annotation; `named` gives that of a class of the user.

    Raises:
        UnknownType: if TorchScript has no such type.
    """
    if kind in _NAMES if _hashable(kind) else False:
        return _NAMES[kind]
    if isinstance(kind, type) and issubclass(kind, Tensor):
        return "Tensor"
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        rest = [of_annotation(k, named) for k in inner if k is not type(None)]
        text = rest[0] if len(rest) == 1 else f"Union[{', '.join(rest)}]"
        return f"Optional[{text}]" if len(rest) < len(inner) else text
    if origin is typing.Final:
        return of_annotation(inner[0], named)
    name = _BARE.get(kind) if _hashable(kind) else None
    if name is not None:
        raise UnknownType(
            f"Attempted to use {name} without a contained type. Please add a contained type, e.g. {name}[int]"
            if name != "Dict"
            else "Attempted to use Dict without contained types. Please add contained type, e.g. Dict[int, int]"
        )
    containers = ((list, "List"), (dict, "Dict"), (tuple, "Tuple"), (torchlike.Future, "Future"))
    for container, name in containers:
        if origin is container:
            if inner == ((),):
                return "Tuple[()]"
            return f"{name}[{', '.join(of_annotation(k, named) for k in inner)}]"
    if isinstance(kind, type):
        found = named(kind)
        if found is not None:
            return str(found)
    raise UnknownType(f"Unknown type annotation: '{getattr(kind, '__name__', kind)}'")


def _hashable(kind: Any) -> bool:
    return getattr(type(kind), "__hash__", None) is not None


def of_value(value: Any, named: Any) -> str:
    """The type of a value that a module holds.

    Raises:
        UnknownType: if TorchScript has no type for it.
    """
    if isinstance(value, Tensor):
        return "Tensor"
    if isinstance(value, Module):
        raise UnknownType("a module among plain values")
    kind = type(value)
    if kind in _NAMES:
        return _NAMES[kind]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(named(kind))
    if isinstance(value, tuple):
        value = plain(value)
        return f"Tuple[{', '.join(of_value(v, named) for v in value)}]" if value else "Tuple[()]"
    if isinstance(value, list) and value:
        return f"List[{_common([of_value(v, named) for v in value])}]"
    if isinstance(value, dict) and value:
        keys = _common([of_value(k, named) for k in value])
        return f"Dict[{keys}, {_common([of_value(v, named) for v in value.values()])}]"
    held = named.held(value) if hasattr(named, "held") else None
    if held is not None:
        return str(held)
    raise UnknownType(f"could not infer the type of {value!r:.80}")


def of_attribute(value: Any, hint: Any, named: Any) -> str:
    """The type of an attribute, as its class annotates it or as its value is."""
    if hint is None or hint is typing.Any or "Final" in str(hint):
        return of_value(value, named)
    return of_annotation(hint, named)


def plain(value: Any) -> Any:
    """A value whose tuples are Python's own, unless their parts have names: code has no classes derived from it."""
    if not isinstance(value, tuple) or hasattr(value, "_fields"):
        return value
    return tuple([plain(v) for v in tuple.__getitem__(value, slice(None))])


def _common(kinds: list[str]) -> str:
    """The one type of several values."""
    found = list(dict.fromkeys(kinds))
    if len(found) == 1:
        return found[0]
    if len(found) == 2 and "NoneType" in found:
        return f"Optional[{next(k for k in found if k != 'NoneType')}]"
    raise UnknownType(f"values of several types: {', '.join(found)}")


def parts_of(kind: str) -> list[str]:
    """The types in the brackets of a type."""
    inner = kind.partition("[")[2].removesuffix("]")
    if kind.startswith("Optional["):
        return parts_of(inner)
    found, depth, start = [], 0, 0
    for i, c in enumerate(inner):
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            found.append(inner[start:i].strip())
            start = i + 1
    return [*found, inner[start:].strip()] if inner else []


def alternatives(kind: str) -> list[str]:
    """The types that a value of a type may have."""
    if kind.startswith("Optional["):
        return [*alternatives(kind[9:-1]), "NoneType"]
    return parts_of(kind) if kind.startswith("Union[") else [kind]


def evaluated(node: ast.AST, lookup: Any) -> Any:
    """What an annotation stands for, walked and not run.

    Raises:
        KeyError: if a name stands for nothing.
        TypeError: if it is no annotation.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return evaluated(ast.parse(node.value, mode="eval").body, lookup)
        return node.value
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(evaluated(node.value, lookup), node.attr)
    if isinstance(node, ast.Tuple):
        return tuple(evaluated(e, lookup) for e in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return evaluated(node.left, lookup) | evaluated(node.right, lookup)
    if isinstance(node, ast.Subscript):
        of, key = evaluated(node.value, lookup), evaluated(node.slice, lookup)
        if type(of).__name__ == "_BroadcastingListCls":
            kind: Any = list
            return kind[key]
        return of[key]
    raise TypeError(f"an annotation that is a {type(node).__name__}")


def node_of(kind: str) -> ast.expr:
    """A type as code."""
    return ast.parse(kind, mode="eval").body
