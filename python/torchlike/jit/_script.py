"""`jit.script`: compiling a function or module, and what then stands for it."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torchlike
from torchlike.jit import _marks, _types
from torchlike.jit._errors import NotSupportedError
from torchlike.jit._function import Function
from torchlike.jit._module import RecursiveScriptModule, ScriptFunction, ScriptModule
from torchlike.jit._program import ModuleBuilder, Program, exported
from torchlike.jit._scope import Source
from torchlike.jit._statements import Statements
from torchlike.jit._unit import Instance
from torchlike.nn import Module
from torchlike.nn.parameter import is_lazy

_LEFT = (_marks.IGNORE, _marks.UNUSED)


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """Compiles a function, or a module with `forward` and what it calls, to TorchScript.

    The result runs the compiled code, here and, once saved, in PyTorch. A scripted module shares parameters and
    buffers with
    the module. What TorchScript has not raises `NotSupportedError` with file and line.
    """
    if isinstance(obj, ScriptModule | ScriptFunction):
        return obj
    if isinstance(obj, Module):
        check_initialized(obj)
        return script_module(_prepared(obj, {}))
    if inspect.isclass(obj):
        if issubclass(obj, Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an "
                f"instance instead"
            )
        return obj  # as in PyTorch; only compiled code that names it would need more than that
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        return script_function(obj)
    raise NotSupportedError(f"jit.script: cannot compile a {type(obj).__name__}")


def _prepared(module: Any, known: dict[int, Any]) -> Any:
    """What a module wants to be compiled as, which its `__prepare_scriptable__` gives, and so those below it."""
    if id(module) in known or isinstance(module, ScriptModule):
        return known.get(id(module), module)
    made = known[id(module)] = (
        module.__prepare_scriptable__() if hasattr(module, "__prepare_scriptable__") else module
    )
    for name, inner in list(made._modules.items()):
        if inner is not None and _prepared(inner, known) is not inner:
            made._modules[name] = known[id(inner)]
    return made


def script_function(function: Any) -> ScriptFunction:
    """A compiled function."""
    program = Program()
    caller = Statements(program, Source(function), None)
    name, _ = program.function(inspect.unwrap(function), None, caller, ast.Pass(lineno=1), {})
    found = program.unit.find(name)
    assert isinstance(found, Function)
    return ScriptFunction(found, function)


def script_module(module: Any) -> RecursiveScriptModule:
    """A compiled module, which shares the module's tensors."""
    program = Program()
    root = ModuleBuilder(program, module)
    _compile(program, root, exported(module))
    return _made(program, module, {})


def extend(scripted: Any, method: str) -> bool:
    """Compiles one more method of the module that a script module was made of; False if there is no such method."""
    module = vars(scripted).get("_origin")
    if module is None or not inspect.isfunction(getattr(type(module), method, None)):
        return False
    program = Program()
    has = [m for m in scripted._spec.methods if inspect.isfunction(getattr(type(module), m, None))]
    _compile(program, ModuleBuilder(program, module), list(dict.fromkeys([*has, method])))
    _rebind(scripted, _made(program, module, {}))
    return True


def _rebind(old: Any, new: Any) -> None:
    """Gives a script module, and all that it holds, the code of another one of the same module, and what it lacks."""
    for name in ("_spec", "_unit"):
        object.__setattr__(old, name, getattr(new, name))
    for name, inner in new._modules.items():
        if old._modules.get(name) is None:
            old._modules[name] = inner
        elif inner is not None:
            _rebind(old._modules[name], inner)
    old._fill({n: getattr(old if hasattr(old, n) else new, n) for n in new._spec.attributes})


def compile_in_place(module: Any) -> None:
    """Compiles the methods of an object of a class of script modules, and makes TorchScript of what it holds."""
    module.__dict__.pop("_spec", None)
    before = module.__dict__.get("_before", {})
    for name, (original, twin) in before.items():
        if module._modules.get(name) is twin:
            module._modules[name] = original  # whose code may be asked for more now
    program = Program()
    root = ModuleBuilder(program, module)
    _compile(program, root, list(module._stubs))
    twins: dict[int, Any] = {}
    for name, kind in root.attributes.items():
        object.__setattr__(module, name, _held(program, kind, getattr(module, name), twins))
    for name, inner in list(module._modules.items()):
        if inner is not None:
            module._modules[name] = twin = _made(program, inner, twins)
            before[name] = inner, twin
    object.__setattr__(module, "_before", before)
    object.__setattr__(module, "_spec", root.finish())
    object.__setattr__(module, "_unit", program.unit)


