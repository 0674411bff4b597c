"""Classes of the user in code: tuples with names, enumerations, and objects with methods."""

from __future__ import annotations

import ast
import enum
import inspect
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike._naming import own
from torchlike.jit import _library_contexts, _mismatches, _types
from torchlike.jit._errors import NotSupportedError
from torchlike.jit._scope import Known, Of, Run, Source, getter_of, setter_of
from torchlike.jit._unit import Class, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Classes", "is_own", "qualified"]

_OPERATORS: dict[type, str] = {
    ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Div: "__truediv__", ast.Mod: "__mod__",
    ast.FloorDiv: "__floordiv__", ast.Pow: "__pow__", ast.BitAnd: "__and__", ast.BitOr: "__or__",
    ast.BitXor: "__xor__", ast.Eq: "__eq__", ast.NotEq: "__ne__", ast.Lt: "__lt__", ast.LtE: "__le__",
    ast.Gt: "__gt__", ast.GtE: "__ge__",
}  # fmt: skip


def is_own(kind: Any) -> bool:
    """True for classes and functions of this library, whatever name it goes by."""
    return own(getattr(kind, "__module__", "")).startswith("torchlike.")


def qualified(kind: Any) -> str:
    """The name of a class or function in code."""
    public = _library_contexts.NAMES.get(kind) if inspect.isclass(kind) else None
    if public is not None:
        return public
    module = own(kind.__module__)
    if is_own(kind):
        module = "torch" + module.removeprefix("torchlike")
    parts = [p if p.isidentifier() else "_" for p in [*module.split("."), kind.__name__]]
    parts = [p for p in parts if p != "__main__"]
    return ".".join(["__torch__", *parts])


class Classes:
    """The classes that a program's code has."""

    unit: Unit
    fresh: Callable[[str], str]

    def __init__(self) -> None:
        self._named: dict[type, str] = {}
        self._objects: list[Objects] = []

    def named(self, compiler: Any, node: ast.AST) -> Callable[[Any], str | None]:
        """A function that gives the name of a class of the user in code."""

        def find(kind: Any) -> str | None:
            if not isinstance(kind, type):
                return None
            if issubclass(kind, tuple) and hasattr(kind, "_fields"):
                return self._tuple(kind)
            if issubclass(kind, enum.Enum):
                return self._enumeration(kind)
            if compiler is not None and may_be_compiled(kind):
                return self.objects(kind, compiler, node).name
            return None

        def held(value: Any) -> str | None:
            """The class of an object among the values that a module holds."""
            known = compiler is not None and may_be_held(value)
            return self.held(value, compiler, node).name if known else None

        find.held = held  # type: ignore[attr-defined]
        return find

    def _define(self, kind: type, base: str, body: str) -> str:
        name = self._named[kind] = self.fresh(qualified(kind))
        prefix, _, last = name.rpartition(".")
        self.unit.define(prefix, f"class {last}({base}):\n{body}")
        self.unit.get_class(name).made = kind
        return name

    def _tuple(self, kind: type) -> str:
        """The class of code for a tuple class."""
        if kind in self._named:
            return self._named[kind]
        hints = getattr(kind, "__annotations__", {})
        scope = vars(inspect.getmodule(kind) or torchlike)
        text = ""
        for field in kind._fields:  # type: ignore[attr-defined]
            hint = hints.get(field, torchlike.Tensor)
            hint = getattr(hint, "__forward_arg__", hint)
            if isinstance(hint, str):
                lookup = lambda n: scope.get(n, getattr(__import__("builtins"), n, None))  # noqa: E731
                hint = _types.evaluated(ast.parse(hint, mode="eval").body, lookup)
            text += f"  {field} : {_types.of_annotation(hint, lambda k: None)}\n"
        return self._define(kind, "NamedTuple", text)

    def _enumeration(self, kind: Any) -> str:
        """The class of code for an enumeration."""
        if kind in self._named:
            return self._named[kind]
        values = {type(m.value) for m in kind}
        if len(values) != 1 or not values <= {int, float, str}:
            raise _types.UnknownType(
                f"Enum class '{kind.__name__}' has values that are not all of int, of float or of str"
            )
        return self._define(kind, "Enum", "".join(f"  {m.name} = {m.value!r}\n" for m in kind))

    def fields(self, kind: str | None) -> dict[str, str] | None:
        """The types of what objects of a class of code have, by name: tuples and members of enumerations."""
        if kind is None or not kind.startswith("__torch__."):
            return None
        found = self.unit.find(kind)
        if not isinstance(found, Class):
            return None
        if found.kind == "Enum":
            value = next(iter(found.made)).value
            return {"name": "str", "value": type(value).__name__}
        return found.attributes if found.kind == "NamedTuple" else None

    def objects(self, kind: type, compiler: Any, node: ast.AST) -> Objects:
        """What compiles a class with methods."""
        known = next((o for o in self._objects if o.kind is kind), None)
        return known or self._compiled(Objects(self, kind), compiler, node)

    def _compiled(self, objects: Objects, compiler: Any, node: ast.AST) -> Objects:
        self._objects.append(objects)
        try:
            objects.compile(compiler, node)
        except Exception:
            self._objects.remove(objects)
            raise
        return objects

    def held(self, value: Any, compiler: Any, node: ast.AST) -> Objects:
        """What compiles the class of an object that a module holds: by what `__init__` says of its attributes, or else
        by what the object has."""
        kind = type(value)
        try:
            by_init = self.objects(kind, compiler, node)
        except NotSupportedError:
            by_init = None
        if by_init is not None and vars(value).keys() <= by_init.attributes.keys():
            return by_init
        find, hints = self.named(compiler, node), getattr(kind, "__annotations__", {})
        try:
            types = {n: _types.of_attribute(v, hints.get(n), find) for n, v in vars(value).items()}
        except _types.UnknownType as e:
            raise compiler.fail(node, f"an object of the class '{kind.__name__}': {e}") from None
        for known in self._objects:
            if known.kind is kind and known.attributes == types:
                return known
        return self._compiled(Objects(self, kind, types), compiler, node)

    def objects_of(self, kind: str | None) -> Objects | None:
        """What compiles the class of this name, if it is one with methods."""
        return next((o for o in self._objects if o.name == kind), None)


