"""Modules, functions and objects whose code is TorchScript."""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit._function import Function
from torchlike.jit._marks import ScriptMethodStub
from torchlike.jit._scope import getter_of
from torchlike.jit._state import watcher
from torchlike.jit._statement_closures import Compiler
from torchlike.jit._unit import Class, Unit
from torchlike.nn import Module, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

Tensor = torchlike.Tensor


class _ScriptMeta(type):
    """The class of classes of script modules, whose objects are compiled once they are made."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        if made.__dict__.get("_spec") is None:
            from torchlike.jit._script import compile_in_place

            compile_in_place(made)
        return made


class ScriptModule(Module, metaclass=_ScriptMeta):
    """A module whose code is TorchScript. In a class that derives from it, methods that `jit.script_method` marks, and
    those that `define` is given, are compiled when an object is made; what it holds is scripted, too.
    """

    _spec: Class
    _unit: Unit
    _stubs: Mapping[str, Any] = MappingProxyType({})
    """The functions that are compiled, by name."""
    _said: dict[str, Any]
    """The types that `jit.Attribute` gives attributes."""

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        own = {n: v.function for n, v in vars(cls).items() if isinstance(v, ScriptMethodStub)}
        for name in own:
            delattr(cls, name)
        if own:
            cls._stubs = MappingProxyType({**cls._stubs, **own})

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, torchlike.jit.Attribute):
            if "_said" not in self.__dict__:
                object.__setattr__(self, "_said", {})
            self._said[name], value = value.type, value.value
        super().__setattr__(name, value)

    def define(self, src: str) -> None:
        """Adds a method by its text, whose names are those of where it is called."""
        import sys

        from torchlike.jit._compilation_unit import functions_of
        from torchlike.jit._script import compile_in_place

        added = functions_of(src, sys._getframe(1), {})
        object.__setattr__(self, "_stubs", MappingProxyType({**self._stubs, **added}))
        if self.__dict__.get("_spec") is not None:
            compile_in_place(self)

    @property
    def original_name(self) -> str:
        """The name of the class that was scripted."""
        return self._spec.name.rpartition(".")[2]

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return _code_of(self._spec.methods.get("forward"))

    @property
    def code_with_constants(self) -> tuple[str, dict[str, Any]]:
        """The text of `forward`, and the constants it names."""
        return self.code, {f"c{i}": c for i, c in enumerate(self._unit.constants)}

    @property
    def graph(self) -> str:
        """A listing of `forward`: its code."""
        return self.code

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward` of the code."""
        return self._run("forward", args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        spec = self.__dict__.get("_spec")
        found = None if spec is None else spec.methods.get(name)
        if found is None:
            raise NotImplementedError(
                f'Module [{self.original_name}] is missing the required "{name}" function'
            )
        watch = watcher()
        if watch is not None:
            return watch.scripted(found, self, args, kwargs)
        return found(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        spec = self.__dict__.get("_spec")
        if spec is not None and name in spec.methods:
            return lambda *args, **kwargs: self._run(name, args, kwargs)
        if spec is not None and getter_of(name) in spec.methods:
            return self._run(getter_of(name), (), {})
        return super().__getattr__(name)

    def save(self, f: Any, _extra_files: Any = None, **how: Any) -> None:
        """As `jit.save`."""
        from torchlike.jit._write import save

        save(self, f, _extra_files, **how)

    def save_to_buffer(self, *args: Any, **kwargs: Any) -> bytes:
        """The bytes of the archive."""
        import io

        buffer = io.BytesIO()
        self.save(buffer, *args, **kwargs)
        return buffer.getvalue()

    def to_fx(self) -> Any:
        """The module as a `fx.GraphModule`; control flow that depends on values raises `TraceError`."""
        from torchlike.jit._graph import to_fx

        return to_fx(self)

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def __len__(self) -> int:
        return len(self._modules) if not self._has("__len__") else self._run("__len__", (), {})

    def __iter__(self) -> Any:
        return iter(
            self._modules.values() if not self._has("__iter__") else self._run("__iter__", (), {})
        )

    def __getitem__(self, key: Any) -> Any:
        if self._has("__getitem__"):
            return self._run("__getitem__", (key,), {})
        if isinstance(key, str):
            return self._modules[key]
        return list(self._modules.values())[key]

    def __bool__(self) -> bool:
        return self._run("__bool__", (), {}) if self._has("__bool__") else True

    def __contains__(self, key: str) -> bool:
        if self._has("__contains__"):
            return bool(self._run("__contains__", (key,), {}))
        return key in self._modules

    def _has(self, name: str) -> bool:
        """Whether the code has a method of a name."""
        spec = self.__dict__.get("_spec")
        return spec is not None and name in spec.methods


class RecursiveScriptModule(ScriptModule):
    """A module whose methods are code of TorchScript: of an archive, of `jit.script`, or of `jit.trace`.

    Its attributes are those of its class in the code; its methods run by walking the code, operator by operator, so
    that
    gradients, meta tensors and modes work as for any other module.
    """

    def __init__(self, spec: Class, unit: Unit) -> None:
        super().__init__()
        object.__setattr__(self, "_spec", spec)
        object.__setattr__(self, "_unit", unit)
        for hook in spec.pre_hooks:
            self.register_forward_pre_hook(spec.methods[hook])
        for hook in spec.hooks:
            self.register_forward_hook(spec.methods[hook])

    def _fill(self, state: Mapping[str, Any]) -> None:
        """Gives the module the attributes of its class."""
        spec = self._spec
        for name in (*state, *(n for n in spec.attributes if n not in state)):
            value = state.get(name)
            if name in spec.parameters and (value is None or isinstance(value, Tensor)):
                self.register_parameter(name, _as_parameter(value))
            elif name in spec.buffers and (value is None or isinstance(value, Tensor)):
                self.register_buffer(name, value)
            elif isinstance(value, Module):
                self.add_module(name, value)
            elif name == "training":
                self.training = bool(value)
            elif name in spec.attributes or name in state:
                object.__setattr__(self, name, value)
        for name, node in spec.constants.items():
            object.__setattr__(self, name, Compiler(self._unit, spec.name).expression(node)([]))

    def __reduce__(self) -> Any:
        raise TypeError("modules of TorchScript are saved by jit.save and not pickled")

    def __copy__(self) -> RecursiveScriptModule:
        return self._copied({})

    def __deepcopy__(self, memo: dict[int, Any]) -> RecursiveScriptModule:
        return self._copied(memo)

    def _copied(self, memo: dict[int, Any]) -> RecursiveScriptModule:
        """A module of the same class with copies of what this one holds."""
        import copy

        kind = type(self) if isinstance(self, RecursiveScriptModule) else RecursiveScriptModule
        made = kind(self._spec, self._unit)
        memo[id(self)] = made
        object.__setattr__(made, "_origin", vars(self).get("_origin"))
        made._fill({n: copy.deepcopy(getattr(self, n, None), memo) for n in self._spec.attributes})
        made.training = self.training
        return made


class TopLevelTracedModule(RecursiveScriptModule):
    """What `jit.trace` makes of a module."""


TracedModule = TopLevelTracedModule


class ScriptFunction:
    """A function whose code is TorchScript."""

    def __init__(self, function: Function, original: Any = None) -> None:
        self._function = function
        self._original = original
        self.__name__ = function.__name__
        self.__doc__ = getattr(original, "__doc__", None)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._function.__name__

    @property
    def qualified_name(self) -> str:
        """Its name with those of its files."""
        return self._function.name

    @property
    def code(self) -> str:
        """The text."""
        return _code_of(self._function)

    @property
    def graph(self) -> str:
        """A listing: the code."""
        return self.code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watch = watcher()
        if watch is not None:
            return watch.scripted(self._function, None, args, kwargs)
        return self._function(*args, **kwargs)

    def save(self, f: Any, _extra_files: Any = None, **how: Any) -> None:
        """As `jit.save`."""
        from torchlike.jit._write import save

        save(self, f, _extra_files, **how)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction object {self.name}>"


def _code_of(function: Function | None) -> str:
    if function is None:
        raise AttributeError("the module has no forward, and so no code")
    import textwrap

    return textwrap.dedent(function.text)


def _as_parameter(value: Any) -> Any:
    if value is None or isinstance(value, Parameter):
        return value
    return Parameter(value.detach(), requires_grad=value.requires_grad)


def placeholder(function: ScriptFunction) -> RecursiveScriptModule:
    """A module whose `forward` is a function, which is what archives hold."""
    inner = function._function
    names = inner.arguments()
    head = ast.unparse(
        ast.arguments(**{f: getattr(inner.tree.args, f) for f in ast.arguments._fields})
    )
    returns = f" -> {ast.unparse(inner.tree.returns)}" if inner.tree.returns else ""
    text = (
        "class PlaceholderModule(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
        f"  def forward(self, {head}){returns}:\n    return {inner.name}({', '.join(names)})\n"
    )
    unit = Unit(dict(inner.unit.texts), inner.unit.constants)
    if "__torch__" not in unit.texts or "class PlaceholderModule" not in unit.texts["__torch__"]:
        unit.define("__torch__", text)
    module = RecursiveScriptModule(unit.get_class("__torch__.PlaceholderModule"), unit)
    module._fill({"training": True})
    return module
