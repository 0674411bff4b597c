"""Compiling gradients: `torch.autograd.grad` and `backward`."""

from __future__ import annotations

import ast
from typing import Any

from torchlike import autograd
from torchlike.jit._parts_of_code import call
from torchlike.jit._scope import Of, Run

__all__ = ["called", "of_tensor"]


# The arguments that code may name, in order: those of PyTorch's schemas, which lack some.
_GRAD = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "allow_unused")
_BACKWARD = ("tensors", "grad_tensors", "retain_graph", "create_graph")
_OF_TENSOR = ("gradient", "retain_graph", "create_graph")


def called(compiler: Any, function: Any, node: ast.Call) -> Run | None:
    """A call of one of the functions, or None for another."""
    if function is autograd.grad:
        args = _placed(compiler, "torch.autograd.grad", _GRAD, node)
        return Run(call("torch.autograd.grad", args), "List[Optional[Tensor]]")
    if function is autograd.backward:
        args = _placed(compiler, "torch.autograd.backward", _BACKWARD, node)
        return Run(call("torch.autograd.backward", args), "NoneType")
    return None


def of_tensor(compiler: Any, of: Of, node: ast.Call) -> Run:
    """A call of `Tensor.backward`."""
    args = _placed(compiler, "backward", _OF_TENSOR, node)
    return Run(call("torch.autograd.backward", [of.node, *args]), "NoneType")


def _placed(compiler: Any, name: str, names: tuple[str, ...], node: ast.Call) -> list[ast.expr]:
    """The arguments by position, with the values of those before the last that nobody gave."""
    args, keywords = compiler.spelled(node)
    if len(args) > len(names):
        raise compiler.fail(node, f"{name}() takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args, strict=False))
    for k in keywords:
        if k.arg not in names or k.arg in given:
            raise compiler.fail(node, f"{name}() has no argument '{k.arg}' left")
        given[k.arg] = k.value
    for needed in ("outputs", "inputs", "tensors"):
        if needed in names and needed not in given:
            raise compiler.fail(node, f"{name}() is missing value for argument '{needed}'")
    last = max((names.index(n) for n in given), default=-1)
    wanted = names[: last + 1]
    return [given.get(n, ast.Constant(False if n == "create_graph" else None)) for n in wanted]
