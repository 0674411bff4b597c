"""The classes and functions of an archive, or of what was scripted: found by their qualified names, compiled
when used."""

from __future__ import annotations

import ast
import collections
import dataclasses
import enum
import functools
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _functions, _values
from torchlike.jit._closures import path_of
from torchlike.jit._errors import CompilationUnitError
from torchlike.jit._function import Function
from torchlike.jit._grammar import parse
from torchlike.jit._statement_closures import Compiler
from torchlike.nn import Module
from torchlike.return_types import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

Tensor = torchlike.Tensor
MAX_CALLS = 200
"""Functions within functions that code may call."""


@dataclasses.dataclass
class Class:
    """A class of code."""

    name: str
    """Its qualified name."""
    kind: str
    """`Module`, `NamedTuple`, `Enum`, `Interface`, or empty."""
    attributes: dict[str, str]
    """The types of attributes, as text."""
    parameters: list[str]
    buffers: list[str]
    methods: dict[str, Function]
    constants: dict[str, Any]
    text: str
    pre_hooks: list[str] = dataclasses.field(default_factory=list)
    hooks: list[str] = dataclasses.field(default_factory=list)
    """The methods that run before and after `forward` when the module is called."""
    made: Any = None
    """The class of Python that stands for it, where there is one."""


class Instance:
    """An object of a class of code that is no module."""

    def __init__(self, spec: Class) -> None:
        self._spec = spec

    def __repr__(self) -> str:
        return f"<object of {self._spec.name}>"


class _Types:
    """The name of a class in code, as a value: what it makes when it is called."""

    def __init__(self, unit: Unit, spec: Class) -> None:
        self.unit = unit
        self.spec = spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        spec = self.spec
        if spec.kind == "NamedTuple":
            return named_tuple(spec)(*args, **kwargs)
        if spec.kind:
            raise CompilationUnitError(f"{spec.name} is a {spec.kind}, which code does not make")
        made = Instance(spec)
        if "__init__" in spec.methods:
            spec.methods["__init__"](made, *args, **kwargs)
        return made


def named_tuple(spec: Class) -> Any:
    """The tuple class of Python for one of code."""
    if spec.made is None:
        make: Any = collections.namedtuple
        spec.made = make(spec.name.rpartition(".")[2], list(spec.attributes), rename=True)
    return spec.made


