"""Compiling statements that decide nothing: of contexts, `del`, `assert` and `raise`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchlike.autograd import profiler
from torchlike.jit._calls import Calls
from torchlike.jit._narrowing import narrowing
from torchlike.jit._parts_of_code import _kind, call
from torchlike.jit._scope import Known, Part, Run

if TYPE_CHECKING:
    from collections.abc import Callable


class PlainStatements(Calls):
    """Compiles these statements."""

    block: Callable[[list[ast.stmt]], list[ast.stmt]]
    _store: Callable[[ast.AST, Any], ast.expr]

    def _do_With(self, node: ast.With) -> list[ast.stmt]:
        items: list[ast.withitem] = []
        for item in node.items:
            entered = self._entered(item.context_expr)
            if entered is None:
                continue
            context, kind = entered
            name = item.optional_vars
            stored = None if name is None else self._store(name, kind)
            items.append(ast.withitem(context, stored))
        body: list[ast.stmt] = self.block(node.body)
        return [ast.With(items, body or [ast.Pass()])] if items else body

    def _entered(self, node: ast.expr) -> tuple[ast.expr, str | None] | None:
        """What `with` enters, and the type of what that gives; None for what only gives a block a name."""
        if isinstance(node, ast.Call):
            function = self.visit(node.func)
            if isinstance(function, Known) and function.value is profiler.record_function:
                return None
        value = self.visit(node)
        objects = self.program.objects_of(_kind(value)) if isinstance(value, Run) else None
        if objects is None or not all(hasattr(objects.kind, n) for n in ("__enter__", "__exit__")):
            raise self.fail(
                node,
                "With item expression must be an object with __enter__ and __exit__ of TorchScript",
            )
        return value.node, objects.compiled("__enter__", self, node)

    def _do_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.locals.pop(target.id, None)
            elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
                args = [self.run(target.value), self.run(target.slice)]
                out.append(ast.Expr(call("torch.Delete", args)))
            else:
                raise self.fail(node, "del of what is neither a name nor an item")
        return out

    def _do_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        test = self.visit(node.test)
        if isinstance(test, Known | Part) and (isinstance(test, Part) or test.value):
            return []
        message = None if node.msg is None else self.run(node.msg)
        if isinstance(test, Known):
            kind = ast.Constant("builtins.AssertionError")
            return [ast.Expr(call("ops.prim.RaiseException", [message or ast.Constant(""), kind]))]
        code = self.node(test, node.test)
        for said in narrowing(self, node.test):
            said.enter(self.locals, True)
        return [ast.Assert(code, message)]

    def _do_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        if node.exc is None:
            raise self.fail(node, "raise without an exception")
        made = node.exc
        kind = self.visit(made.func if isinstance(made, ast.Call) else made)
        if not (
            isinstance(kind, Known)
            and isinstance(kind.value, type)
            and issubclass(kind.value, BaseException)
        ):
            raise self.fail(node, "raise of something that is no exception")
        text: ast.expr = ast.Constant("")
        if isinstance(made, ast.Call) and made.args:
            text = self.run(made.args[0])
        found = kind.value
        return [
            ast.Expr(
                call(
                    "ops.prim.RaiseException",
                    [text, ast.Constant(f"{found.__module__}.{found.__qualname__}")],
                )
            )
        ]
