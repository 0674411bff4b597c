"""Which values of Python a function of code takes, and what it says of those that it does not take."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit._types import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Test = Callable[[Any], bool]

_PLAIN: dict[str, Test] = {
    "Tensor": lambda v: isinstance(v, torchlike.Tensor),
    "int": lambda v: (
        hasattr(v, "__index__")
        or isinstance(v, torchlike.dtype | torchlike.layout | torchlike.memory_format)
    ),
    "float": lambda v: (
        not isinstance(v, str | complex) and (hasattr(v, "__float__") or hasattr(v, "__index__"))
    ),
    "str": lambda v: isinstance(v, str),
    "NoneType": lambda v: v is None,
}


def test_of(kind: str) -> Test | None:
    """What tells whether a value may stand for one of a type; None where all values go on as they are."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    name, inner = kind.partition("[")[0], [test_of(k) for k in parts_of(kind)]
    if name == "Optional":
        within = test_of(kind[9:-1])
        return None if within is None else lambda v: v is None or within(v)
    if name == "List":
        return lambda v: _is_list(v) and (inner[0] is None or all(map(inner[0], v)))
    if name == "Dict":
        return lambda v: (
            isinstance(v, dict) and _all(inner[0], v) and _all(inner[1], list(v.values()))
        )
    if name == "Tuple" and kind != "Tuple[()]":
        return lambda v: (
            isinstance(v, list | tuple)
            and len(v) == len(inner)
            and all(t is None or t(x) for t, x in zip(inner, v, strict=True))
        )
    return None


def _is_list(value: Any) -> bool:
    """True for what becomes a list: any sequence but text."""
    return isinstance(value, list | tuple) or (
        hasattr(value, "__iter__")
        and hasattr(value, "__len__")
        and not isinstance(value, str | bytes | dict)
    )


def _all(test: Test | None, values: Any) -> bool:
    return test is None or all(map(test, values))


def schema_type(kind: str) -> str:
    """A type as schemas have it."""
    name, inner = kind.partition("[")[0], parts_of(kind)
    if name == "Optional":
        return schema_type(kind[9:-1]) + "?"
    if name == "List":
        return schema_type(inner[0]) + "[]"
    if name == "Dict":
        return f"Dict({', '.join(map(schema_type, inner))})"
    if name == "Tuple":
        return f"({', '.join(map(schema_type, inner))})"
    return kind


def declaration(tree: ast.FunctionDef, of: str) -> str:
    """A function's name, arguments and result; `of` is the class of `self`."""
    arguments = tree.args.args + tree.args.kwonlyargs
    given: list[Any] = [None] * (len(tree.args.args) - len(tree.args.defaults))
    given += [*tree.args.defaults, *tree.args.kw_defaults]
    shown = []
    for argument, default in zip(arguments, given, strict=True):
        kind = of if argument.annotation is None else schema_type(ast.unparse(argument.annotation))
        value = "" if default is None else f"={ast.unparse(default)}"
        shown.append(f"{kind} {argument.arg}{value}")
    result = "Tensor" if tree.returns is None else schema_type(ast.unparse(tree.returns))
    return f"{tree.name}({', '.join(shown)}) -> {result}"


def misfit(name: str, kind: str, value: Any, position: int, declared: str) -> str:
    """What is said of a value that is none of the type."""
    cast = (
        f"Unable to cast {value!r:.200} to Tensor"
        if kind == "Tensor"
        else f"Unable to cast Python instance of type {type(value)} to C++ type '?'"
    )
    return (
        f"Expected a value of type '{kind}' for argument '{name}' but instead found type "
        f"'{type(value).__name__}'.\nPosition: {position}\nValue: {value!r:.1000}\n"
        f"Declaration: {declared}\nCast error details: {cast}"
    )