class Unit:
    """Code by qualified names: the texts of files by the prefixes of the names that they define, and the
    constants they name."""

    def __init__(self, texts: dict[str, str], constants: list[Any]) -> None:
        self.texts = texts
        self.constants = constants
        self.depth = 0
        self._read: dict[str, dict[str, Class | Function]] = {}

    def deeper(self, name: str) -> None:
        """Counts a call within calls.

        Raises:
            RuntimeError: if there are too many.
        """
        if self.depth >= MAX_CALLS:
            raise RuntimeError(f"{name}: calls within calls, deeper than {MAX_CALLS}")
        self.depth += 1

    # Names

    def _file(self, prefix: str) -> dict[str, Class | Function]:
        """What the file of a prefix of names defines."""
        known = self._read.get(prefix)
        if known is None:
            text = self.texts.get(prefix)
            known = self._read[prefix] = {} if text is None else self._define(prefix, text)
        return known

    def _define(self, prefix: str, text: str) -> dict[str, Class | Function]:
        lines = text.splitlines(keepends=True)
        found: dict[str, Class | Function] = {}
        for node in parse(text, prefix).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = self._class(node, f"{prefix}.{node.name}", lines)
            elif isinstance(node, ast.FunctionDef):
                found[node.name] = self._function(node, f"{prefix}.{node.name}", lines)
            elif not isinstance(node, ast.Import | ast.Assign | ast.Expr):
                raise CompilationUnitError(
                    f"{prefix}: a {type(node).__name__} outside of functions"
                )
        return found

    def define(self, prefix: str, text: str) -> None:
        """Adds what a text defines to a prefix of names."""
        self._file(prefix).update(self._define(prefix, text))
        self.texts[prefix] = self.texts.get(prefix, "") + text

    def _function(self, node: ast.FunctionDef, name: str, lines: list[str]) -> Function:
        if node.decorator_list:
            raise CompilationUnitError(f"{name}: a decorator")
        return Function(self, name, node, "".join(lines[node.lineno - 1 : node.end_lineno]))

    def _class(self, node: ast.ClassDef, name: str, lines: list[str]) -> Class:
        base = node.bases[0] if node.bases else None
        kind = base.id if isinstance(base, ast.Name) else ""
        if kind not in ("Module", "NamedTuple", "Enum", "Interface", ""):
            raise CompilationUnitError(f"{name}: the class {kind!r} to derive from")
        text = "".join(lines[node.lineno - 1 : node.end_lineno])
        spec = Class(name, kind, {}, [], [], {}, {}, text)
        for part in node.body:
            self._member(spec, part, lines)
        return spec

    def _member(self, spec: Class, part: ast.stmt, lines: list[str]) -> None:
        if isinstance(part, ast.FunctionDef):
            spec.methods[part.name] = self._function(part, f"{spec.name}.{part.name}", lines)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            spec.attributes[part.target.id] = ast.unparse(part.annotation)
            if part.value is not None:
                spec.constants[part.target.id] = part.value
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Subscript):
            spec.attributes[_key(part.target)] = ast.unparse(part.annotation)
        elif isinstance(part, ast.Assign) and len(part.targets) == 1:
            target = part.targets[0]
            if isinstance(target, ast.Subscript):
                spec.attributes[_key(target)] = ast.unparse(part.value)
            elif isinstance(target, ast.Name) and target.id in _LISTS:
                getattr(spec, _LISTS[target.id]).extend(_strings(part.value))
            elif isinstance(target, ast.Name) and spec.kind == "Enum":
                spec.constants[target.id] = part.value
        elif not isinstance(part, ast.Pass | ast.Expr):
            raise CompilationUnitError(f"{spec.name}: a {type(part).__name__} in a class")

    def find(self, name: str) -> Class | Function | None:
        """The class or function of a qualified name."""
        prefix, _, last = name.rpartition(".")
        return self._file(prefix).get(last)

    def get_class(self, name: str) -> Class:
        """The class of a qualified name.

        Raises:
            CompilationUnitError: if there is none.
        """
        found = self.find(name)
        if not isinstance(found, Class):
            raise CompilationUnitError(f"Unknown type name '{name}'")
        return found

    def value(self, path: tuple[str, ...]) -> Any:
        """What a dotted name of code stands for."""
        if path[0] == "CONSTANTS":
            number = path[1].removeprefix("c")
            if len(path) != 2 or not number.isdigit() or int(number) >= len(self.constants):
                raise CompilationUnitError(f"no constant '{'.'.join(path)}'")
            return self.constants[int(number)]
        if path[0] != "__torch__":
            return _functions.value_of(path)
        found = self.find(".".join(path))
        if isinstance(found, Function):
            return found
        if isinstance(found, Class):
            return _Types(self, found)
        owner = self.find(".".join(path[:-1]))
        if isinstance(owner, Class):
            if path[-1] == "__new__":
                return lambda kind: Instance(kind.spec)
            if path[-1] in (*owner.pre_hooks, *owner.hooks):
                return owner.methods[path[-1]]
            if owner.kind == "Enum" and path[-1] in owner.constants:
                return self.member(owner, path[-1])
        raise CompilationUnitError(f"Unknown name '{'.'.join(path)}'")

    def member(self, spec: Class, name: str) -> Any:
        """A member of an enumeration."""
        if spec.made is None:
            pairs = [
                (k, Compiler(self, spec.name).expression(v)([])) for k, v in spec.constants.items()
            ]
            make: Any = enum.Enum
            spec.made = make(spec.name.rpartition(".")[2], pairs)
        return spec.made[name]

    def object(self, spec: Class, value: Any) -> Any:
        """What stands for an object of Python where code has a class of its name: one with the same attributes."""
        if isinstance(value, Instance) or type(value).__name__ != spec.name.rpartition(".")[2]:
            return value
        twin = Instance(spec)
        for name, kind in spec.attributes.items():
            inner = self.find(kind) if kind.startswith("__torch__.") else None
            held = getattr(value, name)
            plain = isinstance(inner, Class) and inner.kind == ""
            twin.__dict__[name] = self.object(inner, held) if plain else held  # type: ignore[arg-type]
        return twin

    # Objects

    def attribute(self, of: Any, name: str) -> Any:
        """An attribute that code reads.

        Raises:
            RuntimeError: if values of its kind have none of the name for code.
        """
        if isinstance(of, Module):
            return _of_module(of, name)
        if isinstance(of, Instance):
            if name in of._spec.methods:
                return self.method(of, name)
            if name not in of.__dict__ or name.startswith("_spec"):
                raise RuntimeError(f"{of!r} has no attribute '{name}'")
            return of.__dict__[name]
        if isinstance(of, tuple) and name in (getattr(of, "_fields", None) or fields_of(of)):
            return getattr(of, name)
        if isinstance(of, torchlike.device) and name in ("type", "index"):
            return getattr(of, name)
        if (
            isinstance(of, Tensor) or hasattr(of, "__torch_function__")
        ) and name in _functions.ATTRIBUTES:
            return _functions.data_of(of, name)
        if name in ("name", "value") and isinstance(of, enum.Enum):
            return getattr(of, name)
        raise RuntimeError(f"'{type(of).__name__}' object has no attribute or method '{name}'.")

    def set_attribute(self, of: Any, name: str, value: Any) -> None:
        """Sets an attribute of a module or object of code."""
        if isinstance(of, Module) and name in getattr(getattr(of, "_spec", None), "attributes", ()):
            setattr(of, name, value)
        elif isinstance(of, Instance) and not name.startswith("_spec"):
            of.__dict__[name] = value
        else:
            raise RuntimeError(f"'{type(of).__name__}' object has no attribute '{name}' to be set.")

    def method(self, of: Any, name: str) -> Callable[..., Any]:
        """A method that code calls."""
        if isinstance(of, Module | Instance):
            spec = getattr(of, "_spec", None)
            found = spec.methods.get(name) if spec is not None else None
            if found is None:
                if name == "__init__" and isinstance(of, Instance):
                    return lambda *args: None
                raise RuntimeError(
                    f"{spec.name if spec else type(of).__name__} has no method '{name}'"
                )
            return lambda *args, **kwargs: found(of, *args, **kwargs)
        if isinstance(of, str) and name == "format":
            return lambda *args: _values.format(of, *args)
        kind = "tuple" if isinstance(of, tuple) else type(of).__name__
        if name in _values.METHODS.get(kind, ()):
            return _plain_method(of, name)
        if isinstance(of, Tensor) or hasattr(of, "__torch_function__"):
            if name == "size":
                return lambda *dim: of.size(*dim) if dim else list(of.shape)
            if name in _TENSOR_METHODS or (
                not name.startswith("_") and _functions.is_operator(name)
            ):
                return _functions.method_of(of, name)
            if name in _functions.WITHOUT_OPERATOR:
                return functools.partial(_functions.of_torch(name), of)
        raise RuntimeError(f"'{type(of).__name__}' object has no attribute or method '{name}'.")

    def called(self, of: Any) -> Callable[..., Any]:
        """What a value does that code calls."""
        if isinstance(of, Function | _Types | functools.partial):
            return of
        if isinstance(of, Module):
            return self.method(of, "forward")
        if isinstance(of, Instance):
            return self.method(of, "__call__")
        raise RuntimeError(f"'{type(of).__name__}' object is not callable")

    # Types

    def test(self, kind: ast.AST) -> Callable[[Any], bool]:
        """A function that says whether a value is of a type of code."""
        if isinstance(kind, ast.Tuple | ast.List):
            tests = [self.test(k) for k in kind.elts]
            return lambda value: any(t(value) for t in tests)
        if isinstance(kind, ast.Constant) and kind.value is None:
            return lambda value: value is None
        if isinstance(kind, ast.Subscript):
            return self._generic(kind)
        path = path_of(kind)
        name = ".".join(path) if path else ""
        plain = _PLAIN_TYPES.get(name)
        if plain is not None:
            return lambda value: (
                isinstance(value, plain) and (plain is not int or not isinstance(value, bool))
            )
        if name == "Any":
            return lambda value: True
        if path and path[0] == "__torch__":
            spec = self.get_class(name)
            return lambda value: (
                getattr(value, "_spec", None) is spec
                or (spec.made is not None and isinstance(value, spec.made))
            )
        raise CompilationUnitError(f"Unknown type name '{name or ast.unparse(kind)}'")

    def _generic(self, kind: ast.Subscript) -> Callable[[Any], bool]:
        name = ast.unparse(kind.value).rpartition(".")[2].lower()
        inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        tests = [self.test(k) for k in inner]
        if name == "optional":
            return lambda v: v is None or tests[0](v)
        if name == "union":
            return lambda v: any(t(v) for t in tests)
        if name == "list":
            return lambda v: isinstance(v, list) and all(tests[0](i) for i in v)
        if name == "dict" and len(tests) == 2:
            return lambda v: (
                isinstance(v, dict) and all(tests[0](a) and tests[1](b) for a, b in v.items())
            )
        if name == "tuple":
            return lambda v: (
                isinstance(v, tuple)
                and len(v) == len(tests)
                and all(t(i) for t, i in zip(tests, v, strict=True))
            )
        if name == "final":
            return tests[0]
        raise CompilationUnitError(f"Unknown type '{ast.unparse(kind)}'")


