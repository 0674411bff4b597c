"""Compiling calls: of operators, of functions of the library and of the user, of modules and their methods."""

from __future__ import annotations

import ast
import collections
import inspect
import types
import warnings
from typing import Any

import torchlike
from torchlike._legacy import tensortype
from torchlike.jit import (
    _forward_hooks,
    _gradients,
    _made_of_classes,
    _marks,
    _mismatches,
    _results,
    _spelling,
    _tasks,
    _types,
    _values,
    _walks,
)
from torchlike.jit._classes import may_be_compiled
from torchlike.jit._functions import is_operator
from torchlike.jit._library_contexts import CONTEXTS
from torchlike.jit._library_sequences import PACKED
from torchlike.jit._operations import _PLAIN_CALLS
from torchlike.jit._otherwise import WITHOUT_OPERATOR
from torchlike.jit._parts_of_code import (
    _KEPT_CALLS,
    _OF_ITEMS,
    _TENSOR_CASTS,
    _TO,
    _each_kind,
    _kind,
    _plain,
    as_list,
    call,
    is_member,
    of_dictionary,
)
from torchlike.jit._scope import Known, Method, Of, Part, Run, Several, Super
from torchlike.jit._type_tests import TypeTests
from torchlike.nn import Module
from torchlike.nn.modules import utils
from torchlike.nn.modules.container import ModuleDict
from torchlike.nn.utils.rnn import PackedSequence

Tensor = torchlike.Tensor
_FLAGS = {
    "return_indices": "_with_indices",
    "return_inverse": "_inverse",
    "return_counts": "_counts",
}
"""Arguments that ask for further results, and what the names of functions of the library that give them have."""
_PLAIN_RESULTS = {
    "len": "int",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "ord": "int",
    "range": "List[int]",
    "complex": "complex",
    **dict.fromkeys(("hex", "oct", "bin", "chr"), "str"),
}
_COPIES = {utils._single: 1, utils._pair: 2, utils._triple: 3, utils._quadruple: 4}
_BACKWARDS = ast.Slice(None, None, ast.UnaryOp(ast.USub(), ast.Constant(1)))


