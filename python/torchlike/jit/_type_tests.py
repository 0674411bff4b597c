"""Compiling questions about types: annotations, and `isinstance`."""

from __future__ import annotations

import ast
from typing import Any

from torchlike import jit
from torchlike.jit import _types
from torchlike.jit._comprehensions import Comprehensions
from torchlike.jit._parts_of_code import _kind, _never_none, _plain, call
from torchlike.jit._scope import Known, Part, Run, Several


class TypeTests(Comprehensions):
    """Compiles these."""

    def _isinstance(self, node: ast.Call) -> Any:
        value = self.visit(node.args[0])
        if isinstance(value, Part) or _plain(value):
            subject = value.module if isinstance(value, Part) else value.value
            kinds = self._class(node.args[1])
            if isinstance(kinds, Known):
                return Known(jit.isinstance(subject, kinds.value))
        elements = _alternatives(node.args[1])
        sure = self._of_container(value, [self._class(e) for e in elements])
        if sure is not None:
            return Known(sure)
        texts = [t for e in elements for t in self._asked(value, e)]
        if isinstance(value, Run) and value.kind in texts and value.kind:
            return Known(True)
        if isinstance(value, Run) and value.kind and _never_none(value.kind) and "Any" not in texts:
            return Known(False)
        nodes = [_types.node_of(t) for t in texts]
        return Run(
            call(
                "isinstance",
                [
                    self.node(value, node),
                    nodes[0] if len(nodes) == 1 else ast.Tuple(nodes, ast.Load()),
                ],
            ),
            "bool",
        )

    def _class(self, node: ast.AST) -> Any:
        """What a class, or a type with parameters, is."""
        if not isinstance(node, ast.Subscript | ast.BinOp):
            return self.visit(node)
        try:
            return Known(_types.evaluated(node, self.source.lookup))
        except (KeyError, AttributeError, TypeError) as e:
            raise self.fail(node, str(e) or "an annotation that is no type") from None

    def _asked(self, value: Any, node: ast.AST) -> list[str]:
        """The types that a class stands for: a list of anything is one of those that a value may be."""
        kind = _kind(value) or ""
        named = self.visit(node) if isinstance(node, ast.Name) else None
        names: dict[Any, str] = {list: "List[", tuple: "Tuple[", dict: "Dict["}
        name = names.get(named.value) if isinstance(named, Known) else None
        if name and kind.startswith(("Union[", "Optional[Union[")):
            return [k for k in _types.parts_of(kind) if k.startswith(name)]
        return _types.alternatives(self.annotation(node))

    @staticmethod
    def _of_container(value: Any, classes: list[Any]) -> bool | None:
        """Whether a value is a list, tuple or dictionary of anything; None where that is not all that is asked, or
        its type is not known."""
        kind = "Tuple[" if isinstance(value, Several) else _kind(value)
        asked: list[Any] = [c.value if isinstance(c, Known) else None for c in classes]
        if kind is None or kind in ("Any", "NoneType") or kind.startswith(("Optional", "Union")):
            return None
        if not all(a in (list, tuple, dict) for a in asked):
            return None
        names: dict[Any, str] = {list: "List[", tuple: "Tuple[", dict: "Dict["}
        return kind.startswith(tuple(names[a] for a in asked))

    def _meant(self, node: ast.AST, of: str) -> Any:
        try:
            return _types.evaluated(node, self.source.lookup)
        except KeyError:
            # A name that only annotations use is known to them alone
            said = self.source.function.__annotations__.get(of)
            if said is None or isinstance(said, str):
                raise
            return said

    def annotation(self, node: ast.AST, of: str = "") -> str:
        """The type that an annotation says, which may be that `of` an argument, or of the result."""
        try:
            kind = self._meant(node, of)
            return _types.of_annotation(kind, self.program.named(self, node))
        except (_types.UnknownType, KeyError, AttributeError, TypeError) as e:
            raise self.fail(node, str(e) or "an annotation that is no type") from None


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """The classes of a tuple of classes and tuples."""
    if not isinstance(node, ast.Tuple):
        return [node]
    return [part for each in node.elts for part in _alternatives(each)]
