"""Hooks of modules on the way back: they stand where gradients enter and leave the module."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torchlike as torch
from torchlike._C import Tensor
from torchlike.autograd.function import Function


class BackwardHookFunction(Function):
    """Gives back its inputs; its node is where a module's gradients pass."""

    @staticmethod
    def forward(ctx: Any, *args: Tensor) -> Any:
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def _through(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, list[int]]:
    """The values with all tensors led through a node, the node, and which they are.

    No node if none wants a gradient.
    """
    at = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not (torch.is_grad_enabled() and any(values[i].requires_grad for i in at)):
        return values, None, at
    passed = BackwardHookFunction.apply(*(values[i] for i in at))
    nodes = [t.grad_fn for t in passed if t.grad_fn is not None]
    if not nodes:
        raise RuntimeError(
            "Error while setting backward hooks. Please open an issue with this code sample."
        )
    made = list(values)
    for i, t in zip(at, passed, strict=True):
        made[i] = t
    kind = type(values)
    return (tuple(made) if kind is tuple else kind(*made)), nodes[0], at


class BackwardHook:
    """The full hooks of one call of a module."""

    def __init__(self, module: Any, hooks: list[Any], before: list[Any]) -> None:
        self.module = module
        self.hooks = hooks
        self.before = before
        self.grad_outputs: Any = None
        self.inputs = -1
        self.outputs = -1
        self.input_at: list[int] | None = None
        self.output_at: list[int] = []

    def _spread(self, grads: tuple[Any, ...], at: list[int], count: int) -> tuple[Any, ...]:
        made: list[Any] = [None] * count
        for i, g in zip(at, grads, strict=False):
            made[i] = g
        return tuple(made)

    def _picked(self, grads: tuple[Any, ...], at: list[int], what: str, count: int) -> Any:
        if len(grads) != count:
            hook = "Backward hook" if what == "input" else "Backward pre hook"
            raise RuntimeError(
                f"{hook} returned an invalid number of grad_{what}, got {len(grads)}, but "
                f"expected {count}"
            )
        return tuple(grads[i] for i in at)

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Stands where gradients leave the module."""
        made, node, at = _through(args)
        self.inputs = len(args)
        if node is None:
            return args
        self.input_at = at

        def hook(grad_inputs: Any, _: Any) -> Any:
            if self.grad_outputs is None:
                # Another part of the graph came here before the module's outputs had gradients.
                return None
            shown = self._spread(grad_inputs, at, self.inputs)
            result = grad_inputs
            for user in self.hooks:
                out = user(self.module, shown, self.grad_outputs)
                if out is None:
                    continue
                out = out if isinstance(out, tuple) else (out,)
                result = self._picked(out, at, "input", self.inputs)
                shown = out
            self.grad_outputs = None
            return result

        node.register_hook(hook)
        return made

    def leave(self, result: Any) -> Any:
        """Stands where gradients enter the module."""
        if not isinstance(result, Tensor | tuple):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                f"but received {type(result)}",
                stacklevel=4,
            )
        several = isinstance(result, tuple)
        values = result if several else (result,)
        made, node, at = _through(values)
        self.outputs = len(values)
        if node is None:
            return result
        self.output_at = at
        node.register_prehook(self._arrived)
        return made if several else made[0]

    def _arrived(self, grads: tuple[Any, ...]) -> Any:
        self.grad_outputs = self._spread(grads, self.output_at, self.outputs)
        changed = False
        for user in self.before:
            out = user(self.module, self.grad_outputs)
            if out is None:
                continue
            changed = True
            self.grad_outputs = out if isinstance(out, tuple) else (out,)
        local = (
            self._picked(self.grad_outputs, self.output_at, "output", self.outputs)
            if changed
            else None
        )
        if self.input_at is None:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                "inputs require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                "#torch.nn.Module.register_full_backward_hook for more details.",
                stacklevel=5,
            )
            nothing = self._spread((), [], self.inputs)
            for user in self.hooks:
                out = user(self.module, nothing, self.grad_outputs)
                if out is not None and not (isinstance(out, tuple) and all(g is None for g in out)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None "
                        "or None for all gradients."
                    )
            self.grad_outputs = None
        return local


def watch_last_node(module: Any, hooks: list[Any], args: Any, result: Any) -> None:
    """The older hooks: on the node of the result, whatever its inputs are."""
    found = result
    while not isinstance(found, Tensor):
        found = (
            next((v for v in found.values() if isinstance(v, Tensor)), None)
            if isinstance(found, dict)
            else found[0]
        )
    node = found.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(functools.wraps(hook)(functools.partial(hook, module)))
    missed = _missed(node, args, result)
    if missed:
        warnings.warn(missed, FutureWarning, stacklevel=5)


_DEPRECATED = "is deprecated and will be removed in future versions. This hook will be missing"
_INSTEAD = "Please use register_full_backward_hook to get the documented behavior."


def _missed(node: Any, args: Any, result: Any) -> str | None:
    """What the older hooks on a node do not see of a module's gradients, if there is anything."""
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, Tensor) for r in results):
        return (
            "Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors "
            f"{_DEPRECATED} some of the grad_output. {_INSTEAD}"
        )
    if not all(isinstance(a, Tensor) for a in args):
        return (
            "Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple "
            f"of Tensors {_DEPRECATED} some of the grad_input. {_INSTEAD}"
        )
    ends = {r.grad_fn for r in results if r.grad_fn is not None}
    if len(ends) > 1:
        return (
            "Using a non-full backward hook when outputs are generated by different autograd Nodes "
            f"{_DEPRECATED} some grad_output. {_INSTEAD}"
        )
    if node not in ends:
        return (
            "Using a non-full backward hook when outputs are nested in python data structure "
            f"{_DEPRECATED} some grad_output."
        )
    if {a.grad_fn for a in args if a.grad_fn is not None} != {n[0] for n in node.next_functions}:
        return (
            "Using a non-full backward hook when the forward contains multiple autograd Nodes "
            f"{_DEPRECATED} some grad_input. {_INSTEAD}"
        )
    return None