def may_be_compiled(kind: type) -> bool:
    """Whether a class is one of the user, as those that it derives from are."""
    if kind in _library_contexts.NAMES:
        return True
    odd = (
        tuple,
        list,
        dict,
        str,
        enum.Enum,
        torchlike.Tensor,
        torchlike.nn.Module,
        type,
        BaseException,
    )
    own = [k for k in kind.__mro__ if k is not object]
    return not issubclass(kind, odd) and all(not is_own(k) and _is_written(k) for k in own)


def _is_written(kind: type) -> bool:
    """Whether a class is written in Python, and not the interpreter's."""
    import sys

    module = kind.__module__.partition(".")[0]
    return module not in sys.stdlib_module_names or module == "__main__"


def may_be_held(value: Any) -> bool:
    """Whether a value is an object of a class of the user, which code may use."""
    return hasattr(value, "__dict__") and may_be_compiled(type(value))


class Objects:
    """Compiles a class of the user: its methods, and the attributes that `__init__` sets."""

    def __init__(self, program: Any, kind: type, types: dict[str, str] | None = None) -> None:
        self.program, self.kind = program, kind
        self.name: str = program.fresh(qualified(kind))
        self.attributes: dict[str, str] = dict(types or {})
        self._is_made = types is not None
        self._methods: dict[str, ast.FunctionDef] = {}
        self._results: dict[str, str | None] = {}
        self._busy: list[str] = []
        self.inherited: dict[str, Any] = {}
        """What `super()` calls, by its names in code."""

    def compile(self, compiler: Any, node: ast.AST) -> None:
        """Compiles all methods, and adds the class to the code; objects that are made already may do without
        `__init__`."""
        found = {n: f for k in reversed(self.kind.__mro__) for n, f in vars(k).items()}
        names = [n for n, f in found.items() if inspect.isfunction(f) or isinstance(f, property)]
        if "__init__" in names:
            try:
                self.compiled("__init__", compiler, node)
            except NotSupportedError:
                if not self._is_made:
                    raise
                self._busy.clear()
        for method in (n for n in names if n not in ("__init__", "__repr__")):
            self.compiled(method, compiler, node)
            if isinstance(found[method], property) and found[method].fset is not None:
                self.compiled(setter_of(method), compiler, node)
        lines = [f"  {name} : {kind}\n" for name, kind in self.attributes.items()]
        for tree in self._methods.values():
            text = ast.unparse(ast.fix_missing_locations(tree))
            lines.append("".join(f"  {line}\n" for line in text.splitlines()))
        prefix, _, last = self.name.rpartition(".")
        self.program.unit.define(prefix, f"class {last}:\n{''.join(lines) or '  pass'}")

    def compiled(self, method: str, compiler: Any, node: ast.AST) -> str | None:
        """Compiles a method unless it is; the type of its result."""
        from torchlike.jit._statements import Statements

        if method in self._results:
            return self._results[method]
        if method in self._busy:
            raise compiler.fail(
                node, f"method '{method}' is called recursively. Recursive calls are not supported"
            )
        code, called = self._code_of(method)
        self._busy.append(method)
        itself = Run(ast.Name("self", ast.Load()), self.name)
        made, result = Statements(self.program, Source(code), itself).function(called)
        self._methods[called] = made
        self._results[method] = "NoneType" if method == "__init__" else result
        self._busy.pop()
        return self._results[method]

    def _code_of(self, method: str) -> tuple[Any, str]:
        """The function that a method, a property or the setter of one is, and its name in code."""
        attribute = method.removeprefix("__").removesuffix("_setter")
        if method == setter_of(attribute):
            return inspect.getattr_static(self.kind, attribute).fset, method
        function = self.inherited.get(method) or inspect.getattr_static(self.kind, method)
        if isinstance(function, property):
            return function.fget, getter_of(method)
        return function, method

    def attribute(self, compiler: Any, of: Run, name: str, node: ast.AST) -> Any:
        """An attribute of an object."""
        if name in self.attributes:
            return Run(ast.Attribute(of.node, name, ast.Load()), self.attributes[name])
        found = inspect.getattr_static(self.kind, name, None)
        if isinstance(found, property):
            kind = self.compiled(name, compiler, node)
            return Run(ast.Call(ast.Attribute(of.node, getter_of(name), ast.Load()), [], []), kind)
        if isinstance(found, staticmethod):
            return Known(getattr(self.kind, name))
        if inspect.isfunction(found):
            return Of(of.node, name, of.kind)
        raise compiler.fail(
            node, f"'{self.kind.__name__}' object has no attribute or method '{name}'."
        )

    def sets(self, name: str) -> bool:
        """True if an assignment to an attribute is a call of a property's setter."""
        is_property = isinstance(inspect.getattr_static(self.kind, name, None), property)
        return is_property and name not in self.attributes

    def set(self, compiler: Any, of: Run, name: str, value: ast.expr, node: ast.AST) -> ast.stmt:
        """That call."""
        if inspect.getattr_static(self.kind, name).fset is None:
            raise compiler.fail(node, f"Tried to set read-only attribute: {name}")
        self.compiled(setter_of(name), compiler, node)
        setter = ast.Attribute(of.node, setter_of(name), ast.Load())
        return ast.Expr(ast.Call(setter, [value], []))

    def store(self, compiler: Any, of: Run, name: str, value: Any, node: ast.AST) -> ast.expr:
        """An attribute as a target: `__init__` says which there are."""
        if self.sets(name):
            raise compiler.fail(node, f"property '{name}' is set by plain assignments alone")
        if name not in self.attributes:
            kind = getattr(value, "kind", value)
            code = getattr(value, "node", None)
            if (
                isinstance(code, ast.List | ast.Dict)
                and kind is None
                and not ast.unparse(code)[1:-1]
            ):
                kind = "List[Tensor]" if isinstance(code, ast.List) else "Dict[str, Tensor]"
            if not self._busy or not all(m.endswith("__init__") for m in self._busy):
                compiler.refuse(_mismatches.of_new_attribute(name), node)
            if not isinstance(kind, str):
                raise compiler.fail(
                    node, f"the type of the attribute '{name}' is not known; an annotation says it"
                )
            self.attributes[name] = kind
        found = getattr(value, "kind", value)
        compiler.refuse(_mismatches.of_attribute(self.attributes[name], found), node)
        return ast.Attribute(of.node, name, ast.Store())

    def operator(
        self, compiler: Any, of: Run, op: ast.AST, other: ast.expr, node: ast.AST
    ) -> Run | None:
        """An operator that the class has a method for."""
        return self.special(compiler, of, _OPERATORS.get(type(op), ""), [other], node)

    def special(
        self, compiler: Any, of: Run, method: str, args: list[ast.expr], node: ast.AST
    ) -> Run | None:
        """A call of a method that Python calls by itself, if the class has it."""
        if not inspect.isfunction(inspect.getattr_static(self.kind, method, None)):
            return None
        kind = self.compiled(method, compiler, node)
        return Run(ast.Call(ast.Attribute(of.node, method, ast.Load()), args, []), kind)
