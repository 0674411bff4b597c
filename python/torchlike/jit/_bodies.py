"""Questions about the bodies of statements and about the types of what they bind."""

from __future__ import annotations

import ast
from typing import Any

from torchlike.jit._parts_of_code import call
from torchlike.jit._types import parts_of

_LEAVES = (ast.Return, ast.Break, ast.Continue)


def _has_code(value: Any) -> bool:
    return value is None or isinstance(value, (bool | int | float | str | list | dict, tuple))


def _raise(text: str, kind: str) -> ast.stmt:
    return ast.Expr(call("ops.prim.RaiseException", [ast.Constant(text), ast.Constant(kind)]))


def _is_raise(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "ops.prim.RaiseException"
    )


def _ends(node: ast.stmt) -> bool:
    """True for a branch that leaves on both sides."""
    return (
        isinstance(node, ast.If)
        and bool(node.orelse)
        and _leaves(node.body)
        and _leaves(node.orelse)
    )


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and (isinstance(body[-1], _LEAVES) or _is_raise(body[-1]) or _ends(body[-1]))


def _always_raises(body: list[ast.stmt]) -> bool:
    return bool(body) and _is_raise(body[-1])


def _tests_none(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Is) for n in ast.walk(node))


def _stored(body: list[ast.stmt]) -> set[str]:
    return {
        n.id
        for s in body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def kinds_of(kind: str | None, count: int) -> list[str | None]:
    """The types of what a value of a type is unpacked to."""
    if kind and kind.startswith("Tuple["):
        parts = parts_of(kind)
        if len(parts) == count:
            return list(parts)
    if kind and kind.startswith("List["):
        return [kind[5:-1]] * count
    return [None] * count


def _common(one: str, other: str) -> str | None:
    """The type of a variable that has either type; a value that may be missing is optional."""
    for a, b in ((one, other), (other, one)):
        if a == "NoneType":
            return b if b.startswith("Optional[") else f"Optional[{b}]"
        if b == f"Optional[{a}]":
            return b
    return None


def fits(found: str, wanted: str) -> bool:
    """True if a value of one type may stand where another is wanted."""
    if found == wanted or "Any" in (found, wanted) or wanted.startswith("Union"):
        return True
    if wanted.startswith("Optional["):
        return found == "NoneType" or fits(found, wanted[9:-1])
    if found.startswith("Optional["):
        return fits(found[9:-1], wanted)
    loose = ("List[", "Dict[", "Tuple[")
    if any(found.startswith(p) and wanted.startswith(p) for p in loose):
        return True
    return found.startswith(("List[int]", "Tuple[")) and wanted.startswith(("List[", "Tuple["))
