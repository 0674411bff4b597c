"""Compiling what is done with each item: the names of loops, and lists and dictionaries of what a loop makes."""

from __future__ import annotations

import ast
from typing import Any

from torchlike.jit._bodies import kinds_of
from torchlike.jit._compile import Expressions
from torchlike.jit._parts_of_code import _each_kind, _kind
from torchlike.jit._scope import Known, Part, Run, Several
from torchlike.nn.modules.container import ModuleDict


class Comprehensions(Expressions):
    """Compiles these expressions."""

    def _comprehension(self, node: ast.ListComp | ast.DictComp) -> tuple[ast.comprehension, Any]:
        if len(node.generators) != 1:
            raise self.fail(node, "Only a single generator is currently supported")
        loop = node.generators[0]
        if loop.ifs:
            raise self.fail(node, "Comprehension ifs are not supported yet")
        return loop, self.visit(loop.iter)

    def _ListComp(self, node: ast.ListComp) -> Any:
        loop, over = self._comprehension(node)
        items = self.unrolled(over, loop.iter)
        saved = dict(self.locals)
        try:
            if items is not None:
                made = []
                for item in items:
                    self.bind(loop.target, item, loop.target)
                    made.append(self.run(node.elt))
                return Run(ast.List(made, ast.Load()), None)
            target = self._item_target(loop.target, over)
            item = self.visit(node.elt)
            new = ast.comprehension(target, self.node(over, loop.iter), [], 0)
            kind = f"List[{_kind(item)}]" if _kind(item) else None
            return Run(ast.ListComp(self.node(item, node.elt), [new]), kind)
        finally:
            self.locals = saved

    def _DictComp(self, node: ast.DictComp) -> Any:
        loop, over = self._comprehension(node)
        saved = dict(self.locals)
        try:
            target = self._item_target(loop.target, over)
            new = ast.comprehension(target, self.node(over, loop.iter), [], 0)
            return Run(ast.DictComp(self.run(node.key), self.run(node.value), [new]), None)
        finally:
            self.locals = saved

    def runtime_target(self, target: ast.AST, over: Any) -> ast.expr:
        """The names of a loop of the run."""
        if isinstance(target, ast.Name):
            self.locals[target.id] = Run(ast.Name(target.id, ast.Load()), _each_kind(_kind(over)))
            return ast.Name(target.id, ast.Store())
        if isinstance(target, ast.Tuple):
            return ast.Tuple([self.runtime_target(t, None) for t in target.elts], ast.Store())
        raise self.fail(target, "a target of a loop that is no name")

    def _item_target(self, target: ast.AST, over: Any) -> ast.expr:
        """The name of a list or dictionary of what a loop makes: PyTorch reads one only, so that several are its
        parts."""
        if not isinstance(target, ast.Tuple):
            return self.runtime_target(target, over)
        item = "_".join(["_each", *(n.id for n in ast.walk(target) if isinstance(n, ast.Name))])
        kind = _each_kind(_kind(over))
        self._bind_parts(target, Run(ast.Name(item, ast.Load()), kind))
        return ast.Name(item, ast.Store())

    def _bind_parts(self, target: ast.AST, value: Run) -> None:
        if isinstance(target, ast.Name):
            self.locals[target.id] = value
            return
        if not isinstance(target, ast.Tuple):
            raise self.fail(target, "a target of a loop that is no name")
        kinds = kinds_of(value.kind, len(target.elts))
        for i, (t, kind) in enumerate(zip(target.elts, kinds, strict=True)):
            self._bind_parts(t, Run(ast.Subscript(value.node, ast.Constant(i), ast.Load()), kind))

    def bind(self, target: ast.AST, value: Any, at: ast.AST) -> None:
        """Gives names values that compiling knows."""
        if isinstance(target, ast.Name):
            self.locals[target.id] = value
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(value, Several)
            and len(target.elts) == len(value.items)
        ):
            for t, v in zip(target.elts, value.items, strict=True):
                self.bind(t, v, at)
        else:
            raise self.fail(at, "values that cannot be told apart while compiling")

    def unrolled(self, over: Any, at: ast.AST) -> list[Any] | None:
        """The items of what compiling knows to hold modules or a fixed number of values."""
        if isinstance(over, Several):
            return over.items
        if isinstance(over, Part):
            keys = isinstance(over.module, ModuleDict) or (
                getattr(over.module, "original_name", "") == "ModuleDict"
            )
            return [Known(k) for k in over.module._modules] if keys else self.parts(over, at)
        if isinstance(over, Known) and isinstance(over.value, tuple | list):
            return [Known(v) for v in over.value]
        return None
