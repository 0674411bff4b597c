"""Statements as closures: what each gives says how it ends."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _library_contexts as library_contexts
from torchlike.jit import _values
from torchlike.jit._closures import Expressions
from torchlike.jit._errors import Raised, note
from torchlike.jit._operations import _BINARY, _INPLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Statement = Callable[[list[Any]], Any]

BREAK, CONTINUE = object(), object()


class Returned:
    """A value on its way out of a function."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Compiler(Expressions):
    """Makes closures of one function's body."""

    def block(self, nodes: Sequence[ast.stmt]) -> Statement:
        """A closure for statements; what it gives says how they end."""
        found = [(self.statement(n), n.lineno) for n in nodes]
        made = [s for s, _ in found if s is not None]
        if len(made) == 1:
            return made[0]
        lines = [line for s, line in found if s is not None]

        def run(env: list[Any]) -> Any:
            try:
                for statement in made:
                    end = statement(env)
                    if end is not None:
                        return end
            except Exception as e:
                note(e, lines[made.index(statement)])
                raise
            return None

        return run

    def statement(self, node: ast.stmt) -> Statement | None:
        """A closure for one; None for those that do nothing."""
        method = getattr(self, "_do_" + type(node).__name__, None)
        if method is None:
            raise self.fail(node, f"{type(node).__name__} in a function")
        made: Statement | None = method(node)
        return made

    def _do_Pass(self, node: ast.Pass) -> None:
        return None

    def _do_Break(self, node: ast.Break) -> Statement:
        return lambda env: BREAK

    def _do_Continue(self, node: ast.Continue) -> Statement:
        return lambda env: CONTINUE

    def _do_Return(self, node: ast.Return) -> Statement:
        if node.value is None:
            return lambda env: Returned(None)
        value = self.expression(node.value)
        return lambda env: Returned(value(env))

    def _do_Expr(self, node: ast.Expr) -> Statement:
        value = self.expression(node.value)

        def run(env: list[Any]) -> None:
            value(env)

        return run

    def _do_Assign(self, node: ast.Assign) -> Statement:
        value = self.expression(node.value)
        stores = [self.target(t) for t in node.targets]

        def run(env: list[Any]) -> None:
            made = value(env)
            for store in stores:
                store(env, made)

        return run

    def _do_AnnAssign(self, node: ast.AnnAssign) -> Statement | None:
        if node.value is None:
            return None
        value = self._typed(node.annotation, self.expression(node.value))
        store = self.target(node.target)
        return lambda env: store(env, value(env))

    def _do_AugAssign(self, node: ast.AugAssign) -> Statement:
        read = self.expression(node.target)
        value, f, store = (
            self.expression(node.value),
            _BINARY[type(node.op)],
            self.target(node.target),
        )
        inplace = _INPLACE.get(type(node.op))

        def run(env: list[Any]) -> None:
            old, new = read(env), value(env)
            if inplace is not None and isinstance(old, torchlike.Tensor | list):
                store(env, inplace(old, new))
            else:
                store(env, f(old, new))

        return run

    def _do_If(self, node: ast.If) -> Statement:
        test, yes, no = self.expression(node.test), self.block(node.body), self.block(node.orelse)
        return lambda env: yes(env) if test(env) else no(env)

    def _do_While(self, node: ast.While) -> Statement:
        test, body = self.expression(node.test), self.block(node.body)

        def run(env: list[Any]) -> Any:
            while test(env):
                end = body(env)
                if end is None or end is CONTINUE:
                    continue
                return None if end is BREAK else end
            return None

        return run

    def _do_For(self, node: ast.For) -> Statement:
        over, store, body = (
            self.expression(node.iter),
            self.target(node.target),
            self.block(node.body),
        )

        def run(env: list[Any]) -> Any:
            for item in over(env):
                store(env, item)
                end = body(env)
                if end is None or end is CONTINUE:
                    continue
                return None if end is BREAK else end
            return None

        return run

    def _do_With(self, node: ast.With) -> Statement:
        """A block between `__enter__` and `__exit__` of objects of code."""
        if len(node.items) > 1:
            inner = ast.copy_location(ast.With(node.items[1:], node.body), node)
            return self._do_With(ast.copy_location(ast.With(node.items[:1], [inner]), node))
        item, method = node.items[0], self.unit.method
        of = self.expression(item.context_expr)
        store = self.target(item.optional_vars) if item.optional_vars else None
        body = self.block(node.body)

        def run(env: list[Any]) -> Any:
            context = of(env)
            entered = method(context, "__enter__")()
            if store is not None:
                store(env, entered)
            try:
                with library_contexts.entered(context):
                    return body(env)
            finally:
                method(context, "__exit__")(None, None, None)

        return run

    def _do_FunctionDef(self, node: ast.FunctionDef) -> Statement:
        """A function in a function, which code has for what it forks: it sees the variables around it."""
        if node.args.args or node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
            raise self.fail(node, "a function in a function with arguments")
        store, body = self.target(ast.Name(node.name, ast.Store())), self.block(node.body)
        unit, name = self.unit, f"{self.name}.{node.name}"

        def forked(env: list[Any]) -> Any:
            unit.deeper(name)
            try:
                end = body(list(env))
            finally:
                unit.depth -= 1
            return end.value if isinstance(end, Returned) else None

        return lambda env: store(env, functools.partial(forked, env))

    def _do_Assert(self, node: ast.Assert) -> Statement:
        test = self.expression(node.test)
        text = self.expression(node.msg) if node.msg else lambda env: ""

        def run(env: list[Any]) -> None:
            if not test(env):
                raise Raised("", f"AssertionError: {text(env)}")

        return run

    def _do_Raise(self, node: ast.Raise) -> Statement:
        call = node.exc
        name, args = "Exception", []
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            name, args = call.func.id, self.expressions(call.args)
        elif isinstance(call, ast.Name):
            name = call.id

        def run(env: list[Any]) -> None:
            _values.raise_exception(", ".join(str(a(env)) for a in args), name)

        return run
