"""Gradients of operators of Python: their formulas, as nodes of the graph."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import binding, modes
from torchlike.autograd import no_grad
from torchlike.utils._pytree import tree_flatten, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._ops import OpOverload


class Formula:
    """What the user registered, and the function that is made of it."""

    def __init__(self, backward: Any, setup_context: Any) -> None:
        self.backward = backward
        self.setup_context = setup_context


_below = threading.local()


class BelowAutograd:
    """Inside, nothing is recorded, and operators run below the kernels that the user gave for autograd."""

    def __enter__(self) -> None:
        self._no_grad = no_grad()
        self._no_grad.__enter__()
        _below.depth = getattr(_below, "depth", 0) + 1

    def __exit__(self, *error: Any) -> None:
        _below.depth -= 1
        self._no_grad.__exit__(*error)


def own(overload: OpOverload, device: str) -> Callable[..., Any] | None:
    """The function that the user gave for autograd, if a call is to run it: it records by itself."""
    kernels = overload.kernels
    found = kernels.get(f"Autograd{device}") or kernels.get("Autograd")
    if found is None or isinstance(found, Formula):
        return None
    above = getattr(_below, "depth", 0) == 0 and not _C.is_inference_mode_enabled()
    return found if above else None


def wanted(overload: OpOverload, values: Any) -> bool:
    """Whether a call is a node of its own."""
    formula = isinstance(overload.kernels.get("Autograd"), Formula)
    if overload.definition is None and not formula:
        return False
    if overload._schema.is_mutable or not _C.is_grad_enabled():
        return False
    return any(t.requires_grad for t in modes.tensors(values))


def run(
    overload: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any],
) -> Any:
    """The result of ``call(*args, **kwargs)``, whose gradient the formula says."""
    leaves, spec = tree_flatten((args, kwargs))
    specs: list[Any] = []

    def compute(*flat: Any) -> tuple[Any, Any]:
        given, named = tree_unflatten(flat, spec)
        result = call(*given, **named)
        specs.append(tree_flatten(result)[1])
        return result, specs[0]

    made = _function(overload).apply((compute, spec), *leaves)
    return tree_unflatten(made if isinstance(made, tuple) else (made,), specs[0])


def _function(overload: OpOverload) -> Any:
    found = overload.__dict__.get("_function")
    if found is None:
        found = overload.__dict__["_function"] = _made(overload)
    return found


def _made(overload: OpOverload) -> Any:
    """The function of an operator; its formula is looked up when it is needed."""
    from torchlike.autograd.function import Function

    def formula() -> Formula | None:
        found = overload.kernels.get("Autograd")
        return found if isinstance(found, Formula) else None

    def forward(ctx: Any, how: Any, *flat: Any) -> Any:
        compute, spec = how
        result, ctx._results = compute(*flat)
        ctx._spec = spec
        shown = tuple(tree_flatten(result)[0])
        shown = shown[0] if len(shown) == 1 else shown
        registered = formula()
        if registered is None or registered.setup_context is None:
            return shown
        values = binding.bind(overload._schema, *tree_unflatten(flat, spec))
        named = [a.name for a in overload._schema.arguments if a.kwarg_only]
        kwargs = {"keyword_only_inputs": {n: values.pop(n) for n in named}} if named else {}
        registered.setup_context(ctx=ctx, inputs=tuple(values.values()), output=result, **kwargs)
        return shown

    def backward(ctx: Any, *grads: Any) -> Any:
        registered = formula()
        if registered is None or registered.backward is None:
            raise RuntimeError(
                f"Trying to backward through {overload} but no autograd formula was registered. "
                "Please use register_autograd to add one."
            )
        flat_needs = ctx.needs_input_grad
        needs = ctx.needs_input_grad = tree_unflatten(flat_needs[1:], ctx._spec)[0]
        of_results = tree_unflatten(grads, ctx._results)
        try:
            made = registered.backward(
                ctx, *(of_results if isinstance(of_results, tuple) else (of_results,))
            )
        finally:
            ctx.needs_input_grad = flat_needs
        made = made if isinstance(made, tuple) else (made,)
        found: list[Any] = []
        for g, need in itertools.zip_longest(made, needs[: len(made)]):
            # No gradient of a list is none of what is in it.
            missing = g is None and isinstance(need, list | tuple)
            found += [None] * len(tree_flatten(need)[0]) if missing else tree_flatten(g)[0]
        named = len(flat_needs) - 1 - len(found)
        return (None, *found, *((None,) * max(named, 0)))

    name = "GeneratedBackwardFor_" + str(overload).replace(".", "_")
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    maker: Any = type(Function)
    return maker(name, (Function,), body)
