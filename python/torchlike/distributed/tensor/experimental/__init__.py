"""What may change: functions of pieces as functions of tensors on a mesh."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _absent
from torchlike.distributed.tensor import _dispatch, _rules
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._spec import Spec
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["implicit_replication", "local_map", "register_sharding"]


@contextmanager
def implicit_replication() -> Iterator[None]:
    """In this context plain tensors among the arguments of calls on a mesh count as replicated ones."""
    before, _dispatch.replicating[0] = _dispatch.replicating[0], True
    try:
        yield
    finally:
        _dispatch.replicating[0] = before


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Any:
    """A function of pieces as one of tensors on a mesh: its arguments are taken apart, and its results lie as
    `out_placements` say. With `in_placements` arguments have to lie so, or are brought there if
    `redistribute_inputs`."""
    options = (out_placements, in_placements, in_grad_placements, device_mesh, redistribute_inputs)
    if func is None:
        return lambda f: partial(_mapped, f, options)
    return partial(_mapped, func, options)


def _mapped(func: Callable[..., Any], options: Any, *args: Any, **kwargs: Any) -> Any:
    out_placements, in_placements, in_grad_placements, mesh, moves = options
    flat, shape = pytree.tree_flatten(args)
    if in_placements is not None and len(in_placements) != len(flat):
        raise AssertionError(
            f"in_placements length {len(in_placements)} does not match the number of input args {len(flat)}!"
        )
    local = []
    for i, arg in enumerate(flat):
        if not isinstance(arg, DTensor):
            local.append(arg)
            continue
        mesh = mesh or arg.device_mesh
        if in_placements is not None:
            arg = _placed(arg, in_placements[i], moves)
        grads = in_grad_placements[i] if in_grad_placements is not None else None
        local.append(arg.to_local(grad_placements=grads))
    made = func(*pytree.tree_unflatten(local, shape), **kwargs)
    if not any(isinstance(a, DTensor) for a in flat):
        return made
    results, out = pytree.tree_flatten(made)
    wanted = out_placements if isinstance(out_placements, tuple) else (out_placements,)
    if len(results) != len(wanted):
        raise AssertionError(
            "local_map requires one PlacementType be provided for each output value, received "
            f"{len(wanted)} out_placements but {len(results)} is expected!"
        )
    given = [
        DTensor.from_local(r, mesh, p, run_check=False) if isinstance(r, torch.Tensor) else r
        for r, p in zip(results, wanted, strict=True)
    ]
    return pytree.tree_unflatten(given, out)


def _placed(t: DTensor, placements: Any, moves: bool) -> DTensor:
    if placements is None:
        raise AssertionError(f"DTensor input {t} expects placements but received {placements}!")
    if t.placements == tuple(placements):
        return t
    if not moves:
        raise ValueError(
            f"arg {t} in local_map has a mismatched placements: arg placements is {t.placements} but the input "
            f"placements is {placements}! If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
        )
    return t.redistribute(placements=placements)


def register_sharding(op: Any) -> Callable[[Any], Any]:
    """Gives an operator, or several, a sharding rule: the decorated function takes what the operator takes, with
    specs in
    place of tensors, and gives pairs of placements, of results and of arguments (None for what is no tensor), for one
    dimension of a mesh."""

    def note(f: Callable[..., Any]) -> Callable[..., Any]:
        def rows(call: _rules.Call) -> _rules.Rows:
            flat = [*call.args, *call.kwargs.values()]
            found = []
            for results, inputs in f(*call.args, **call.kwargs):
                given = list(inputs)
                if len(given) != len(call.specs):
                    given = [p for p, a in zip(given, flat, strict=False) if isinstance(a, Spec)]
                found.append([*results, *given])
            return _rules.Rows(found)

        for overload in op if isinstance(op, list) else [op]:
            space = "" if overload.namespace == "aten" else f"{overload.namespace}::"
            _rules.replaced(space + overload._opname, overload._overloadname, rows)
        _dispatch.clear()
        return f

    return note


globals().update(_absent.names(__name__, "no ring attention is planned yet", "context_parallel"))
