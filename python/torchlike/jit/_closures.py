"""Expressions as closures: each node of a tree becomes a function of the variables. Nothing is handed to Python to
run."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _functions
from torchlike.jit._errors import CompilationUnitError
from torchlike.jit._operations import _BINARY, _COMPARE, _PLAIN_CALLS, _UNARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.jit._unit import Unit

    Expression = Callable[[list[Any]], Any]

Tensor = torchlike.Tensor
ROOTS = ("torch", "ops", "__torch__", "CONSTANTS", "math")


class _Unset:
    """What a variable is before it has a value."""


UNSET = _Unset()
ABSENT = _Unset()
"""The value of `uninitialized(type)`: code passes it on and never looks at it."""


def path_of(node: ast.AST) -> tuple[str, ...] | None:
    """The names of a dotted expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return (node.id, *reversed(names))


class Expressions:
    """Makes closures of one function's tree. Variables are places in a list."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.unit = unit
        self.name = name
        self.slots: dict[str, int] = {}

    def fail(self, node: ast.AST, what: str) -> CompilationUnitError:
        """The error for a node that code of archives has not."""
        return CompilationUnitError(f"{self.name}, line {getattr(node, 'lineno', 0)}: {what}")

    def slot(self, name: str) -> int:
        """The place of a variable."""
        return self.slots.setdefault(name, len(self.slots))

    # Expressions

    def expression(self, node: ast.AST) -> Expression:
        """A closure for an expression."""
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            raise self.fail(node, f"{type(node).__name__} where a value is expected")
        made: Expression = method(node)
        return made

    def expressions(self, nodes: Sequence[ast.AST]) -> list[Expression]:
        """Closures for several."""
        return [self.expression(n) for n in nodes]

    def _Constant(self, node: ast.Constant) -> Expression:
        value = node.value
        return lambda env: value

    def _Name(self, node: ast.Name) -> Expression:
        if node.id in self.slots:
            at, name = self.slots[node.id], node.id

            def read(env: list[Any]) -> Any:
                value = env[at]
                if value is UNSET:
                    raise RuntimeError(f"{name} is not defined")
                return value

            return read
        if node.id in _functions.CONSTANTS:
            value = _functions.CONSTANTS[node.id]
            return lambda env: value
        raise self.fail(node, f"undefined value {node.id}")

    def _rooted(self, node: ast.AST) -> tuple[str, ...] | None:
        """A dotted name that begins outside of the function."""
        path = path_of(node)
        if not path or len(path) < 2 or path[0] not in ROOTS or path[0] in self.slots:
            return None
        # What follows a constant is an attribute of it.
        return None if path[0] == "CONSTANTS" and len(path) > 2 else path

    def _Attribute(self, node: ast.Attribute) -> Expression:
        path = self._rooted(node)
        if path is not None:
            value = self.unit.value(path)
            return lambda env: value
        of, name = self.expression(node.value), node.attr
        get = self.unit.attribute
        return lambda env: get(of(env), name)

    def _Subscript(self, node: ast.Subscript) -> Expression:
        of, key = self.expression(node.value), self.expression(node.slice)
        return lambda env: of(env)[key(env)]

    def _Slice(self, node: ast.Slice) -> Expression:
        none: Expression = lambda env: None  # noqa: E731
        parts = [
            none if p is None else self.expression(p) for p in (node.lower, node.upper, node.step)
        ]
        low, high, step = parts
        return lambda env: slice(low(env), high(env), step(env))

    def _List(self, node: ast.List) -> Expression:
        items = self.expressions(node.elts)
        return lambda env: [i(env) for i in items]

    def _Tuple(self, node: ast.Tuple) -> Expression:
        items = self.expressions(node.elts)
        return lambda env: tuple([i(env) for i in items])

    def _Dict(self, node: ast.Dict) -> Expression:
        if any(k is None for k in node.keys):
            raise self.fail(node, "** in a dictionary")
        pairs = [
            (self.expression(k), self.expression(v))
            for k, v in zip(node.keys, node.values, strict=True)
            if k
        ]
        return lambda env: {k(env): v(env) for k, v in pairs}

    def _BinOp(self, node: ast.BinOp) -> Expression:
        a, b, f = self.expression(node.left), self.expression(node.right), _BINARY[type(node.op)]
        return lambda env: f(a(env), b(env))

    def _UnaryOp(self, node: ast.UnaryOp) -> Expression:
        a, f = self.expression(node.operand), _UNARY[type(node.op)]
        return lambda env: f(a(env))

    def _BoolOp(self, node: ast.BoolOp) -> Expression:
        parts, stops = self.expressions(node.values), isinstance(node.op, ast.Or)

        def run(env: list[Any]) -> Any:
            for part in parts:
                if bool(part(env)) is stops:
                    return stops
            return not stops

        return run

    def _Compare(self, node: ast.Compare) -> Expression:
        first = self.expression(node.left)
        rest = [
            (_COMPARE[type(o)], self.expression(c))
            for o, c in zip(node.ops, node.comparators, strict=True)
        ]
        if len(rest) == 1:
            f, second = rest[0]
            return lambda env: f(first(env), second(env))

        def run(env: list[Any]) -> Any:
            left, value = first(env), None
            for f, part in rest:
                right = part(env)
                value = f(left, right)
                if not value:
                    break
                left = right
            return value

        return run

    def _IfExp(self, node: ast.IfExp) -> Expression:
        test, a, b = (
            self.expression(node.test),
            self.expression(node.body),
            self.expression(node.orelse),
        )
        return lambda env: a(env) if test(env) else b(env)

    def _loop(self, node: ast.ListComp | ast.DictComp, *parts: ast.expr) -> list[Any]:
        """What a loop in brackets goes over, what stores an item, and its parts: the names of the loop are its own."""
        if len(node.generators) != 1:
            raise self.fail(node, "several loops in one list")
        loop = node.generators[0]
        over = self.expression(loop.iter)
        names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
        before = {n: self.slots[n] for n in names if n in self.slots}
        for name in before:
            at = self.slot(f"{name} {len(self.slots)}")
            self.slots[name] = at
        store, tests = self.target(loop.target), self.expressions(loop.ifs)
        made = self.expressions(parts)
        self.slots.update(before)
        wanted = (lambda env: all(t(env) for t in tests)) if tests else None
        return [over, store, wanted, *made]

    def _ListComp(self, node: ast.ListComp) -> Expression:
        over, store, wanted, item = self._loop(node, node.elt)

        def run(env: list[Any]) -> Any:
            made = []
            for value in over(env):
                store(env, value)
                if wanted is None or wanted(env):
                    made.append(item(env))
            return made

        return run

    def _DictComp(self, node: ast.DictComp) -> Expression:
        over, store, wanted, key, item = self._loop(node, node.key, node.value)

        def run(env: list[Any]) -> Any:
            made = {}
            for value in over(env):
                store(env, value)
                if wanted is None or wanted(env):
                    made[key(env)] = item(env)
            return made

        return run

    # Calls

    def _Call(self, node: ast.Call) -> Expression:
        special = self._special(node)
        if special is not None:
            return special
        args = self.expressions(node.args)
        if any(k.arg is None for k in node.keywords):
            raise self.fail(node, "** among the arguments")
        kwargs = [(k.arg or "", self.expression(k.value)) for k in node.keywords]
        path = self._rooted(node.func)
        if path is not None:
            return _call(self.unit.value(path), args, kwargs)
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, args, kwargs)
        if isinstance(node.func, ast.Name) and node.func.id in self.slots:
            return self._called(node.func, args, kwargs)
        if isinstance(node.func, ast.Name) and node.func.id in _PLAIN_CALLS:
            return _call(_PLAIN_CALLS[node.func.id], args, kwargs)
        what = node.func.id if isinstance(node.func, ast.Name) else "a value that is no name"
        raise self.fail(node, f"a call of {what}")

    def _special(self, node: ast.Call) -> Expression | None:
        """Calls whose arguments are types or names."""
        if not isinstance(node.func, ast.Name) or node.func.id in self.slots:
            return None
        name, args = node.func.id, node.args
        if name in ("annotate", "unchecked_cast") and len(args) == 2:
            return self._typed(args[0], self.expression(args[1]))
        if name == "uninitialized":
            return lambda env: ABSENT
        if name == "isinstance" and len(args) == 2:
            value, test = self.expression(args[0]), self.unit.test(args[1])
            return lambda env: test(value(env))
        if name in ("getattr", "hasattr") and len(args) >= 2 and isinstance(args[1], ast.Constant):
            of, attribute, get = self.expression(args[0]), str(args[1].value), self.unit.attribute
            if name == "hasattr":
                return lambda env: hasattr(of(env), attribute)
            return lambda env: get(of(env), attribute)
        if name == "fork" and args:
            return self._forked(ast.copy_location(ast.Call(args[0], args[1:], node.keywords), node))
        if name == "awaitable":
            raise NotImplementedError(
                f"{self.name}: '{name}': asynchronous code is not run by torchlike"
            )
        return None

    def _forked(self, node: ast.Call) -> Expression:
        """A call that PyTorch runs beside others: it runs at once."""
        run, fork = self._Call(node), torchlike.jit.fork
        return lambda env: fork(run, env)

    def _typed(self, kind: ast.AST, value: Expression) -> Expression:
        """A value with a type, which matters to integers that stand for doubles alone."""
        if isinstance(kind, ast.Name) and kind.id == "float":
            return lambda env: _as_float(value(env))
        return value

    def _method(self, node: ast.Attribute, args: list[Expression], kwargs: list[Any]) -> Expression:
        of, name, find = self.expression(node.value), node.attr, self.unit.method

        def run(env: list[Any]) -> Any:
            given = [a(env) for a in args]
            return find(of(env), name)(*given, **{k: v(env) for k, v in kwargs})

        return run

    def _called(self, node: ast.Name, args: list[Expression], kwargs: list[Any]) -> Expression:
        """A call of what a variable holds: a function, a class or a module of code."""
        of, find = self.expression(node), self.unit.called

        def run(env: list[Any]) -> Any:
            given = [a(env) for a in args]
            return find(of(env))(*given, **{k: v(env) for k, v in kwargs})

        return run

    def target(self, node: ast.AST) -> Callable[[list[Any], Any], None]:
        """A closure that stores a value."""
        if isinstance(node, ast.Name):
            at = self.slot(node.id)
            return lambda env, value: operator.setitem(env, at, value)
        if isinstance(node, ast.Tuple | ast.List):
            stores = [self.target(t) for t in node.elts]

            def unpack(env: list[Any], value: Any) -> None:
                items = list(value)
                if len(items) != len(stores):
                    raise RuntimeError(
                        f"Expected {len(stores)} elements in a list but found {len(items)}"
                    )
                for store, item in zip(stores, items, strict=True):
                    store(env, item)

            return unpack
        if isinstance(node, ast.Attribute):
            of, name, put = self.expression(node.value), node.attr, self.unit.set_attribute
            return lambda env, value: put(of(env), name, value)
        if isinstance(node, ast.Subscript):
            of, key = self.expression(node.value), self.expression(node.slice)
            return lambda env, value: operator.setitem(of(env), key(env), value)
        raise self.fail(node, f"{type(node).__name__} as a target")


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _call(f: Callable[..., Any], args: list[Expression], kwargs: list[Any]) -> Expression:
    """A call; those of few arguments without a list of them."""
    if kwargs:
        return lambda env: f(*[a(env) for a in args], **{k: v(env) for k, v in kwargs})
    if len(args) == 1:
        a = args[0]
        return lambda env: f(a(env))
    if len(args) == 2:
        a, b = args
        return lambda env: f(a(env), b(env))
    return lambda env: f(*[a(env) for a in args])