class Calls(TypeTests):
    """Compiles calls."""

    def _Call(self, node: ast.Call) -> Any:
        starred = [self.visit(a.value) for a in node.args if isinstance(a, ast.Starred)]
        if any(k.arg is None for k in node.keywords) or any(
            self._spread(s) is None for s in starred
        ):
            raise self.fail(node, "* and ** among the arguments of a call aren't supported")
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node)
        of = self.visit(node.func)
        if isinstance(of, Part):
            return self.of_module(of, node)
        if isinstance(of, Method):
            return self.of_method(of, node)
        if isinstance(of, Of):
            return self.of_value(of, node)
        if isinstance(of, Known):
            return self.of_known_call(of.value, node)
        if isinstance(of, Run) and self.program.objects_of(of.kind) is not None:
            return self.of_value(Of(of.node, "__call__", of.kind), node)
        raise self.fail(node, "a call of a value of the run")

    def _super(self, node: ast.Call) -> Any:
        below = self.source.names.get("__class__")
        if node.args:
            named = self.visit(node.args[0])
            below = named.value if isinstance(named, Known) else None
        if below is None or self.part is None:
            raise self.fail(node, "super() outside of a class")
        return Super(below)

    def arguments(self, node: ast.Call) -> list[Any]:
        """The values of the positional arguments."""
        given: list[Any] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                given.extend(self._spread(self.visit(a.value)) or [])
            else:
                given.append(self.visit(a))
        return given

    @staticmethod
    def _spread(value: Any) -> list[Any] | None:
        """The items of a value whose number compiling knows."""
        if isinstance(value, Several):
            return value.items
        if isinstance(value, Known):
            return [Known(v) for v in value.value]
        if isinstance(value, Run) and value.kind and value.kind.startswith("Tuple["):
            kinds = enumerate(_types.parts_of(value.kind))
            return [
                Run(ast.Subscript(value.node, ast.Constant(i), ast.Load()), k) for i, k in kinds
            ]
        return None

    def given(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values of the arguments, which are looked at once: calls stand within calls."""
        named = {k.arg: self.visit(k.value) for k in node.keywords if k.arg}
        return self.arguments(node), named

    def written(
        self, values: list[Any], named: dict[str, Any], node: ast.AST, *, listed: bool = True
    ) -> tuple[list[ast.expr], list[ast.keyword]]:
        """The code of arguments; numbers side by side become lists, which operators take."""
        fit = as_list if listed else lambda value: value
        args = [self.node(fit(v), node) for v in values]
        return args, [ast.keyword(n, self.node(fit(v), node)) for n, v in named.items()]

    def spelled(self, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
        """The code of the arguments of a call."""
        return self.written(*self.given(node), node)

    @staticmethod
    def _result(operator: str, values: list[Any], named: dict[str, Any]) -> str | None:
        """The type of a call of an operator."""
        fitted = {n: as_list(v) for n, v in named.items()}
        return _results.of_call(operator, [as_list(v) for v in values], fitted)

    # Modules

    def of_module(self, part: Part, node: ast.Call) -> Any:
        """A call of a module: of its `forward`."""
        given, named = self.given(node)
        args, keywords = self.written(given, named, node)
        reads = PACKED.get(type(part.module))
        packed = self.program.named(self, node)(PackedSequence) if reads and given else None
        if packed is not None and _kind(given[0]) == packed:
            builder = self.program.builder(part.module, self, node)
            builder.inherited["forward_packed"] = reads
            return self.method_call(part, "forward_packed", args, keywords, node)
        builder = self.program.builder(part.module, self, node)
        if builder.has_hooks(self, node):
            name, kind = _forward_hooks.around(builder, self, node)
            return Run(call(name, [part.node, *args], keywords), kind)
        return self.method_call(part, "forward", args, keywords, node)

    def method_call(
        self,
        part: Part,
        method: str,
        args: list[ast.expr],
        keywords: list[ast.keyword],
        node: ast.Call,
    ) -> Any:
        """A call of a method of a module, which is compiled with it."""
        builder = self.program.builder(part.module, self, node)
        if _marks.overloads_of(getattr(type(part.module), method, None)):
            kinds = [_kind(v) for v in self.arguments(node)]
            method = builder.chosen(method, kinds, self, node)
        kind = builder.compiled(method, self, node)
        return Run(call(ast.Attribute(part.node, method, ast.Load()), args, keywords), kind)

    def of_method(self, method: Method, node: ast.Call) -> Any:
        """A call of a method that is named."""
        part, function = method.part, method.function
        if isinstance(part.module, ModuleDict) and method.name in ("items", "keys", "values"):
            pairs = list(zip(part.module._modules, self.parts(part, node), strict=True))
            items: dict[str, list[Any]] = {
                "items": [Several([Known(k), p]) for k, p in pairs],
                "keys": [Known(k) for k, _ in pairs],
                "values": [p for _, p in pairs],
            }
            return Several(items[method.name])
        if method.name in _walks.WALKS:
            return _walks.walked(self, part, method.name, node)
        if _marks.mark_of(function) == _marks.IGNORE:
            raise self.fail(
                node,
                f"a call of '{method.name}', which @torch.jit.ignore leaves to Python; @torch.jit.unused "
                f"compiles to an error instead",
            )
        args, keywords = self.spelled(node)
        return self.method_call(part, method.name, args, keywords, node)

    # Values of the run

    def of_value(self, of: Of, node: ast.Call) -> Any:
        """A call of a method of a tensor, list, string or dictionary."""
        objects = self.program.objects_of(of.kind)
        if objects is not None:
            args, keywords = self.spelled(node)
            called = call(ast.Attribute(of.node, of.name, ast.Load()), args, keywords)
            return Run(called, objects.compiled(of.name, self, node))
        if of.name == "wait" and (of.kind is None or of.kind.startswith("Future[")):
            return _tasks.waited(self, Run(of.node, of.kind), node)
        if of.name == "backward" and of.kind in (None, "Tensor"):
            return _gradients.of_tensor(self, of, node)
        if of.kind in (None, "Tensor") and of.name in _TO and not (node.args or node.keywords):
            return Run(call(ast.Attribute(of.node, "to"), [ast.Constant(_TO[of.name])]), "Tensor")
        if of.kind in (None, "Tensor", "Optional[Tensor]"):
            known = is_operator(of.name) or of.name in _TENSOR_CASTS or of.name in WITHOUT_OPERATOR
        else:
            known = False
        plain = any(of.name in names for names in _values.METHODS.values())
        if not (known or (plain and not of.name.startswith("_"))):
            raise self.fail(
                node, f"'{of.kind or 'Tensor'}' object has no attribute or method '{of.name}'."
            )
        listed = of.kind == "Tensor" or of.name not in _OF_ITEMS
        values, named = self.given(node)
        last = _kind(values[-1]) if values else None
        self.refuse(_mismatches.of_new_item(of.kind, of.name, last), node)
        args, keywords = self.written(values, named, node, listed=listed)
        made = call(ast.Attribute(of.node, of.name, ast.Load()), args, keywords)
        if of.kind != "Tensor" and (of.kind is not None or plain or not known):
            return Run(made, of_dictionary(of))
        return Run(made, self._result(of.name, [Run(of.node, "Tensor"), *values], named))

    # What compiling knows

    def of_known_call(self, function: Any, node: ast.Call) -> Any:
        """A call of a function or class."""
        if isinstance(function, type) and _marks.mark_of(function) == _marks.IGNORE:
            raise self.fail(
                node, f"Cannot instantiate class '{function.__name__}' in a script function"
            )
        for special in (Calls._special, _gradients.called, _tasks.called, _made_of_classes.called):
            made = special(self, function, node)
            if made is not None:
                return made
        library = _spelling.library(function) or _spelling.written(function)
        if library is not None:
            name = _library_name(function) + self._asked_for(library, node)
            return self.of_function(_spelling.named(name) or library, node, name)
        operator = _spelling.operator(function)
        if operator is not None:
            values, named = self.given(node)
            made = call(_spelling.path(operator), *self.written(values, named, node))
            return Run(made, self._result(operator, values, named))
        if isinstance(function, type):
            return self._constructed(function, node)
        scripted = getattr(function, "_function", None)
        if scripted is not None and hasattr(scripted, "unit"):
            args, keywords = self.spelled(node)
            adoption = self.program.adoption(scripted.unit)
            return Run(
                call(adoption.name(scripted.name), args, keywords), adoption.result(scripted)
            )
        if isinstance(function, types.FunctionType):
            if _spelling._functional().get(id(function)):
                raise self.fail(
                    node, f"nn.functional.{function.__name__} isn't written as TorchScript"
                )
            return self.of_function(function, node, None)
        raise self.fail(
            node, f"Python builtin {function!r:.80} is currently not supported in Torchscript"
        )

    def _asked_for(self, function: Any, node: ast.Call) -> str:
        """What the name of the function has that gives the results that a call asks for."""
        given = dict(zip(inspect.signature(function).parameters, node.args, strict=False))
        given |= {k.arg: k.value for k in node.keywords if k.arg}
        asked = {n: self.visit(given[n]) for n in _FLAGS if n in given}
        return "".join(
            _FLAGS[n] for n, v in asked.items() if isinstance(v, Known) and v.value is True
        )

    def of_function(self, function: Any, node: ast.Call, public: str | None) -> Any:
        """A call of a function that is compiled."""
        marked = _marks.mark_of(function)
        if marked == _marks.IGNORE:
            raise self.fail(
                node,
                f"a call of '{function.__name__}', which @torch.jit.ignore leaves to Python; "
                f"@torch.jit.unused compiles to an error instead",
            )
        hints = inspect.signature(function).parameters
        names = list(hints)
        given = self.arguments(node)
        if len(given) > len(names):
            raise self.fail(node, f"{function.__name__}() takes {len(names)} arguments")
        values = dict(zip(names, given, strict=False))
        for k in node.keywords:
            value = self.visit(k.value)
            if k.arg == "out" and public and isinstance(value, Known) and value.value is None:
                continue
            if k.arg is None or k.arg not in hints:
                raise self.fail(node, f"{function.__name__}() has no argument '{k.arg}'")
            values[k.arg] = value
        fixed = {n: v.value for n, v in values.items() if is_member(v)}
        qualified, kind = self.program.function(function, public, self, node, fixed)
        if public is None:
            kinds = {n: _kind(v) for n, v in values.items()}
            self.refuse(_mismatches.of_call(function.__name__, hints, kinds, kind), node)
        fitted = {
            n: self._fitted(v, hints[n].annotation, node)
            for n, v in values.items()
            if n not in fixed
        }
        args = [fitted.pop(n) for n in names[: len(given)] if n in fitted]
        return Run(call(qualified, args, [ast.keyword(n, v) for n, v in fitted.items()]), kind)

    def _fitted(self, value: Any, annotation: Any, node: ast.AST) -> ast.expr:
        """An argument; a number for a list is a list of it, as `BroadcastingList` says."""
        text = str(annotation)
        number = value.value if _plain(value) else None
        if isinstance(number, int | float) and not isinstance(number, bool):
            if "list[int]" in text or "list[float]" in text:
                return self.constant([number], node)
            if text in ("float", "float | None"):
                return self.constant(float(number), node)
        kind = _kind(value) or ""
        wide = {"int": "list[int]", "float": "list[float]"}
        if wide.get(kind, "-") in text:
            return ast.List([self.node(value, node)], ast.Load())
        if kind.startswith("Optional[") and wide.get(kind[9:-1], "-") in text:
            alone, nothing = self.node(value, node), ast.Constant(None)
            there = ast.Compare(alone, [ast.IsNot()], [nothing])
            return ast.IfExp(there, ast.List([alone], ast.Load()), nothing)
        return self.node(as_list(value), node)

    def _special(self, function: Any, node: ast.Call) -> Any:
        """Functions that mean something to compiling itself."""
        from torchlike import jit

        if function is isinstance or function is jit.isinstance:
            return self._isinstance(node)
        if function is jit.annotate:
            kind = self.annotation(node.args[0])
            return Run(call("annotate", [_types.node_of(kind), self.run(node.args[1])]), kind)
        if function in (jit.is_scripting, torchlike.compiler.is_compiling, jit.is_tracing):
            return Known(function is jit.is_scripting)
        if function in _COPIES:
            return self._copied(function, node)
        if getattr(function, "__name__", "") == "_get_tracing_state":
            return Known(False)
        if function is warnings.warn:
            return Run(call("torch.warn", [self.run(node.args[0])]), "NoneType")
        if getattr(function, "__name__", "").startswith("has_torch_function"):
            return Known(False)
        if function in (hasattr, getattr) and len(node.args) >= 2:
            return self._attribute_call(function, node)
        if function in (enumerate, zip, len, range, tuple, list, reversed):
            found = self._of_several(function, node)
            if found is not None:
                return found
        if (
            getattr(function, "__module__", None) == "builtins"
            and getattr(function, "__name__", "") in _KEPT_CALLS
        ):
            return self._plain_call(function, node)
        return None

    def _copied(self, function: Any, node: ast.Call) -> Any:
        """A number as often as there are dimensions, or the list of them that it is already."""
        value = self.arguments(node)[0]
        kind = _kind(value) or ""
        if isinstance(value, Known):
            return Known(function(value.value))
        if kind in ("int", "float"):
            copies = [self.node(value, node)] * _COPIES[function]
            return Run(ast.List(copies, ast.Load()), f"List[{kind}]")
        return value

    def _plain_call(self, function: Any, node: ast.Call) -> Any:
        given = self.arguments(node)
        if (
            given
            and all(_plain(g) for g in given)
            and not node.keywords
            and function not in (print, range, list)
        ):
            try:
                return Known(_PLAIN_CALLS[function.__name__](*(g.value for g in given)))
            except Exception as e:
                raise self.fail(node, f"{type(e).__name__}: {e}") from None
        text = function.__name__
        itself = self.special(given[0], f"__{text}__", [], node) if len(given) == 1 else None
        if itself is not None:
            return itself
        args = [self.node(g, node) for g in given]
        if text == "print":
            return Run(call("print", args), "NoneType")
        if text == "reversed":
            # PyTorch's code has no such function.
            return Run(ast.Subscript(args[0], _BACKWARDS, ast.Load()), _kind(given[0]))
        kind = _PLAIN_RESULTS.get(text)
        if text in ("list", "sorted") and given:
            inner = _each_kind(_kind(given[0]))
            kind = f"List[{inner}]" if inner else None
        keywords = [ast.keyword(k.arg, self.run(k.value)) for k in node.keywords]
        return Run(call(text, args, keywords), kind)

    def _of_several(self, function: Any, node: ast.Call) -> Any:
        given = self.arguments(node)
        rows = [
            self.unrolled(g, node) if not isinstance(g, Known) or function is zip else None
            for g in given
        ]
        if function is len and given and isinstance(given[0], Part | Several):
            return Known(len(rows[0] or []))
        if function in (enumerate, reversed, tuple, list) and given and rows[0] is not None:
            start = given[1].value if len(given) > 1 and isinstance(given[1], Known) else 0
            items = rows[0]
            if function is enumerate:
                return Several([Several([Known(i + start), v]) for i, v in enumerate(items)])
            return Several(items[::-1] if function is reversed else items)
        if function is zip and rows and all(r is not None for r in rows):
            return Several(
                [Several(list(row)) for row in zip(*[r or [] for r in rows], strict=False)]
            )
        if function is range and given and all(_plain(g) for g in given):
            return None
        return None

    def _attribute_call(self, function: Any, node: ast.Call) -> Any:
        of, key = self.visit(node.args[0]), self.visit(node.args[1])
        if not isinstance(key, Known) or not isinstance(key.value, str):
            raise self.fail(node, f"{function.__name__}'s second argument must be a string literal")
        subject = of.module if isinstance(of, Part) else of.value if isinstance(of, Known) else None
        if subject is None:
            raise self.fail(node, f"{function.__name__} of a value of the run")
        if function is hasattr:
            return Known(hasattr(subject, key.value))
        if not hasattr(subject, key.value) and len(node.args) > 2:
            return self.visit(node.args[2])
        return (
            self.of_part(of, key.value, node)
            if isinstance(of, Part)
            else self.of_known(subject, key.value, node)
        )

    def _constructed(self, kind: type, node: ast.Call) -> Any:
        """A call of a class: a tuple with names, or a container."""
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            qualified = self.program.named(self, node)(kind)
            args, keywords = self.spelled(node)
            given = {*kind._fields[: len(args)], *(k.arg for k in keywords)}
            keywords += [
                ast.keyword(n, self.constant(v, node))
                for n, v in kind._field_defaults.items()  # type: ignore[attr-defined]
                if n not in given
            ]
            return Run(call(str(qualified), args, keywords), str(qualified))
        if kind is torchlike.device:
            args, keywords = self.spelled(node)
            return Run(call("torch.device", args, keywords), "Device")
        if kind is slice:
            return _made_of_classes.part_of_brackets(self, node)
        if isinstance(kind, tensortype):
            return _made_of_classes.legacy_tensor(self, kind, node)
        if kind in (dict, collections.OrderedDict):
            return _walks.dictionary(self, node)
        if kind in (int, float, bool, str, complex, list, tuple):
            return self._plain_call(kind, node)
        if issubclass(kind, Module):
            raise self.fail(node, "a module is made in compiled code")
        kind = CONTEXTS.get(kind, kind)
        if not may_be_compiled(kind):
            raise self.fail(
                node,
                f"the class '{kind.__name__}' is made in compiled code, which knows classes of the user that derive "
                "from no other, and tuples with names",
            )
        made = self.program.objects(kind, self, node)
        args, keywords = self.spelled(node)
        return Run(call(made.name, args, keywords), made.name)


def _library_name(function: Any) -> str:
    return str(_spelling._functional().get(id(function), function.__name__))