_LISTS = {
    "__parameters__": "parameters", "__buffers__": "buffers", "__forward_pre_hooks__": "pre_hooks",
    "__forward_hooks__": "hooks",
}  # fmt: skip
"""What a class says of its members, and where it is kept."""
_PLAIN_TYPES: dict[str, Any] = {
    "Tensor": Tensor, "torch.Tensor": Tensor, "int": int, "float": float, "bool": bool, "str": str, "complex": complex,
    "NoneType": type(None), "None": type(None), "Device": torchlike.device, "torch.device": torchlike.device,
    "List": list, "list": list, "Tuple": tuple, "tuple": tuple, "Dict": dict, "dict": dict,
}  # fmt: skip
_TENSOR_METHODS = frozenset(
    [
        "backward",
        "cpu",
        "cuda",
        "float",
        "double",
        "half",
        "bfloat16",
        "int",
        "long",
        "short",
        "char",
        "byte",
        "bool",
        "type",
        "item",
        "tolist",
        "dim",
        "numel",
        "nelement",
        "element_size",
        "is_complex",
        "is_floating_point",
        "is_contiguous",
        "stride",
        "storage_offset",
        "requires_grad_",
        "detach_",
        "view_as",
        "new_tensor",
        "data_ptr",
        "get_device",
        "ndimension",
        "retain_grad",
        "is_signed",
        "type_as",
    ]
)


def _plain_method(of: Any, name: str) -> Callable[..., Any]:
    if isinstance(of, dict) and name in ("keys", "values", "items"):
        return lambda: list(getattr(of, name)())
    own = {"popitem": _values.PLAIN["popitem"], "index": _values.PLAIN["index"]}.get(name)
    found: Callable[..., Any] = functools.partial(own, of) if own else getattr(of, name)
    return found


def _of_module(module: Any, name: str) -> Any:
    spec = getattr(module, "_spec", None)
    if spec is not None and name in spec.attributes:
        return getattr(module, name)
    if spec is not None and name in spec.methods:
        return spec.methods[name].__get__(module)
    raise RuntimeError(f"Module '{getattr(module, 'original_name', '')}' has no attribute '{name}'")


def _key(node: ast.Subscript) -> str:
    """The name in `__annotations__["name"]`."""
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    raise CompilationUnitError("an attribute whose name is no string")


def _strings(node: ast.AST) -> list[str]:
    if isinstance(node, ast.List):
        return [
            e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)
        ]
    return []
