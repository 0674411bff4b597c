"""What is compiled together: the classes of modules, the functions and tuples they need, and where each is
found in the code."""

from __future__ import annotations

import ast
import enum
import inspect
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _forward_hooks, _layers, _marks, _mismatches, _types
from torchlike.jit._bodies import fits
from torchlike.jit._classes import Classes, is_own, may_be_held, qualified
from torchlike.jit._parts_of_code import _kind
from torchlike.jit._scope import Known, Part, Run, Source
from torchlike.jit._statements import Statements
from torchlike.jit._unit import Class, Unit
from torchlike.nn import Module
from torchlike.nn.modules.container import ModuleDict, ModuleList, ParameterList

if TYPE_CHECKING:
    from torchlike.jit._adopted import Adoption

Tensor = torchlike.Tensor


class Program(Classes):
    """Everything that is compiled for one module or function."""

    def __init__(self) -> None:
        super().__init__()
        self.unit = Unit({}, [])
        self.builders: dict[int, ModuleBuilder] = {}
        self.functions: dict[tuple[Any, ...], tuple[str, str | None]] = {}
        self.classes: dict[tuple[str, str], Class] = {}
        self.names: set[str] = set()
        self.kept: list[Any] = []
        self._busy: set[tuple[Any, ...]] = set()
        self.adopted: dict[tuple[str, str], str] = {}
        """The names of code that was taken in, by its old name and its text."""
        self._adoptions: dict[int, Adoption] = {}

    # Names

    def fresh(self, wanted: str) -> str:
        """A qualified name that nothing has yet."""
        prefix, _, last = wanted.rpartition(".")
        found, number = wanted, 0
        while found in self.names:
            found = f"{prefix}.___torch_mangle_{number}.{last}"
            number += 1
        self.names.add(found)
        return found

    def constant(self, value: Any) -> int:
        """The number of a tensor among the constants."""
        for i, known in enumerate(self.unit.constants):
            if known is value:
                return i
        self.unit.constants.append(value.detach())
        return len(self.unit.constants) - 1

    def is_own(self, function: Any) -> bool:
        """True for functions of this library, whose annotations may say nothing."""
        return is_own(function)

    # Functions

    def function(
        self,
        function: Any,
        public: str | None,
        caller: Any,
        node: ast.AST,
        fixed: dict[str, enum.Enum],
    ) -> tuple[str, str | None]:
        """The name of a compiled function, and the type of its result.

        One for each choice of `fixed` arguments, which its code has not.
        """
        key = (id(function), *fixed.items())
        known = self.functions.get(key)
        if known is not None:
            return known
        if key in self._busy:
            raise caller.fail(
                node,
                f"function '{function.__name__}' is called recursively. Recursive calls are not supported",
            )
        self._busy.add(key)
        wanted = f"__torch__.torch.nn.functional.{public}" if public else qualified(function)
        name = self.fresh(wanted)
        prefix, _, last = name.rpartition(".")
        try:
            tree, kind = Statements(self, Source(function), None, fixed).function(last)
        finally:
            self._busy.discard(key)
        self.unit.define(prefix, ast.unparse(tree) + "\n")
        self.functions[key] = (name, kind)
        self.kept.append(function)
        return name, kind

    def adoption(self, unit: Unit) -> Adoption:
        """What takes code of another unit into the program's."""
        from torchlike.jit._adopted import Adoption

        known = self._adoptions.get(id(unit))
        if known is None:
            known = self._adoptions[id(unit)] = Adoption(self, unit)
        return known

    # Modules

    def builder(self, module: Any, caller: Any, node: ast.AST) -> ModuleBuilder:
        """What compiles a module."""
        known = self.builders.get(id(module))
        if known is None:
            known = self.builders[id(module)] = self._builder(module)
        return known

    def _builder(self, module: Any) -> ModuleBuilder:
        if getattr(module, "_unit", None) is None:
            return ModuleBuilder(self, module)
        from torchlike.jit._adopted import AdoptedBuilder

        return AdoptedBuilder(self, module)

    def gains(self, module: Any, method: str) -> bool:
        """Compiles a method that a script module lacks, as nobody asked for it; True if its class has it."""
        from torchlike.jit._script import extend

        if not extend(module, method):
            return False
        self.builders.pop(id(module), None)
        return True

    def attribute(
        self, compiler: Any, part: Part, attribute: str, value: Any, place: ast.expr, node: ast.AST
    ) -> Any:
        """An attribute of a module that is neither a tensor of it nor a module."""
        return self.builder(part.module, compiler, node).attribute(
            compiler, attribute, value, place, node
        )

    def asked(self, compiler: Any, part: Part, getter: str, node: ast.AST) -> Run:
        """The value of a property of a module, whose getter is compiled as a method."""
        kind = self.builder(part.module, compiler, node).compiled(getter, compiler, node)
        return Run(ast.Call(ast.Attribute(part.node, getter, ast.Load()), [], []), kind)

    def writes(
        self, module: Any, attribute: str, compiler: Any, node: ast.AST, kind: Run | str | None
    ) -> None:
        """Notes that code sets an attribute to a value of a type."""
        found = kind.kind if isinstance(kind, Run) else kind
        builder = self.builder(module, compiler, node)
        if not hasattr(module, attribute):
            compiler.refuse(_mismatches.of_new_attribute(attribute), node)
        value, said = builder._said(attribute, getattr(module, attribute))
        compiler.refuse(
            _mismatches.of_attribute(None if said else _kind(Known(value)), found), node
        )
        builder.written.add(attribute)


