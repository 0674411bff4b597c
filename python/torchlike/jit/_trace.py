"""`jit.trace`: a run is watched, and what was called becomes straight code. Sizes that were asked for stay sizes."""

from __future__ import annotations

import ast
import inspect
import warnings
from typing import Any

import torchlike
from torchlike.jit import _state, _types
from torchlike.jit._classes import qualified
from torchlike.jit._function import Function
from torchlike.jit._module import RecursiveScriptModule, ScriptFunction, TopLevelTracedModule
from torchlike.jit._program import ModuleBuilder, Program
from torchlike.jit._scope import scripted_methods
from torchlike.jit._watch import TracerWarning, Watch
from torchlike.nn import Module

Tensor = torchlike.Tensor


class TracingCheckError(RuntimeError):
    """A trace does not compute what the function does."""


def _watched(
    program: Program, function: Any, names: list[str], inputs: tuple[Any, ...], module: Any
) -> tuple[list[ast.arg], list[ast.stmt], Any]:
    """The arguments and the body of a run of a function."""
    watch = Watch(program)
    arguments = []
    for name, value in zip(names, inputs, strict=True):
        watch.names(value, ast.Name(name, ast.Load()))
        kind = ast.parse(_types.of_value(value, lambda k: None), mode="eval").body
        arguments.append(ast.arg(name, kind))
    for path, value in (
        (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        )
        if module
        else ()
    ):
        watch.name(value, _place(path))
    for path, inner in module.named_modules() if module else ():
        if path and scripted_methods(inner):
            watch.places[id(inner)] = _place(path)
    with watch, _state.watched(watch):
        out = function(*inputs)
    if not _has_any(out):
        raise RuntimeError(
            "jit.trace: the function gave no tensor; only tensors, and tuples, lists and dictionaries of "
            "them, can be traced"
        )
    watch.body.append(ast.Return(watch.code(out)))
    return arguments, watch.body, out


def _has_any(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_any(v) for v in value.values())
    return isinstance(value, Tensor) or (
        isinstance(value, tuple | list) and any(_has_any(v) for v in value)
    )


def _place(path: str) -> ast.expr:
    """The code for a parameter or buffer by its path."""
    from torchlike.jit._parts_of_code import _member

    node: ast.expr = ast.Name("self", ast.Load())
    for part in path.split("."):
        node = _member(node, part)
    return node


def _names(function: Any, inputs: tuple[Any, ...], skip: int) -> list[str]:
    try:
        found = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):
        found = []
    plain = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (
        plain[: len(inputs)]
        if len(plain) >= len(inputs)
        else [f"argument_{i + 1}" for i in range(len(inputs))]
    )


def _function_def(
    name: str, arguments: list[ast.arg], body: list[ast.stmt], of_module: bool
) -> ast.FunctionDef:
    whole = [ast.arg("self"), *arguments] if of_module else arguments
    made = ast.FunctionDef(name, ast.arguments([], whole, None, [], [], None, []), body, [], None)
    return ast.fix_missing_locations(made)


def trace_module(
    mod: Any, inputs: dict[str, Any], check_trace: bool = True, **how: Any
) -> RecursiveScriptModule:
    """A module whose methods are traces of a module's methods; `inputs` gives example inputs by method."""
    from torchlike.jit._script import _made

    program = Program()
    root = program.builders[id(mod)] = ModuleBuilder(program, mod)
    for method, given in inputs.items():
        example = _tuple(given)
        function = mod.__call__ if method == "forward" else getattr(mod, method)
        names = _names(getattr(type(mod), method), example, 1)
        arguments, body, _ = _watched(program, function, names, example, mod)
        root.methods[method] = _function_def(method, arguments, body, True)
        root.kinds[method] = None
    for inner in mod.modules():
        program.builder(inner, None, ast.Pass())
    made = _made(program, mod, {})
    made.__class__ = TopLevelTracedModule
    if check_trace:
        for method, given in inputs.items():
            function = mod if method == "forward" else getattr(mod, method)
            _compare(
                function, made if method == "forward" else getattr(made, method), _tuple(given)
            )
    return made


def _tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _compare(function: Any, traced: Any, inputs: tuple[Any, ...], rtol: float = 1e-5) -> None:
    """Warns if a trace gives something else than its function."""
    from torchlike.utils import _pytree as pytree

    with torchlike.no_grad(), torchlike.random.fork_rng(devices=[]):
        state = torchlike.get_rng_state()
        wanted = pytree.tree_leaves(function(*inputs))
        torchlike.set_rng_state(state)
        found = pytree.tree_leaves(traced(*inputs))
    for a, b in zip(wanted, found, strict=True):
        if (
            isinstance(a, Tensor)
            and not a.is_meta
            and not torchlike.allclose(a, b, rtol=rtol, atol=1e-5, equal_nan=True)
        ):
            warnings.warn(
                "Output of the traced function does not match the function's: the function is not "
                "deterministic, or has state",
                TracerWarning,
                stacklevel=3,
            )
            return


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Runs a function or module once and keeps what was called as TorchScript: straight code without branches.

    `example_inputs` is a tensor or a tuple of inputs. Sizes that the function asks for stay sizes of the run, so a
    trace works at
    another batch size; values that it asks for are kept as they were, with a `TracerWarning`.
    """
    if example_kwarg_inputs is not None:
        names = [
            p
            for p in inspect.signature(
                func.forward if isinstance(func, Module) else func
            ).parameters
            if p in example_kwarg_inputs
        ]
        example_inputs = tuple(example_kwarg_inputs[n] for n in names)
    inputs = _tuple(example_inputs)
    if isinstance(func, RecursiveScriptModule | ScriptFunction):
        return func
    if isinstance(func, Module):
        return trace_module(func, {"forward": inputs}, check_trace)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module):
        return trace_module(owner, {func.__name__: inputs}, check_trace)
    program = Program()
    names = _names(func, inputs, 0)
    arguments, body, _ = _watched(program, func, names, inputs, None)
    name = program.fresh(qualified(func) if hasattr(func, "__qualname__") else "__torch__.traced")
    prefix, _, last = name.rpartition(".")
    last = last if last.isidentifier() and last != "_" else "traced"
    program.unit.define(prefix, ast.unparse(_function_def(last, arguments, body, False)) + "\n")
    found = program.unit.find(f"{prefix}.{last}")
    assert isinstance(found, Function)
    made = ScriptFunction(found, func)
    if check_trace:
        _compare(func, made, inputs, check_tolerance)
    return made
