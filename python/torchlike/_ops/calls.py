"""Calls of overloads: of our own operators by the public functions, of custom ones by what was registered."""

from __future__ import annotations

from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, _lazy
from torchlike._ops import binding, modes
from torchlike._ops.by_hand import WORDS
from torchlike._ops.by_hand import function as by_hand
from torchlike._ops.schema import closing, split

if TYPE_CHECKING:
    from torchlike._ops import OpOverload, custom
else:
    custom = _lazy.module("torchlike._ops.custom")

# the bit of a row's forms that says that it takes `out`
_OUT = 8


def run(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call, as PyTorch's dispatcher gives it: tuples and lists without names."""
    if overload.namespace != "aten":
        return _run_custom(overload, args, kwargs)
    values = binding.bind(overload._schema, args, kwargs)
    seen = not overload.implicit or torch.is_inference_mode_enabled()
    if seen and modes.stack() and _keeps_a_copy(overload, values):
        # What is saved of the operand before it is written is a call of its own, which modes see too.
        with modes.asked(overload):
            return _public(overload, values)
    watched = seen and modes.wanted(values.values())
    if watched and modes.recorded(values.values()):
        with modes.asked(overload):
            return _unwatched(overload, values)
    if watched:
        answer = modes.ask(overload, *binding.spelled(overload._schema, values))
        binding.check_results(overload._schema, answer)
        return answer
    return _unwatched(overload, values)


def taken_apart(overload: OpOverload, values: dict[str, Any]) -> Any:
    """The result of a call that is made of others, which modes see in its place; NotImplemented for other calls."""
    if not overload.implicit:
        return NotImplemented
    with modes.asked(overload), modes.opened(overload):
        return _unwatched(overload, values)


def _unwatched(overload: OpOverload, values: dict[str, Any]) -> Any:
    """The result of a call that nobody answers before it is made."""
    function = by_hand(overload._opname)
    if function is None:
        result = _public(overload, values)
    else:
        outs = [a.name for a in overload._schema.arguments if a.kwarg_only and a.alias_info]
        result = function(**{n: v for n, v in values.items() if n not in outs})
        if outs:
            return _written([values[n] for n in outs], result)
    returns = overload._schema.returns
    if len(returns) > 1 and isinstance(result, tuple | list):
        return tuple(result)
    if len(returns) == 1 and returns[0].is_list and isinstance(result, tuple):
        return list(result)
    return result


def _written(outs: list[Any], result: Any) -> Any:
    """The tensors that a call was to write, with its results."""
    results = result if isinstance(result, tuple | list) else (result,)
    for out, made in zip(outs, results, strict=True):
        torch.alias_copy(made, out=out)
    return outs[0] if len(outs) == 1 else tuple(outs)


def _run_custom(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call of an operator of Python."""
    if not kwargs:
        kernel = custom.kernel_for(overload, args)
        if kernel is not None:
            result = kernel(*args)
            binding.check_results(overload._schema, result)
            return result
    result = custom.run(overload, binding.bind(overload._schema, args, kwargs))
    custom.note(overload, args, kwargs)
    return result


@cache
def _kernels() -> frozenset[str]:
    return frozenset(name for name, kind in _C._op_kinds() if kind == "kernel")


def _keeps_a_copy(overload: OpOverload, values: dict[str, Any]) -> bool:
    """Whether a call writes over what it saves for the gradient."""
    name = overload._opname
    if not name.endswith("_") or name[:-1] not in _kernels() or not torch.is_grad_enabled():
        return False
    given = modes.tensors(values.values())
    return any(t.requires_grad for t in given) and not _C._dispatch_handlers(given)


def _function(name: str) -> Any:
    for prefix in ("linalg", "fft", "special"):
        if name.startswith(prefix + "_"):
            found = getattr(getattr(torch, prefix), name[len(prefix) + 1 :], None)
            if found is not None:
                return found
    for space in (torch, torch.nn.functional):
        found = space.__dict__.get(name)
        if found is not None:
            return found
    return None


@cache
def _row(name: str) -> Any:
    """A row of the table that has no public name."""
    rows = {row for row, *_ in _C._op_table()}
    found = next((row for row in (name, f"_grad.{name}") if row in rows), None)
    if found is None:
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        return _C._call_row(found, False, args, kwargs)

    return call


@cache
def _writes_if_asked(name: str) -> bool:
    """True for functions whose argument `inplace` has them write over the input."""
    schemas = {row: schema for row, schema, *_ in _C._op_table()}
    return "bool inplace" in schemas.get(f"nn.functional.{name}", "")


@cache
def _needed_with_out() -> dict[str, float]:
    """By name of an operator, how few arguments a row needs that can be told where its result goes."""
    needed: dict[str, float] = {}
    for row, schema, forms, _ in _C._op_table():
        name = row.partition("#")[0].removeprefix("nn.functional.").replace(".", "_")
        least = sum("=" not in p and p != "*" for p in split(schema[1 : closing(schema, 0)]))
        needed[name] = min(needed.get(name, inf), least if forms & _OUT else inf)
    return needed


def _takes_out(name: str, given: int) -> bool:
    """True for a call with so many arguments that can be told where its result goes."""
    return given >= _needed_with_out().get(name, 0)


def _public(overload: OpOverload, values: dict[str, Any]) -> Any:
    """A call of the function or method that users call."""
    name = overload._opname
    arguments = overload._schema.arguments
    outs = [values[a.name] for a in arguments if a.kwarg_only and a.alias_info is not None]
    inputs = {a.name: values[a.name] for a in arguments if not (a.kwarg_only and a.alias_info)}
    args, kwargs = binding.spelled(_without_outs(overload), inputs)
    if len(args) == len(inputs) and list(inputs)[-1:] == ["alpha"]:
        # users say it by its name
        args, kwargs["alpha"] = args[:-1], args[-1]
    method = getattr(torch.Tensor, name, None)
    method = method if callable(method) else None
    usable = method is not None and not outs and args and isinstance(args[0], torch.Tensor)
    function: Any = method if usable else _function(name) or method or _row(name)
    if function is None and name.endswith("_") and _writes_if_asked(name[:-1]):
        function, kwargs["inplace"] = _function(name[:-1]), True
    if function is None:
        raise NotImplementedError(f"torchlike has no kernel for {overload.name()}")
    if "reduction" in inputs:
        reduction = inputs["reduction"]
        if function is torch.nn.functional.__dict__.get(name):
            args, kwargs = (inputs.pop("self"),), {**inputs, "reduction": WORDS[reduction]}
        elif len(args) <= list(inputs).index("reduction"):
            # Functions of Python reduce nothing where it is left out.
            kwargs["reduction"] = reduction
    if outs and not _takes_out(name, len(args) + len(kwargs)):
        return _written(outs, function(*args, **kwargs))
    if outs:
        kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    return function(*args, **kwargs)


@cache
def _without_outs(overload: OpOverload) -> Any:
    from torchlike._ops.schema import FunctionSchema

    s = overload._schema
    inputs = [a for a in s.arguments if not (a.kwarg_only and a.alias_info)]
    return FunctionSchema(s.name, s.overload_name, inputs, s.returns, s.text)