class ModuleBuilder:
    """Compiles the methods of one module, and makes its class."""

    def __init__(self, program: Program, module: Any) -> None:
        self.program = program
        self.module = module
        self.own = is_own(type(module))
        self.methods: dict[str, ast.FunctionDef] = {}
        self.kinds: dict[str, str | None] = {}
        self.attributes: dict[str, str] = {}
        self.written: set[str] = set()
        self.inherited: dict[str, Any] = {}
        """What `super()` calls, by its names in code."""
        self.pre_hooks: list[_forward_hooks.Hook] = []
        self.hooks: list[_forward_hooks.Hook] = []
        self._hooked = False
        self._name = ""
        self.spec: Class | None = None
        self._busy: set[str] = set()
        self.hints = _hints(type(module))
        program.kept.append(module)

    def compiled(self, method: str, caller: Any, node: ast.AST) -> str | None:
        """Compiles a method unless it is; the type of its result."""
        if method in self.kinds:
            return self.kinds[method]
        if method in self._busy:
            raise caller.fail(
                node, f"method '{method}' is called recursively. Recursive calls are not supported"
            )
        plain, _, number = method.rpartition("__")
        signatures = _marks.overloads_of(_layers.method_of(self.module, plain)) if plain else []
        function = self.inherited.get(method) or _layers.method_of(
            self.module, plain if signatures else method
        )
        if function is None or function is Module.forward:
            raise caller.fail(
                node, f"Module '{type(self.module).__name__}' has no method '{method}'"
            )
        source = Source(function)
        if signatures:
            said = Source(signatures[int(number)]).tree
            source.tree.args, source.tree.returns = said.args, said.returns
        self._busy.add(method)
        part = Part(ast.Name("self", ast.Load()), self.module)
        made, kind = Statements(self.program, source, part).function(method)
        self.methods[method], self.kinds[method] = made, kind
        self._busy.discard(method)
        return self.kinds[method]

    @property
    def name(self) -> str:
        """The name of the class, which is its own from here on: modules that are alike share it no more."""
        self._name = self._name or self.program.fresh(qualified(type(self.module)))
        return self._name

    def tree_of(self, method: str) -> ast.FunctionDef:
        """A compiled method as code."""
        return self.methods[method]

    def has_hooks(self, caller: Any, node: ast.AST) -> bool:
        """True for a module with forward hooks, which are compiled after `forward`, unless they are."""
        if not self._hooked:
            self._hooked = True
            _forward_hooks.compile_hooks(self, caller, node)
        return bool(self.pre_hooks or self.hooks)

    def variants(self, method: str) -> list[str]:
        """The names in code of a method: one for each signature that `_overload_method` notes."""
        count = len(_marks.overloads_of(_layers.method_of(self.module, method)))
        return [f"{method}__{i}" for i in range(count)] or [method]

    def chosen(self, method: str, kinds: list[str | None], caller: Any, node: ast.AST) -> str:
        """The name in code of the method that takes arguments of these types."""
        signatures = _marks.overloads_of(_layers.method_of(self.module, method))
        for name, signature in zip(self.variants(method), signatures, strict=False):
            statements = Statements(self.program, Source(signature), None)
            said = [
                a.annotation or ast.Name("Tensor") for a in statements.source.tree.args.args[1:]
            ]
            taken = [statements.annotation(a) for a in said]
            if len(kinds) <= len(taken) and all(
                k is None or fits(k, t) for k, t in zip(kinds, taken, strict=False)
            ):
                return name
        if signatures:
            raise caller.fail(node, f"no overload of '{method}' takes {', '.join(map(str, kinds))}")
        return method

    def attribute(
        self, compiler: Any, name: str, value: Any, place: ast.expr, node: ast.AST
    ) -> Any:
        """An attribute: a constant of the code, or a value of the module."""
        value, hint = self._said(name, value)
        if may_be_held(value) and not isinstance(value, enum.Enum):
            self.attributes[name] = self.program.held(value, compiler, node).name
            return Run(place, self.attributes[name])
        constants = getattr(self.module, "__constants__", ())
        if (
            self.own
            or name in constants
            or "Final" in str(hint)
            or callable(value)
            or isinstance(value, enum.Enum)
            or (value is None and hint is None)
        ):
            return Known(value)
        kind = self._kind(compiler, name, value, hint, node)
        self.attributes[name] = kind
        return Run(place, kind)

    def _said(self, name: str, value: Any) -> tuple[Any, Any]:
        """The value of an attribute, and its type where that is said: with the value, the object, or the class."""
        if isinstance(value, torchlike.jit.Attribute):
            return value.value, value.type
        said = getattr(self.module, "_said", {})
        return value, said.get(name, self.hints.get(name))

    def _kind(self, compiler: Any, name: str, value: Any, hint: Any, node: ast.AST) -> str:
        find = self.program.named(compiler, node)
        try:
            return _types.of_attribute(value, hint, find)
        except _types.UnknownType as e:
            raise compiler.fail(
                node,
                f"Module '{type(self.module).__name__}' has no attribute '{name}' (This attribute exists "
                f"on the Python module, but "
                f"we failed to convert Python type: '{type(value).__name__}' to a TorchScript type. {e})",
            ) from None

    def finish(self) -> Class:
        """The class, once all methods are compiled; modules that are alike share one."""
        if self.spec is not None:
            return self.spec
        self._hold()
        lines = self._lines()
        body = "".join(lines)
        wanted = qualified(type(self.module))
        known = None if self._name else self.program.classes.get((wanted, body))
        if known is None:
            name = self._name or self.program.fresh(wanted)
            prefix, _, last = name.rpartition(".")
            self.program.unit.define(prefix, f"class {last}(Module):\n{body}")
            known = self.program.unit.get_class(name)
            self.program.classes[wanted, body] = known
        self.spec = known
        return known

    def _hold(self) -> None:
        """Makes attributes of all that the module has and code has a type for, used by its code or not."""
        find = self.program.named(None, ast.Pass())
        for name, value in self.module._state_.items():
            inner = name in _INNER or (self.own and name.startswith("_"))
            if (
                inner
                or name in self.module._kinds
                or name in self.attributes
                or name in self.methods
            ):
                continue
            try:
                self.attributes[name] = _types.of_attribute(*self._said(name, value), find)
            except _types.UnknownType:
                continue

    def _lines(self) -> list[str]:
        module = self.module
        lines = [
            f"  __parameters__ = {_listed(module._parameters)}\n",
            f"  __buffers__ = {_listed(module._buffers)}\n",
        ]
        for text, hooks in (("pre_hooks", self.pre_hooks), ("hooks", self.hooks)):
            if hooks:
                lines.append(f"  __forward_{text}__ = {_listed(h.name for h in hooks)}\n")
        tensors = (*module._parameters, *module._buffers)
        lines += [
            _declared(n, "NoneType" if getattr(module, n) is None else "Tensor") for n in tensors
        ]
        lines.append("  training : bool\n")
        for name, kind in self.attributes.items():
            lines.append(_declared(name, kind))
        for name, inner in module._modules.items():
            if inner is None:
                lines.append(_declared(name, "NoneType"))
            else:
                spec = self.program.builder(inner, None, ast.Pass()).finish()
                lines.append(_declared(name, spec.name))
        whole = {**self.methods, **{h.name: h.tree for h in (*self.pre_hooks, *self.hooks)}}
        for method in whole.values():
            text = ast.unparse(ast.fix_missing_locations(method))
            lines.append("".join(f"  {line}\n" for line in text.splitlines()))
        return lines


