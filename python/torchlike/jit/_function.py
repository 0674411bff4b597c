"""A function of code: what it is called with, and what it gives."""

from __future__ import annotations

import ast
import enum
import functools
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _accepted
from torchlike.jit._closures import UNSET
from torchlike.jit._errors import CompilationUnitError, left, passed
from torchlike.jit._statement_closures import Compiler, Returned
from torchlike.jit._types import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.jit._unit import Unit


def _real(value: Any) -> Any:
    return float(value) if type(value) is int else value


# What whole numbers become where code takes real ones, and names of devices where it takes devices.
_FITTED: dict[str, Callable[[Any], Any]] = {
    "Device": lambda v: torchlike.device(v) if isinstance(v, str) else v,
    "float": _real,
}


def _same(value: Any) -> Any:
    return value


def _stands_in(value: Any) -> bool:
    """True for what a trace has in the place of a value."""
    return hasattr(type(value), "__torch_function__") and not isinstance(value, torchlike.Tensor)


def _own(value: Any) -> Any:
    """A value as it passes between Python and code: lists and dictionaries are copied, all else is what it is."""
    if isinstance(value, list):
        return [_own(v) for v in value]
    if isinstance(value, dict):
        return {k: _own(v) for k, v in value.items()}
    if type(value) is tuple:
        return tuple([_own(v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_own, value))
    return value


class Function:
    """One function of code: its tree, and its closure once it was called."""

    def __init__(self, unit: Unit, name: str, tree: ast.FunctionDef, text: str) -> None:
        self.unit = unit
        self.name = name
        self.tree = tree
        self.text = text
        self._body: Any = None
        self._tests: list[tuple[int, str, Any]] | None = None

    @property
    def __name__(self) -> str:
        return self.tree.name

    def _compile(self) -> Any:
        arguments = self.tree.args
        if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
            raise CompilationUnitError(f"{self.name}: * or ** among the arguments")
        compiler = Compiler(self.unit, self.name)
        names = [a.arg for a in arguments.args + arguments.kwonlyargs]
        for name in names:
            compiler.slot(name)
        given = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
        given += list(arguments.kw_defaults)
        constants = Compiler(self.unit, self.name)
        defaults = [None if d is None else constants.expression(d) for d in given]
        body = compiler.block(self.tree.body)
        size = len(compiler.slots)
        real = [
            (i, change)
            for i, a in enumerate(arguments.args + arguments.kwonlyargs)
            if a.annotation is not None and (change := self._taken(ast.unparse(a.annotation)))
        ]
        return names, len(arguments.args), defaults, body, size, real

    def _taken(self, kind: str) -> Callable[[Any], Any] | None:
        """What makes a value one of a type, where that changes it: real numbers, members of enumerations, objects."""
        if kind.startswith("__torch__."):
            found: Any = self.unit.find(kind)
            of = getattr(found, "kind", None)
            if of == "Enum":
                return lambda v: self.unit.member(found, v.name) if isinstance(v, enum.Enum) else v
            return (lambda v: self.unit.object(found, v)) if of == "" else None
        if kind.startswith("Optional["):
            inner = self._taken(kind[9:-1])
            return None if inner is None else lambda v: None if v is None else inner(v)
        name, changes = kind.partition("[")[0], [self._taken(k) for k in parts_of(kind)]
        if not any(changes):
            return _FITTED.get(kind)
        first, *others = [c or _same for c in changes]
        if name == "List":
            return lambda v: [first(x) for x in v] if isinstance(v, list | tuple) else v
        if name == "Dict":
            return lambda v: (
                {first(k): others[0](x) for k, x in v.items()} if isinstance(v, dict) else v
            )
        if name == "Tuple":
            each = [first, *others]
            return lambda v: (
                tuple([c(x) for c, x in zip(each, v, strict=True)])
                if type(v) is tuple and len(v) == len(each)
                else v
            )
        return None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._body is None:
            self._body = self._compile()
        names, positional, defaults, body, size, real = self._body
        if len(args) > positional:
            raise self._misfit(
                f"expected at most {positional} argument(s) but received {len(args)} argument(s). "
                f"Declaration: {self._declaration()}"
            )
        env = [*args, *([UNSET] * (size - len(args)))]
        for i in range(len(args), len(names)):
            if names[i] in kwargs:
                env[i] = kwargs.pop(names[i])
            elif defaults[i] is not None:
                env[i] = defaults[i]([])
            else:
                raise self._misfit(
                    f"is missing value for argument '{names[i]}'. "
                    f"Declaration: {self._declaration()}"
                )
        if kwargs:
            raise self._misfit(f"has no argument '{next(iter(kwargs))}'")
        outermost = self.unit.depth == 0
        if outermost:
            self._check(env)
            env[: len(names)] = map(_own, env[: len(names)])
        for i, as_real in real:
            env[i] = as_real(env[i])
        self.unit.deeper(self.name)
        try:
            end = body(env)
        except Exception as e:
            passed(e, self)
            outside = left(e) if outermost else None
            if outside is not None:
                raise outside from e
            raise
        finally:
            self.unit.depth -= 1
        value = end.value if isinstance(end, Returned) else None
        return _own(value) if outermost else value

    def _check(self, env: list[Any]) -> None:
        """Refuses values of Python that are none of the types that the code says."""
        if self._tests is None:
            kinds = [
                None if a.annotation is None else ast.unparse(a.annotation)
                for a in self.tree.args.args + self.tree.args.kwonlyargs
            ]
            found = [(i, k, _accepted.test_of(k)) for i, k in enumerate(kinds) if k is not None]
            self._tests = [(i, k, test) for i, k, test in found if test is not None]
        for i, kind, test in self._tests:
            if not test(env[i]) and not _stands_in(env[i]):
                name = (self.tree.args.args + self.tree.args.kwonlyargs)[i].arg
                raise self._misfit(_accepted.misfit(name, kind, env[i], i, self._declaration()))

    def _declaration(self) -> str:
        return _accepted.declaration(self.tree, self.name.rpartition(".")[0])

    def __get__(self, of: Any, kind: Any = None) -> Any:
        return self if of is None else functools.partial(self, of)

    def _misfit(self, what: str) -> RuntimeError:
        return RuntimeError(f"{self.__name__}() {what}")

    def arguments(self) -> list[str]:
        """The names of the arguments."""
        return [a.arg for a in self.tree.args.args]
