"""Values that calls of classes and functions of the library and of Python make in code."""

from __future__ import annotations

import ast
from typing import Any

import torchlike
from torchlike.jit._parts_of_code import _kind, call
from torchlike.jit._scope import Known, Run

__all__ = ["called", "legacy_tensor", "part_of_brackets"]


def called(compiler: Any, function: Any, node: ast.Call) -> Run | None:
    """A call of `hash`, or of what says that a value is not None; nothing for another function."""
    if len(node.args) != 1 or function not in (hash, torchlike.jit._unwrap_optional):
        return None
    value = compiler.visit(node.args[0])
    args, kind = [compiler.node(value, node)], _kind(value) or ""
    if function is hash:
        return Run(call("torch.hash", args), "int")
    there = kind[9:-1] if kind.startswith("Optional[") else kind
    return Run(call("torch._unwrap_optional", args), there or None)


def part_of_brackets(compiler: Any, node: ast.Call) -> Run:
    """A call of `slice`, which code has in brackets alone."""
    given = compiler.arguments(node)
    nothing = Known(None)
    parts = [nothing, *given, nothing] if len(given) == 1 else [*given, nothing][:3]
    nodes = [
        None if isinstance(p, Known) and p.value is None else compiler.node(p, node) for p in parts
    ]
    return Run(ast.Slice(*nodes), "slice")


def legacy_tensor(compiler: Any, kind: Any, node: ast.Call) -> Run:
    """A tensor by a class of its type: of a list, or of sizes and without values."""
    values = compiler.arguments(node)
    lists = len(values) == 1 and _kind(values[0]) != "int"
    sizes = [compiler.node(v, node) for v in values] or [ast.Constant(0)]
    shown = sizes[0] if lists else ast.List(sizes, ast.Load())
    how = [ast.keyword("dtype", compiler.constant(kind.dtype, node))]
    return Run(call("torch.tensor" if lists else "torch.empty", [shown], how), "Tensor")