def _listed(names: Any) -> str:
    import json

    return "[" + "".join(f"{json.dumps(n)}, " for n in names) + "]"


def _declared(name: str, kind: str) -> str:
    if name.isidentifier():
        return f"  {name} : {kind}\n"
    return f'  __annotations__["{name}"] = {kind}\n'


def _hints(kind: type) -> dict[str, Any]:
    """The annotations of a class and those it derives from, as far as they can be read."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        scope = vars(inspect.getmodule(base) or torchlike)
        for name, hint in inspect.get_annotations(base).items():
            if isinstance(hint, str):
                import builtins

                try:
                    hint = _types.evaluated(
                        ast.parse(hint, mode="eval").body,
                        lambda n, s=scope: s[n] if n in s else vars(builtins)[n],
                    )
                except (KeyError, TypeError, AttributeError, SyntaxError):
                    continue
            found[name] = hint
    return found


# What every module has.
_INNER = frozenset(
    (
        "training",
        "_kinds",
        "_non_persistent_buffers_set",
        "_hooks",
        "_state_hooks",
        "_said",
        "_before",
    )
)


CONTAINERS = (ModuleList, ModuleDict, ParameterList)
"""Modules that have no `forward` of their own."""


def exported(module: Any) -> list[str]:
    """The methods of a module that are compiled without being called: `forward`, and what `@jit.export` marks."""
    names = [
        n
        for n in dir(type(module))
        if _marks.mark_of(getattr(type(module), n, None)) == _marks.EXPORT
    ]
    forward = _layers.method_of(module, "forward")
    has_forward = forward is not Module.forward and not isinstance(module, CONTAINERS)
    return (["forward"] if has_forward else []) + names
