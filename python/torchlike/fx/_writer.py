"""Writes the body of a graph's function, node after node."""

from __future__ import annotations

import enum
import functools
import os
import re
import types
import typing
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx import _names
from torchlike.fx._arguments import PLAIN
from torchlike.fx._codegen import (
    CodeGen,
    PythonCode,
    _format_target,
    _parse_stack_trace,
    call_fitting,
    inplace_methods,
    magic_methods,
)
from torchlike.fx._names import _get_qualified_name, _is_from_torch, _Namespace, _type_repr
from torchlike.fx.node import Node, _value_of, dtype_abbreviation, shape_text
from torchlike.fx.tensor_type import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_COUNTER = re.compile(r"# COUNTER: (\d+)")
_COLORS = {"red": "31", "blue": "34", "dim": "2", "dim_blue": "2m\033[34", "dim_green": "2m\033[32"}
_GENERIC = {list: typing.List, dict: typing.Dict, tuple: typing.Tuple}  # noqa: UP006
_GENERIC |= {set: typing.Set, frozenset: typing.FrozenSet}  # noqa: UP006


@functools.lru_cache(maxsize=256)
def _operator_text(target: Any) -> tuple[str | None, bool]:
    """The pattern of an operator, and whether it writes its first operand."""
    if getattr(target, "__module__", "") != "_operator":
        return None, False
    name = target.__name__
    if name in magic_methods:
        return magic_methods[name], False
    return inplace_methods.get(name), True


