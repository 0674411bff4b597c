"""What a test says of a variable's type, on either side of a branch."""

from __future__ import annotations

import ast
from typing import Any

from torchlike import jit
from torchlike.jit import _types
from torchlike.jit._scope import Known, Run

__all__ = ["Narrowing", "narrowing"]


class Narrowing:
    """A variable, and its type where a test holds and where it does not; None where nothing is learnt."""

    def __init__(self, name: str, whole: Run, yes: str | None, no: str | None) -> None:
        self.name, self.whole = name, whole
        self.sides = {True: self._as(yes), False: self._as(no)}

    def _as(self, kind: str | None) -> Run:
        return self.whole if kind is None else Run(self.whole.node, kind)

    def opposite(self) -> Narrowing:
        """What the opposite of the test says."""
        self.sides = {True: self.sides[False], False: self.sides[True]}
        return self

    def only(self, side: bool) -> Narrowing:
        """What is learnt where the test is one of several, which is sure on one side alone."""
        self.sides[not side] = self.whole
        return self

    def enter(self, scope: dict[str, Any], side: bool) -> None:
        """Gives the variable the type of one side."""
        scope[self.name] = self.sides[side]

    def leave(self, scope: dict[str, Any], side: bool) -> None:
        """Takes it back, unless the variable was set there."""
        if scope.get(self.name) is self.sides[side]:
            scope[self.name] = self.whole


def narrowing(compiler: Any, test: ast.expr) -> list[Narrowing]:
    """What a test says of variables: `x is None`, `isinstance(x, T)`, their opposites, and several of them."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return [found.opposite() for found in narrowing(compiler, test.operand)]
    if isinstance(test, ast.BoolOp):
        side = isinstance(test.op, ast.And)
        return [f.only(side) for part in test.values for f in narrowing(compiler, part)]
    found = None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        found = _of_none(compiler, test)
    elif isinstance(test, ast.Call) and len(test.args) == 2 and _is_named(test.func):
        function = compiler.visit(test.func)
        if isinstance(function, Known) and function.value in (isinstance, jit.isinstance):
            found = _of_class(compiler, test)
    return [] if found is None else [found]


def _is_named(node: ast.AST) -> bool:
    """True for `isinstance`, and for one of a module."""
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and node.attr == "isinstance"
    )


def _variable(compiler: Any, node: ast.AST) -> Run | None:
    """The value of a variable whose type is known."""
    found = compiler.locals.get(node.id) if isinstance(node, ast.Name) else None
    return found if isinstance(found, Run) and found.kind else None


def _of_none(compiler: Any, test: ast.Compare) -> Narrowing | None:
    value, other = _variable(compiler, test.left), test.comparators[0]
    nothing = isinstance(other, ast.Constant) and other.value is None
    if value is None or not nothing or not isinstance(test.ops[0], ast.Is | ast.IsNot):
        return None
    kind = value.kind or ""
    there = kind[9:-1] if kind.startswith("Optional[") else None
    if there is None:
        return None
    same = isinstance(test.ops[0], ast.Is)
    yes, no = ("NoneType", there) if same else (there, "NoneType")
    return Narrowing(test.left.id, value, yes, no)  # type: ignore[attr-defined]


def _of_class(compiler: Any, test: ast.Call) -> Narrowing | None:
    value, asked = _variable(compiler, test.args[0]), test.args[1]
    kind = (value.kind if value else None) or ""
    if not kind.startswith(("Optional[", "Union[")):
        return None
    parts = _types.alternatives(kind)
    classes = asked.elts if isinstance(asked, ast.Tuple) else [asked]
    texts = {t for c in classes for t in compiler._asked(value, c)}
    yes, no = [p for p in parts if p in texts], [p for p in parts if p not in texts]
    return Narrowing(test.args[0].id, value, _joined(yes), _joined(no))  # type: ignore[attr-defined,arg-type]


def _joined(parts: list[str]) -> str | None:
    """The type of a value of one of several types."""
    there = [p for p in parts if p != "NoneType"]
    if not there:
        return "NoneType" if parts else None
    text = there[0] if len(there) == 1 else f"Union[{', '.join(there)}]"
    return text if len(there) == len(parts) else f"Optional[{text}]"
