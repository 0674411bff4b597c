"""Compiling what is done with each item: the names of loops, and lists and dictionaries of what a loop makes."""

from __future__ import annotations

import ast
import enum
from typing import Any

from torchlike.jit import _types
from torchlike.jit._bodies import kinds_of
from torchlike.jit._compile import Expressions
from torchlike.jit._parts_of_code import _each_kind, _kind, call
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
            target, each = self._item_target(loop, over)
            item = self.visit(node.elt)
            new = ast.comprehension(target, each, [], 0)
            kind = f"List[{_kind(item)}]" if _kind(item) else None
            return Run(ast.ListComp(self._whole(item, node.elt), [new]), kind)
        finally:
            self.locals = saved

    def _DictComp(self, node: ast.DictComp) -> Any:
        loop, over = self._comprehension(node)
        saved = dict(self.locals)
        try:
            target, each = self._item_target(loop, over)
            new = ast.comprehension(target, each, [], 0)
            key, item = self.visit(node.key), self.visit(node.value)
            pair = self._whole(key, node.key), self._whole(item, node.value)
            return Run(ast.DictComp(*pair, [new]), None)
        finally:
            self.locals = saved

    def _whole(self, item: Any, node: ast.AST) -> ast.expr:
        """The code of an item: in PyTorch's grammar `for` belongs to what follows `else`."""
        made, kind = self.node(item, node), _kind(item)
        if not isinstance(made, ast.IfExp) or kind is None:
            return made
        return call("annotate", [_types.node_of(kind), made])

    def runtime_target(self, target: ast.AST, over: Any) -> ast.expr:
        """The names of a loop of the run."""
        if isinstance(target, ast.Name):
            self.locals[target.id] = Run(ast.Name(target.id, ast.Load()), _each_kind(_kind(over)))
            return ast.Name(target.id, ast.Store())
        if isinstance(target, ast.Tuple):
            return ast.Tuple([self.runtime_target(t, None) for t in target.elts], ast.Store())
        raise self.fail(target, "a target of a loop that is no name")

    def _item_target(self, loop: ast.comprehension, over: Any) -> tuple[ast.expr, ast.expr]:
        """The name of what a loop in brackets goes over, and that: PyTorch reads one name only, so that several are
        parts of it."""
        target = loop.target
        if not isinstance(target, ast.Tuple):
            return self.runtime_target(target, over), self.node(over, loop.iter)
        name = "_".join(["_each", *(n.id for n in ast.walk(target) if isinstance(n, ast.Name))])
        each = ast.Name(name, ast.Load())
        sides = self._sides(loop.iter, each)
        if sides is None:
            self._bind_parts(target, Run(each, _each_kind(_kind(over))))
            return ast.Name(name, ast.Store()), self.node(over, loop.iter)
        parts, count = sides
        if len(parts) != len(target.elts):
            raise self.fail(target, f"{len(target.elts)} names for {len(parts)} values")
        for t, part in zip(target.elts, parts, strict=True):
            self._bind_parts(t, part)
        return ast.Name(name, ast.Store()), call("range", [count])

    def _sides(self, node: ast.AST, index: ast.expr) -> tuple[list[Run], ast.expr] | None:
        """What `zip` or `enumerate` of variables gives at an index, and how many there are."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
            return None
        function, values = self.visit(node.func), [self.visit(a) for a in node.args]
        lists = (
            values[:1] if isinstance(function, Known) and function.value is enumerate else values
        )
        simple = all(
            isinstance(v, Run) and isinstance(v.node, ast.Name | ast.Attribute) for v in lists
        )
        if not isinstance(function, Known) or function.value not in (zip, enumerate) or not simple:
            return None
        parts = [Run(ast.Subscript(v.node, index, ast.Load()), _each_kind(v.kind)) for v in lists]
        counts: list[ast.expr] = [call("len", [v.node]) for v in lists]
        count = counts[0] if len(counts) == 1 else call("min", counts)
        if function.value is enumerate:
            first = (
                index
                if len(values) == 1
                else ast.BinOp(index, ast.Add(), self.node(values[1], node))
            )
            parts.insert(0, Run(first, "int"))
        return (parts, count) if len(counts) < 3 else None

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
        if isinstance(over, Known) and isinstance(over.value, tuple | list | enum.EnumMeta):
            return [Known(v) for v in over.value]
        return None
