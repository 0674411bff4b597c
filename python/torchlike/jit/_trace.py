"""`jit.trace`: a run is watched, and what was called becomes straight code. Sizes that were asked for stay sizes."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from torchlike.jit import _state, _types
from torchlike.jit import _trace_checks as _checks
from torchlike.jit._classes import qualified
from torchlike.jit._function import Function
from torchlike.jit._functions import is_operator
from torchlike.jit._module import (
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
)
from torchlike.jit._program import ModuleBuilder, Program
from torchlike.jit._scope import scripted_methods
from torchlike.jit._trace_checks import TracingCheckError as TracingCheckError
from torchlike.jit._trace_checks import apply, check_result, kinds_of_inputs
from torchlike.jit._watch import TracerWarning as TracerWarning
from torchlike.jit._watch import Watch
from torchlike.nn import Module


def _watched(
    program: Program, function: Any, method: Any, inputs: Any, module: Any, strict: bool
) -> tuple[list[ast.arg], list[ast.stmt]]:
    """The arguments and the body of a run of a function."""
    watch = Watch(program)
    by_name = isinstance(inputs, dict)
    names = list(inputs) if by_name else _names(method, inputs, int(module is not None))
    values = tuple(inputs.values()) if by_name else inputs
    kinds = kinds_of_inputs(values)
    arguments = [ast.arg(n, _types.node_of(k)) for n, k in zip(names, kinds, strict=True)]
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
    given = [watch.taken(v, ast.Name(n, ast.Load())) for n, v in zip(names, values, strict=True)]
    with watch, _state.watched(watch):
        out = apply(function, dict(zip(names, given, strict=True)) if by_name else given)
    check_result(out, strict)
    watch.body.append(ast.Return(watch.code(out, as_result=True)))
    return arguments, _without_unused(watch.body)


def _without_unused(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without calls that only give what nobody asks for."""
    used: set[str] = set()
    kept: list[ast.stmt] = []
    for statement in reversed(body):
        names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call)]
        if (
            isinstance(statement, ast.Assign)
            and all(isinstance(t, ast.Name | ast.Tuple) for t in statement.targets)
            and not stored & used
            and not any(map(_may_write, calls))
        ):
            continue
        used |= {n.id for n in names if isinstance(n.ctx, ast.Load)}
        kept.append(statement)
    return kept[::-1]


def _may_write(function: ast.expr) -> bool:
    """True for calls of all but operators that leave their arguments alone."""
    path = ast.unparse(function)
    name = path.rpartition(".")[2]
    of_module = path.startswith(("self", "__torch__", "ops.prim")) or "." not in path
    return of_module or name.endswith("_") or "_norm" in name or not is_operator(name)


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
    mod: Any,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> RecursiveScriptModule:
    """A module whose methods are traces of a module's methods; `inputs` gives example inputs by method.

    Raises:
        ValueError: for a module with backward hooks.
        TracingCheckError: if the trace is another one when it is made again.
    """

    def in_order(given: dict[str, Any]) -> dict[str, Any]:
        keyed = example_inputs_is_kwarg
        return {m: _given_by(getattr(mod, m), v, v if keyed else None) for m, v in given.items()}

    made = _trace_methods(mod, in_order(inputs), strict)
    if not check_trace:
        return made
    for each in [inputs] if check_inputs is None else check_inputs:
        for method, given in in_order(each).items():

            def again(copies: Any, method: str = method) -> tuple[Any, Function]:
                other = _trace_methods(mod, {method: copies}, strict)
                return getattr(other, method), other._spec.methods[method]

            function = mod if method == "forward" else getattr(mod, method)
            code = made._spec.methods[method]
            _checks.check_trace(
                function, getattr(made, method), code, again, given, check_tolerance
            )
    return made


def _trace_methods(mod: Any, inputs: dict[str, Any], strict: bool) -> RecursiveScriptModule:
    from torchlike.jit._script import _made, check_initialized

    check_initialized(mod)
    program = Program()
    root = program.builders[id(mod)] = ModuleBuilder(program, mod)
    for inner in mod.modules():
        if inner._backward_hooks or inner._backward_pre_hooks:
            raise ValueError(
                f"Modules that have backward hooks assigned can't be compiled: {inner}"
            )
    for method, given in inputs.items():
        function = mod.__call__ if method == "forward" else getattr(mod, method)
        of_class = getattr(type(mod), method)
        arguments, body = _watched(program, function, of_class, given, mod, strict)
        root.methods[method] = _function_def(method, arguments, body, True)
        root.kinds[method] = None
    for inner in mod.modules():
        program.builder(inner, None, ast.Pass())
    made = _made(program, mod, {})
    made.__class__ = TopLevelTracedModule
    return made


def _tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def _given_by(function: Any, given: Any, by_name: dict[str, Any] | None) -> Any:
    """Inputs as a tuple, or by name in the order of the function's arguments."""
    if by_name is None:
        return _tuple(given)
    return {p: by_name[p] for p in inspect.signature(function).parameters if p in by_name}


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
    another batch size; values that it asks for are kept as they were, with a `TracerWarning`. Unless `check_trace` is
    False, the trace is made once more and compared with the function, for each of `check_inputs`.

    Raises:
        TracingCheckError: if the trace is another one when it is made again.
    """
    if isinstance(func, ScriptModule | ScriptFunction):
        return func
    owner, method = getattr(func, "__self__", None), getattr(func, "__name__", "")
    if isinstance(func, Module):
        owner, method = func, "forward"
    called = func.forward if isinstance(func, Module) else func
    keyed = example_kwarg_inputs is not None
    inputs = _given_by(called, example_inputs, example_kwarg_inputs)
    checks = [inputs] if check_inputs is None else check_inputs
    if isinstance(owner, Module):
        return trace_module(
            owner,
            {method: inputs},
            check_trace=check_trace,
            check_inputs=[{method: c} for c in checks],
            check_tolerance=check_tolerance,
            strict=strict,
            example_inputs_is_kwarg=keyed,
        )
    made = _trace_function(func, inputs, strict)
    if check_trace:

        def again(copies: Any) -> tuple[Any, Function]:
            other = _trace_function(func, copies, strict)
            return other, other._function

        for given in checks:
            each = _given_by(func, given, given if keyed else None)
            _checks.check_trace(func, made, made._function, again, each, check_tolerance)
    return made


def _trace_function(func: Any, inputs: Any, strict: bool) -> ScriptFunction:
    program = Program()
    arguments, body = _watched(program, func, func, inputs, None, strict)
    name = program.fresh(qualified(func) if hasattr(func, "__qualname__") else "__torch__.traced")
    prefix, _, last = name.rpartition(".")
    last = last if last.isidentifier() and last != "_" else "traced"
    program.unit.define(prefix, ast.unparse(_function_def(last, arguments, body, False)) + "\n")
    found = program.unit.find(f"{prefix}.{last}")
    assert isinstance(found, Function)
    return ScriptFunction(found, func)
