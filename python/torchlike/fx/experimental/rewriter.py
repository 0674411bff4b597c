"""Functions whose statements are rewritten before they are traced, where a trace would not see them."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
import types
from typing import TYPE_CHECKING, Any

from torchlike.fx._symbolic_trace import Tracer
from torchlike.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.fx.graph import Graph

__all__ = ["AST_Rewriter", "RewritingTracer"]


class AST_Rewriter(ast.NodeTransformer):
    """Makes calls that are traced of `assert` (`torch._assert`) and of assignments with a type (`annotate`)."""

    def rewrite(self, fn: types.FunctionType) -> types.FunctionType:
        """The rewritten function, which sees the same globals."""
        plain = inspect.unwrap(getattr(fn, "__func__", fn))
        tree = self.visit(ast.parse(textwrap.dedent(inspect.getsource(plain))))
        ast.fix_missing_locations(tree)
        space = dict(fn.__globals__)
        # closed-over names are looked up where the function is made anew
        space.update(inspect.getclosurevars(plain).nonlocals)
        known = set(space)
        exec(compile(tree, "", "exec", dont_inherit=True), space)
        made = {name for name in space if name not in known and name != "__builtins__"}
        made = made or {plain.__name__}
        if len(made) != 1:
            raise AssertionError(f"Expected 1 new key, got {len(made)}")
        new = space[made.pop()]
        outer = fn.__globals__ if new.__closure__ is None and not _free(plain) else space
        result = types.FunctionType(
            new.__code__, outer, new.__name__, new.__defaults__, new.__closure__
        )
        functools.update_wrapper(result, new)
        result.__kwdefaults__ = copy.copy(new.__kwdefaults__)
        return result

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """A call of `torch._assert`."""
        args = [node.test, node.msg or ast.Constant(value="")]
        call = ast.Call(func=_found("torchlike", "_assert"), args=args, keywords=[])
        return ast.copy_location(ast.Expr(value=call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """An assignment of what `annotate` gives."""
        if node.value is None:
            return node
        notes = _found("torchlike.fx.annotate", "annotate")
        call = ast.Call(func=notes, args=[node.value, node.annotation], keywords=[])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


def _found(module: str, name: str) -> ast.expr:
    """A function as an expression that needs no name of its surroundings."""
    return ast.parse(f"__import__({module!r}, fromlist=[{name!r}]).{name}", mode="eval").body


def _free(fn: Any) -> tuple[str, ...]:
    """The names that a function has from the functions around it."""
    names: tuple[str, ...] = fn.__code__.co_freevars
    return names


class RewritingTracer(Tracer):
    """Rewrites a function, or the `forward` of a module and of those below it that it traces into, and traces it."""

    def trace(
        self,
        root: Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """The graph of the rewritten function or module."""
        if isinstance(root, Module):
            return super().trace(self._rewritten("", root, {}), concrete_args)
        return super().trace(AST_Rewriter().rewrite(root), concrete_args)  # type: ignore[arg-type]

    def _rewritten(self, path: str, module: Module, done: dict[Module, Module]) -> Module:
        """A module with the values of another one, whose parts are rewritten too."""
        if module in done:
            return done[module]

        class RewrittenModule(Module):
            forward = AST_Rewriter().rewrite(module.forward)  # type: ignore[arg-type]

        done[module] = made = RewrittenModule()
        for name, value in module.__dict__.items():
            made.__dict__[name] = copy.copy(value)
        for name, child in module.named_children():
            below = f"{path}.{name}" if path else name
            if not self.is_leaf_module(child, below):
                setattr(made, name, self._rewritten(below, child, done))
        return made