def check_initialized(module: Any) -> None:
    """Checks that a module has all of its tensors.

    Raises:
        RuntimeError: if its class did not call `super().__init__()`, or if parameters wait for a first call.
    """
    if not isinstance(getattr(module, "_parameters", None), Mapping):
        raise RuntimeError(
            f"'{torchlike.typename(type(module))}' has not been initialized, did you forget to call 'super()'?"
        )
    for inner in module.modules():
        for name, value in (*inner._parameters.items(), *inner._buffers.items()):
            if value is not None and is_lazy(value):
                kind = "parameters" if name in inner._parameters else "buffers"
                raise RuntimeError(
                    f"'{torchlike.typename(type(inner))}' has uninitialized {kind} {name}. Did you forget to run a "
                    "forward pass?"
                )


def _compile(program: Program, root: ModuleBuilder, names: list[str]) -> None:
    """Compiles methods of a module, and what those below it export."""
    module = root.module
    program.builders[id(module)] = root
    for variant in (v for name in names for v in root.variants(name)):
        root.compiled(variant, None, ast.Pass(lineno=1))
    for inner in list(module.modules()):
        builder = program.builder(inner, None, ast.Pass())
        for name in exported(inner):
            if name != "forward":
                builder.compiled(name, None, ast.Pass(lineno=1))
        builder.has_hooks(None, ast.Pass(lineno=1))
    root.finish()


def _held(program: Program, kind: str, value: Any, made: dict[int, Any]) -> Any:
    """What stands for a value that a module holds: for an object, one of code with the same attributes."""
    if isinstance(value, torchlike.jit.Attribute):
        value = value.value
    if isinstance(value, list | tuple | dict):
        inner = _types.parts_of(kind)
        if isinstance(value, dict) and len(inner) == 2:
            return {k: _held(program, inner[1], v, made) for k, v in value.items()}
        if isinstance(value, list) and len(inner) == 1:
            return [_held(program, inner[0], v, made) for v in value]
        return _types.plain(value)
    kind = kind[9:-1] if kind.startswith("Optional[") else kind
    objects = program.objects_of(kind)
    if objects is None or value is None:
        return value
    if id(value) not in made:
        twin = made[id(value)] = Instance(program.unit.get_class(kind))
        for name, of in objects.attributes.items():
            twin.__dict__[name] = _held(program, of, getattr(value, name), made)
    return made[id(value)]


def _made(program: Program, module: Any, made: dict[int, Any]) -> RecursiveScriptModule:
    """The modules that stand for compiled ones, with what those hold."""
    known = made.get(id(module))
    if known is not None:
        return known
    builder = program.builders[id(module)]
    result = made[id(module)] = RecursiveScriptModule(builder.finish(), program.unit)
    object.__setattr__(result, "_origin", module)
    state: dict[str, Any] = {}
    for name in (*module._parameters, *module._buffers):
        state[name] = getattr(module, name)
    for name, kind in builder.attributes.items():
        state[name] = _held(program, kind, getattr(module, name), made)
    for name, inner in module._modules.items():
        state[name] = None if inner is None else _made(program, inner, made)
    state["training"] = module.training
    result._fill(state)
    _bind(module, result)
    return result


def _bind(module: Any, result: Any) -> None:
    """Gives a compiled module the methods that are left to Python: those of its class, and those set on itself."""
    found = {n: inspect.getattr_static(type(module), n, None) for n in dir(type(module))}
    found = {n: f for n, f in found.items() if inspect.isfunction(f)}
    found.update({n: m.__func__ for n, m in vars(module).items() if inspect.ismethod(m)})
    for name, function in found.items():
        if _marks.mark_of(function) in _LEFT and name not in result._spec.methods:
            object.__setattr__(result, name, types.MethodType(function, result))