class Writer:
    """The source of one function while it is written."""

    def __init__(
        self,
        codegen: CodeGen,
        root_module: str,
        namespace: _Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> None:
        self.codegen = codegen
        self.root = root_module
        self.namespace = namespace
        self.names = namespace._obj_to_name
        self.verbose = verbose
        self.stride = include_stride or os.environ.get("FX_GRAPH_SHOW_STRIDE") == "1"
        self.device = include_device or os.environ.get("FX_GRAPH_SHOW_DEVICE") == "1"
        self.colored = colored
        self.expanded = expanded_def
        self.record = record_func
        self.extra = additional_meta or []
        self.free_vars: list[str] = []
        self.returns = ""
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.summary: str | None = None
        for name, (_, obj) in _names._custom_builtins.items():
            self.globals[namespace.create_name(name, obj)] = obj

    def paint(self, color: str, text: str) -> str:
        """The text in a color, if colors are wanted."""
        return f"\033[{_COLORS[color]}m{text}\033[0m" if self.colored else text

    # names of what is outside of the graph

    def add_global(self, hint: str, obj: Any) -> str:
        """The name by which the source reaches an object."""
        if obj is not torchlike.device and _is_from_torch(obj):
            return _get_qualified_name(obj)
        name = self.namespace.create_name(hint, obj)
        if self.globals.setdefault(name, obj) is not obj and self.globals[name] != obj:
            raise AssertionError(f"Global name {name} already assigned to different object")
        return name

    def type_text(self, o: Any) -> str:
        """A type as an annotation, whose parts are reached by names of the source."""
        if o == ():
            return "()"
        name = _type_repr(o)
        if isinstance(o, types.UnionType):
            return "|".join(map(self.type_text, typing.get_args(o)))
        origin = getattr(o, "__origin__", None)
        if origin is None:
            return self.add_global(name, o)
        if isinstance(o, typing._GenericAlias):  # type: ignore[attr-defined]
            origin = _GENERIC.get(origin, origin)
        base = self.add_global(_type_repr(origin), origin)
        inner = o.dims if isinstance(o, TensorType) else typing.get_args(o)
        return f"{base}[{','.join(map(self.type_text, inner))}]" if inner else base

    def text(self, arg: Any) -> str:
        """An argument as an expression."""
        kind = type(arg)
        if kind is Node:
            name = self.names.get(arg)
            return self.namespace.create_name(arg._name, arg) if name is None else name
        if kind in PLAIN:
            return self.paint("blue", repr(arg)) if self.colored else repr(arg)
        if isinstance(arg, Node):
            return self.namespace.create_name(arg._name, arg)
        if isinstance(arg, tuple):
            if hasattr(arg, "_make"):
                return f"{self.add_global(_get_qualified_name(kind), kind)}{tuple(arg)!r}"
            items = [self.text(a) for a in arg]
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        if isinstance(arg, list):
            return f"[{', '.join([self.text(a) for a in arg])}]"
        if isinstance(arg, slice):
            return f"slice({self.text(arg.start)}, {self.text(arg.stop)}, {self.text(arg.step)})"
        if kind.__name__ in ("OpOverload", "OpOverloadPacket", "HigherOrderOperator"):
            return self.add_global(_get_qualified_name(arg), arg)
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(kind.__name__, kind)}.{arg.name}"
        if isinstance(arg, torchlike.Tensor):
            dtype = str(arg.dtype).rpartition(".")[2]
            return f"{_names._ROOT}.Tensor(size={list(arg.size())}, dtype={dtype})"
        return self.paint("blue", repr(arg))

    def arguments(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        """What stands between the parentheses of a call."""
        texts = [self.text(a) for a in args]
        if kwargs:
            texts += [f"{k} = {self.text(v)}" for k, v in kwargs.items()]
        return ", ".join(texts)

    # nodes

    def function_call(self, node: Node, kind: str) -> str:
        """The statement of a `call_function`."""
        args = node._args
        pattern, writes = _operator_text(node.target)
        name = self.text(node)
        if pattern is not None:
            call = pattern.format(*[self.text(a) for a in args])
            return (
                f"{call};  {name}{kind} = {self.text(args[0])}"
                if writes
                else f"{name}{kind} = {call}"
            )
        target = self.add_global(_get_qualified_name(node.target), node.target)
        attribute = args[1] if target == "getattr" and len(args) == 2 else None
        if isinstance(attribute, str) and attribute.isidentifier():
            return f"{name}{kind} = {_format_target(self.text(args[0]), attribute)}"
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(target)
        return f"{name}{kind} = {target}({self.arguments(args, node._kwargs)})"

    def statement(self, node: Node) -> str:
        """The line of a node; placeholders only have one where their name is taken."""
        op = node.op
        kind = "" if node.type is None else f" : {self.type_text(node.type)}"
        if self.verbose:
            kind = self.value_text(node) or kind
        if op == "call_function":
            return self.function_call(node, kind)
        if op == "call_module":
            call = self.arguments(node._args, node._kwargs)
            name = self.text(node)
            return f"{name}{kind} = {_format_target(self.root, node.target)}({call})"
        if op == "call_method":
            owner = _format_target(self.text(node._args[0]), node.target)
            call = self.arguments(node._args[1:], node._kwargs)
            return f"{self.text(node)}{kind} = {owner}({call})"
        if op == "get_attr":
            return f"{self.text(node)}{kind} = {_format_target(self.root, node.target)}"
        if op == "placeholder":
            return self.placeholder(node, kind)
        if op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_text(node.type)}"
            descs = node.meta.get("desc") if self.expanded else None
            return call_fitting(
                self.codegen.generate_output, node._args[0], descs=descs, repr_fn=self.text
            )
        raise NotImplementedError(f"node: {op} {node.target}")

    def placeholder(self, node: Node, kind: str) -> str:
        """Notes an argument of the function."""
        default = f" = {self.text(node._args[0])}" if node._args else ""
        comment = ""
        if self.expanded and node.meta.get("desc") is not None:
            comment = f"  # {node.meta['desc']}"
        self.free_vars.append(f"{node.target}{kind}{default}{comment}")
        raw, name = node.target.replace("*", ""), self.text(node)
        return "" if raw == name else f"{name} = {raw}"

    def value_text(self, node: Node) -> str:
        """What a pass noted of the value, as an annotation."""
        from torchlike.fx.passes.shape_prop import TensorMetadata

        value = _value_of(node)
        if isinstance(value, TensorMetadata):
            return f': "{dtype_abbreviation(value.dtype)}{shape_text(value.shape)}"'
        if not isinstance(value, torchlike.Tensor):
            return ""
        core = self.paint("red", dtype_abbreviation(value.dtype))
        core += self.paint("blue", shape_text(value.shape))
        if self.stride:
            core += self.paint("dim_blue", shape_text(value.stride()))
        if self.device:
            core += self.paint("dim_green", str(value.device))
        name = type(value).__name__
        return f': "{core}"' if name in ("Tensor", "FakeTensor") else f': "{name}({core})"'

    def origin(self, node: Node) -> str:
        """A comment that says where a node comes from, unless the last one says the same."""
        if node.op in ("placeholder", "output"):
            return ""
        parts = [f"{key}: {node.meta[key]}" for key in self.extra if key in node.meta]
        head = f"# {', '.join(parts)} " if parts else ""
        notes = {
            k: str(v)[:40] + "..." if len(str(v)) > 40 else v
            for k, v in node.meta.get("custom", {}).items()
        }
        if notes:
            head_notes = f" Annotation: {notes}"
        else:
            head_notes = ""
        place = _parse_stack_trace(node.stack_trace) if node.stack_trace else None
        where = place.get_summary_str() if place else "No stacktrace found for following nodes"
        text = "\n" + self.paint("dim", f"{head}#{head_notes} {where}") + "\n"
        if text == self.summary:
            return ""
        self.summary = text
        return text

    # the whole

    def body(self, nodes: Any) -> list[tuple[int | None, str]]:
        """The text of each node, with its number."""
        nodes = list(nodes)
        dying = _last_uses(nodes)
        found: list[tuple[int | None, str]] = []
        for i, node in enumerate(nodes):
            if self.verbose:
                origin = self.origin(node)
                if origin:
                    found.append((i - 1 if i else None, origin))
            line = self.statement(node)
            op = node.op
            if op == "placeholder":
                if line:
                    found.append((i, line + "\n"))
                continue
            gone = dying.get(node)
            if op != "output" and not node.users:
                gone = [*(gone or ()), node]
            if gone and op != "output":
                released = " = ".join([*map(self.text, gone), "None"])
                line += ";  " + self.paint("dim", released)
            if self.record and op in ("call_function", "call_method", "call_module"):
                line = self.recorded(i, line)
            found.append((i, line + "\n"))
        return found

    def recorded(self, i: int, line: str) -> str:
        """A statement inside of a range that the profiler shows."""
        name = f"{_names._ROOT}.autograd.profiler.record_function"
        return f"with {name}('## {i} ##'):\n    {line}"

    def write(self, nodes: Any) -> PythonCode:
        """The function."""
        show = self.text
        saved = [(n, n._repr_fn) for n in nodes]
        for node, _ in saved:
            node._repr_fn = show
        try:
            return self._write(nodes)
        finally:
            for node, before in saved:
                node._repr_fn = before

    def _write(self, nodes: Any) -> PythonCode:
        pieces = self.body(nodes)
        wraps = ""
        if self.wrapped:
            wrap = self.add_global("wrap", torchlike.fx.wrap)
            wraps = "\n".join(f'{wrap}("{name}")' for name in self.wrapped)
        transform = self.codegen._body_transformer
        if transform is not None:
            pieces = _transformed(transform, pieces)
        for name, value in self.codegen.additional_globals():
            self.add_global(name, value)
        head = call_fitting(
            self.codegen.gen_fn_def, self.free_vars, self.returns, expanded_def=self.expanded
        )
        first = head.count("\n") + 1
        numbers: dict[int, int | None] = {}
        lines: list[str] = []
        for at, text in pieces or [(None, "pass\n")]:
            for line in text[:-1].split("\n"):
                numbers[len(lines) + first] = at
                lines.append(line)
        numbers[len(lines) + first] = pieces[-1][0] if pieces else None
        while lines and not lines[0]:
            del lines[0]
        lines.append("")
        body = "\n".join(["    " + line for line in lines])
        source = f"\n{wraps}\n\n{head}\n{body}"
        return PythonCode(source, self.globals, numbers, wraps.count("\n") + 4)


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each node the values that nobody needs after it."""
    seen: set[Node] = set()
    dying: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        fresh = [n for n in node._input_nodes if n not in seen]
        if fresh:
            seen.update(fresh)
            dying[node] = fresh
    return dying


def _transformed(
    transform: Callable[[list[str]], list[str]], pieces: list[tuple[int | None, str]]
) -> list[tuple[int | None, str]]:
    """The body after a user's function changed it; comments say which node a line is of."""
    body: list[str] = []
    for at, text in pieces:
        if at is not None:
            body.append(f"# COUNTER: {at}\n")
        body.append(text)
    found: list[tuple[int | None, str]] = []
    current = None
    for line in "".join(transform(body)).split("\n"):
        counter = _COUNTER.search(line)
        if counter is not None:
            current = int(counter.group(1))
        else:
            found.append((current, line + "\n"))
    while found and found[-1][1] == "\n":
        found.pop()
    return found
