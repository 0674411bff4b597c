"""From functions of Python to code of TorchScript: names are looked up, modules unrolled, constants folded;
the rest stays."""

from __future__ import annotations

import ast
import enum
import inspect
import operator
from typing import TYPE_CHECKING, Any, cast

import torchlike
from torchlike.jit import _mismatches, _results
from torchlike.jit._errors import NotSupportedError, UnsupportedNodeError
from torchlike.jit._functions import ATTRIBUTES
from torchlike.jit._layers import inherited, stub_of
from torchlike.jit._parts_of_code import (
    _ATTRIBUTE_KINDS,
    _FOLDED,
    _called,
    _item_kind,
    _kind,
    _member,
    _never_none,
    _plain,
    call,
    name,
    of_setting,
    plain_constant,
)
from torchlike.jit._scope import (
    Known,
    Method,
    Neither,
    Of,
    Part,
    Run,
    Several,
    Source,
    Super,
    getter_of,
    scripted_methods,
)
from torchlike.nn.modules.container import ModuleDict, ModuleList, ParameterList, Sequential
from torchlike.return_types import fields_of

if TYPE_CHECKING:
    from torchlike.jit._program import Program

Tensor = torchlike.Tensor


class Expressions:
    """Compiles expressions of one function."""

    def __init__(self, program: Program, source: Source, part: Part | Run | None) -> None:
        self.program = program
        self.source = source
        self.part = part
        self.locals: dict[str, Any] = {}

    def refuse(self, said: str, node: ast.AST) -> None:
        """Fails if there is something to say."""
        if said:
            raise self.fail(node, said)

    def fail(self, node: ast.AST, what: str) -> NotSupportedError:
        """The error for what TorchScript has not."""
        return NotSupportedError(what, self.source.place(node))

    # Values and nodes

    def visit(self, node: ast.AST) -> Any:
        """What an expression is: known, a module, or computed by the run."""
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            raise UnsupportedNodeError(f"{_called(node)} aren't supported", self.source.place(node))
        return method(node)

    def node(self, value: Any, at: ast.AST) -> ast.expr:
        """The code for a value."""
        if isinstance(value, Run):
            return value.node
        if isinstance(value, Several):
            return ast.Tuple([self.node(v, at) for v in value.items], ast.Load())
        if isinstance(value, Known):
            return self.constant(value.value, at)
        if isinstance(value, Part):
            raise self.fail(
                at,
                f"Module '{type(value.module).__name__}' is used as a value; only calls and attributes of modules",
            )
        if isinstance(value, Of) and value.kind is None and value.name in _results.NAMES:
            return ast.Attribute(value.node, value.name, ast.Load())
        if isinstance(value, Of) and value.kind in ("int", "float", "bool", "complex"):
            raise self.fail(at, f"'{value.kind}' object has no attribute or method '{value.name}'.")
        raise self.fail(at, "a method is used as a value")

    def constant(self, value: Any, at: ast.AST) -> ast.expr:
        """The code for a constant."""
        plain = plain_constant(value)
        if plain is not None:
            return plain
        if isinstance(value, torchlike.Size | list):
            return ast.List([self.constant(v, at) for v in value], ast.Load())
        if isinstance(value, tuple):
            return ast.Tuple([self.constant(v, at) for v in value], ast.Load())
        if isinstance(value, dict):
            return ast.Dict(
                [self.constant(k, at) for k in value],
                [self.constant(v, at) for v in value.values()],
            )
        if isinstance(value, enum.Enum):
            return name(f"{self.program.named(self, at)(type(value))}.{value.name}")
        setting = of_setting(value)
        if setting is not None:
            return setting
        if isinstance(value, Tensor):
            return name(f"CONSTANTS.c{self.program.constant(value)}")
        raise self.fail(
            at,
            f"python value of type '{type(value).__name__}' cannot be used as a value. Perhaps it is a "
            "closed over global variable? If so, please consider passing it in as an argument or use a local "
            "varible instead.",
        )

    def run(self, node: ast.AST) -> ast.expr:
        """The code for an expression."""
        return self.node(self.visit(node), node)

    # Names and attributes

    def _Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, bytes):
            raise self.fail(node, f"a constant of type {type(node.value).__name__}")
        return Known(node.value)

    def _Name(self, node: ast.Name) -> Any:
        if node.id in self.locals:
            found = self.locals[node.id]
            if isinstance(found, Neither):
                other = f"'{node.id}' is another function or module on the two sides of a branch"
                raise self.fail(node, found.said or other)
            return found
        try:
            return Known(self.source.lookup(node.id))
        except KeyError:
            raise self.fail(node, f"undefined value {node.id}") from None

    def _Attribute(self, node: ast.Attribute) -> Any:
        of = self.visit(node.value)
        if isinstance(of, Part):
            return self.of_part(of, node.attr, node)
        if isinstance(of, Super):
            return self._inherited(of, node)
        if isinstance(of, Known):
            return self.of_known(of.value, node.attr, node)
        if isinstance(of, Run):
            part = _results.part(of, node.attr)
            if part is not None:
                return part
            objects = self.program.objects_of(of.kind)
            if objects is not None:
                return objects.attribute(self, of, node.attr, node)
            fields = self.program.fields(of.kind)
            if fields and node.attr in fields:
                return Run(ast.Attribute(of.node, node.attr, ast.Load()), fields[node.attr])
            if node.attr in ATTRIBUTES and of.kind in (None, "Tensor", "Optional[Tensor]"):
                return Run(
                    ast.Attribute(of.node, node.attr, ast.Load()), _ATTRIBUTE_KINDS.get(node.attr)
                )
            if of.kind == "Device" and node.attr in ("type", "index"):
                return Run(ast.Attribute(of.node, node.attr, ast.Load()), None)
            return Of(of.node, node.attr, of.kind)
        raise self.fail(node, f"an attribute {node.attr!r} of a {type(of).__name__.lower()}")

    def _inherited(self, of: Super, node: ast.Attribute) -> Any:
        """A method of the classes that a class derives from, under a name of its own."""
        itself = self.part
        assert itself is not None
        compiled: Any
        if isinstance(itself, Part):
            kind, compiled = type(itself.module), self.program.builder(itself.module, self, node)
        else:
            compiled = self.program.objects_of(itself.kind)
            kind = compiled.kind
        for base in kind.__mro__[kind.__mro__.index(of.below) + 1 :]:
            if node.attr in vars(base):
                name = f"super_{base.__name__}_{node.attr}"
                function = compiled.inherited[name] = inherited(base, node.attr)
                if isinstance(itself, Part):
                    return Method(Part(ast.Name("self", ast.Load()), itself.module), name, function)
                return Of(ast.Name("self", ast.Load()), name, itself.kind)
        raise self.fail(node, f"'super' object has no attribute '{node.attr}'")

    def of_known(self, value: Any, attribute: str, node: ast.AST) -> Any:
        """An attribute of something that compiling knows."""
        if isinstance(value, Tensor) or (
            isinstance(value, str | list | dict | tuple)
            and not hasattr(value, "_fields")
            and not fields_of(value)
        ):
            return Of(self.constant(value, node), attribute, None)
        try:
            return Known(getattr(value, attribute))
        except AttributeError:
            raise self.fail(node, f"{value!r:.60} has no attribute {attribute!r}") from None

    def of_part(self, part: Part, attribute: str, node: ast.AST) -> Any:
        """An attribute of a module."""
        module = part.module
        place = _member(part.node, attribute)
        if attribute in module._modules:
            inner = module._modules[attribute]
            return Known(None) if inner is None else Part(place, inner)
        if attribute in module._parameters or attribute in module._buffers:
            if getattr(module, attribute) is None:
                return Known(None)
            return Run(place, "Tensor")
        if attribute == "training":
            return Run(place, "bool")
        if attribute in scripted_methods(module):
            return Method(part, attribute, None)
        function = stub_of(module, attribute) or getattr(type(module), attribute, None)
        getter = getter_of(attribute)
        if isinstance(function, property) or getter in scripted_methods(module):
            return self.program.asked(self, part, getter, node)
        if isinstance(inspect.getattr_static(type(module), attribute, None), staticmethod):
            return Known(function)
        if callable(function) and not isinstance(function, type):
            return Method(part, attribute, function)
        if self.program.gains(module, attribute):
            return Method(part, attribute, None)
        try:
            value = getattr(module, attribute)
        except AttributeError:
            name = getattr(module, "original_name", type(module).__name__)
            raise self.fail(node, f"Module '{name}' has no attribute '{attribute}'") from None
        return self.program.attribute(self, part, attribute, value, place, node)

    # Operators

    def _BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if _plain(left) and _plain(right):
            known = self._computed(node, left.value, right.value)
            if known is not None:
                return known
        made = self._by_method(left, node.op, right, node)
        if made is not None:
            return made
        kinds = {_kind(left), _kind(right)}
        kind = (
            "Tensor"
            if "Tensor" in kinds
            else (kinds.pop() if len(kinds) == 1 and not isinstance(node.op, ast.Div) else None)
        )
        return Run(
            ast.BinOp(self.node(left, node.left), node.op, self.node(right, node.right)), kind
        )

    def _computed(self, node: ast.BinOp, left: Any, right: Any) -> Known | None:
        """What constants give; nothing where that is an error of the run."""
        from torchlike.jit._operations import _BINARY

        try:
            return Known(_BINARY[type(node.op)](left, right))
        except TypeError as e:
            raise self.fail(node, f"Arguments for call are not valid: {e}") from None
        except (ArithmeticError, ValueError, RuntimeError):
            return None

    def _by_method(self, a: Any, op: ast.AST, b: Any, node: ast.AST) -> Run | None:
        """An operator of an object whose class has a method for it."""
        objects = self.program.objects_of(_kind(a)) if isinstance(a, Run) else None
        if objects is None:
            return None
        return objects.operator(self, a, op, self.node(b, node), node)

    def special(self, of: Any, method: str, args: list[ast.expr], node: ast.AST) -> Run | None:
        """A call of a method that Python calls by itself, of an object whose class has it."""
        objects = self.program.objects_of(_kind(of)) if isinstance(of, Run) else None
        return None if objects is None else objects.special(self, of, method, args, node)

    def truth(self, value: Any, node: ast.AST) -> ast.expr:
        """The code of what a branch or loop asks."""
        return self.node(self.special(value, "__bool__", [], node) or value, node)

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        if isinstance(value, Known) and (isinstance(node.op, ast.Not) or _plain(value)):
            from torchlike.jit._operations import _UNARY

            return Known(_UNARY[type(node.op)](value.value))
        if isinstance(node.op, ast.Not) and isinstance(value, Part | Several):
            return Known(False)
        if isinstance(node.op, ast.Not):
            return Run(ast.UnaryOp(node.op, self.truth(value, node.operand)), "bool")
        return Run(ast.UnaryOp(node.op, self.node(value, node.operand)), _kind(value))

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        kept: list[Any] = []
        for i, part in enumerate(node.values):
            value = self.visit(part)
            if isinstance(value, Part):
                value = Known(True)
            if isinstance(value, Known) and bool(value.value) is stops:
                if all(_kind(k) == "bool" for k in kept):
                    return value
                kept.append(value)
                break
            if isinstance(value, Known) and i + 1 < len(node.values):
                continue
            kept.append(value)
        if not kept:
            return Known(not stops)
        if len(kept) == 1:
            return kept[0]
        if (
            isinstance(kept[-1], Known)
            and isinstance(kept[-1].value, bool)
            and kept[-1].value is not stops
        ):
            kept.pop()
        parts = [self.node(k, node) for k in kept]
        return Run(parts[0] if len(parts) == 1 else ast.BoolOp(node.op, parts), "bool")

    def _Compare(self, node: ast.Compare) -> Any:
        values = [self.visit(n) for n in (node.left, *node.comparators)]
        made = [
            self._compared(node, op, a, b)
            for op, a, b in zip(node.ops, values, values[1:], strict=False)
        ]
        if any(isinstance(m, Known) and not m.value for m in made):
            return Known(False)
        kept = [self.node(m, node) for m in made if not isinstance(m, Known)]
        if not kept:
            return Known(True)
        kinds = [_kind(v) for v in values]
        kind = "bool"
        if not isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
            kind = "Tensor" if "Tensor" in kinds else None if None in kinds else "bool"  # type: ignore[assignment]
        return Run(kept[0] if len(kept) == 1 else ast.BoolOp(ast.And(), kept), kind)

    def _compared(self, node: ast.Compare, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, ast.Is | ast.IsNot):
            for one, other in ((a, b), (b, a)):
                never = isinstance(one, Part | Several | Method) or (
                    isinstance(one, Run) and one.kind is not None and _never_none(one.kind)
                )
                if never and isinstance(other, Known) and other.value is None:
                    return Known(isinstance(op, ast.IsNot))
        if isinstance(a, Known) and isinstance(b, Known):
            from torchlike.jit._operations import _COMPARE

            return Known(bool(_COMPARE[type(op)](a.value, b.value)))
        made = self._by_method(a, op, b, node)
        if made is not None:
            return made
        if isinstance(b, Part) and isinstance(b.module, ModuleDict) and isinstance(a, Known):
            return Known((a.value in b.module._modules) is isinstance(op, ast.In))
        left = self.node(a, node)
        if isinstance(op, ast.In | ast.NotIn):
            held = self.special(b, "__contains__", [left], node)
            if held is not None:
                code = held.node if isinstance(op, ast.In) else ast.UnaryOp(ast.Not(), held.node)
                return Run(code, "bool")
        right = self.node(b, node)
        if isinstance(right, ast.Tuple) and isinstance(op, ast.In | ast.NotIn):
            right = ast.List(right.elts, ast.Load())
        return Run(ast.Compare(left, [op], [right]), "bool")

    def _IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if isinstance(test, Known):
            return self.visit(node.body if test.value else node.orelse)
        a, b = self.visit(node.body), self.visit(node.orelse)
        kind = _kind(a) if _kind(a) == _kind(b) else None
        self.refuse(_mismatches.of_choice(_kind(a), _kind(b)), node)
        return Run(
            ast.IfExp(
                self.truth(test, node.test), self.node(a, node.body), self.node(b, node.orelse)
            ),
            kind,
        )

    # Containers

    def _Tuple(self, node: ast.Tuple) -> Any:
        items = [self.visit(e) for e in node.elts]
        if all(_plain(i) for i in items):
            return Known(tuple(i.value for i in items))
        return Several(items)

    def _List(self, node: ast.List) -> Any:
        items = [self.visit(e) for e in node.elts]
        kinds = {_kind(i) for i in items}
        kind = f"List[{kinds.pop()}]" if len(kinds) == 1 and None not in kinds else None
        return Run(ast.List([self.node(i, node) for i in items], ast.Load()), kind)

    def _Dict(self, node: ast.Dict) -> Any:
        if any(k is None for k in node.keys):
            raise self.fail(node, "** in a dictionary isn't supported")
        keys = [self.visit(k) for k in node.keys if k]
        self.refuse(_mismatches.of_keys([_kind(k) for k in keys]), node)
        return Run(
            ast.Dict([self.node(k, node) for k in keys], [self.run(v) for v in node.values]),
            None,
        )

    def _Subscript(self, node: ast.Subscript) -> Any:
        of = self.visit(node.value)
        if isinstance(of, Part):
            return self._chosen(of, node)
        if isinstance(of, Several) and not isinstance(node.slice, ast.Slice):
            key = self.visit(node.slice)
            if isinstance(key, Known):
                self.refuse(_mismatches.of_index(len(of.items), key.value), node)
                return of.items[key.value]
        if (
            isinstance(of, Known)
            and isinstance(of.value, _FOLDED)
            and not isinstance(node.slice, ast.Slice)
        ):
            key = self.visit(node.slice)
            if isinstance(of.value, tuple) and _plain(key):
                self.refuse(_mismatches.of_index(len(of.value), key.value), node)
            if _plain(key):
                return Known(operator.getitem(cast("Any", of.value), key.value))
        value, key = self.node(of, node.value), self._key(node.slice)
        return Run(ast.Subscript(value, key, ast.Load()), _item_kind(_kind(of), key))

    def _key(self, node: ast.AST) -> ast.expr:
        if isinstance(node, ast.Slice):
            parts = [
                None if p is None else self.run(p) for p in (node.lower, node.upper, node.step)
            ]
            return ast.Slice(*parts)
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._key(e) for e in node.elts], ast.Load())
        return self.run(node)

    def _chosen(self, part: Part, node: ast.Subscript) -> Any:
        """A module of a list or dictionary of modules."""
        items = self.parts(part, node)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if p is None else self.visit(p)
                for p in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            if all(b is None or _plain(b) for b in bounds):
                return Several(items[slice(*[None if b is None else b.value for b in bounds])])
        key = self.visit(node.slice)
        if not _plain(key):
            raise self.fail(
                node,
                "Expected integer literal for index. ModuleList/Sequential indexing is only supported "
                "with integer literals.",
            )
        if isinstance(key.value, str):
            if key.value not in part.module._modules:
                raise self.fail(node, f"Key Error, {key.value}")
            return self.of_part(part, key.value, node)
        try:
            return items[key.value]
        except IndexError:
            raise self.fail(
                node, f"Index {key.value} out of range of length {len(items)}"
            ) from None

    def parts(self, part: Part, node: ast.AST) -> list[Any]:
        """The modules of a list of modules."""
        module = part.module
        scripted = getattr(module, "original_name", "") in (
            "ModuleList",
            "Sequential",
            "ModuleDict",
        )
        if scripted or isinstance(module, ModuleList | Sequential | ModuleDict):
            return [Part(_member(part.node, n), m) for n, m in module._modules.items()]
        if isinstance(module, ParameterList):
            return [Run(_member(part.node, str(i)), "Tensor") for i in range(len(module))]
        raise self.fail(node, f"'{type(module).__name__}' object is not iterable")

    # Text

    def _JoinedStr(self, node: ast.JoinedStr) -> Any:
        text, args = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if part.format_spec is not None or part.conversion != -1:
                    raise self.fail(
                        node, "Don't support conversion or format specifiers in JoinedStr"
                    )
                text += "{}"
                args.append(self.run(part.value))
        return Run(call("torch.format", [ast.Constant(text), *args]), "str")
