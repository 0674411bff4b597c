"""Compiling `jit.fork` and `jit.wait`: what PyTorch runs beside other code, and torchlike at once."""

from __future__ import annotations

import ast
from typing import Any

import torchlike
from torchlike.jit._parts_of_code import _kind, call
from torchlike.jit._scope import Run

__all__ = ["called", "waited"]


def called(compiler: Any, function: Any, node: ast.Call) -> Run | None:
    """A call of one of the functions, or None for another."""
    if function is torchlike.jit.fork:
        return _forked(compiler, node)
    if function is torchlike.jit.wait and len(node.args) == 1:
        return waited(compiler, compiler.visit(node.args[0]), node)
    return None


def _forked(compiler: Any, node: ast.Call) -> Run:
    """A call of `fork`: of a function, a module or a method."""
    if not node.args:
        raise compiler.fail(node, "Expected at least one argument to fork()")
    inner = ast.copy_location(ast.Call(node.args[0], node.args[1:], node.keywords), node)
    made = compiler.visit(inner)
    if not isinstance(made, Run) or not isinstance(made.node, ast.Call):
        raise compiler.fail(node, "fork() of what is no function or module")
    forked = call("fork", [made.node.func, *made.node.args], made.node.keywords)
    return Run(forked, f"Future[{made.kind or 'Tensor'}]")


def waited(compiler: Any, future: Any, node: ast.AST) -> Run:
    """The result of what was forked."""
    kind = _kind(future) or ""
    inner = kind.removeprefix("Future[")[:-1] if kind.startswith("Future[") else None
    return Run(call("torch.wait", [compiler.node(future, node)]), inner)
