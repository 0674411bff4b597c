"""Stand-ins for values: what is done with them becomes nodes of a graph."""

from __future__ import annotations

import collections
import copy
import dataclasses
import dis
import enum
import inspect
import operator
import types
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx import traceback as fx_traceback
from torchlike.fx._arguments import PLAIN
from torchlike.fx._codegen import magic_methods, reflectable_magic_methods
from torchlike.fx.node import Argument as Argument
from torchlike.fx.node import Node, base_types, map_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torchlike.fx.graph import Graph

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "MetaProxy",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

_HERE = (
    "/fx/proxy.py",
    "/fx/traceback.py",
    "/fx/_symbolic_trace.py",
    "/fx/_patching.py",
    "/nn/modules/module.py",
)


class Scope:
    """The module that is being traced: its path and class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """Inside, a scope is another module."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = (scope.module_path, scope.module_type)
        scope.module_path = current_scope.module_path
        scope.module_type = current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before


class TraceError(ValueError):
    """The program asks for what only a real value knows."""


class TracerBase:
    """Makes nodes of calls; what is special about a way of tracing is overridden."""

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: collections.OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Puts a node into the graph, with notes of where it comes from."""
        if kind == "call_function" and self.check_mutable_operations:
            from torchlike.fx.operator_schemas import check_for_mutable_operation

            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        scope = self.scope
        self.node_name_to_scope[node._name] = (scope.module_path, scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            fx_traceback._copy_current_meta(node)
        elif self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack.copy()
        if self.record_stack_traces and not node.stack_trace:
            text = fx_traceback._user_stack(_HERE, self._record_forward_stack_traces_only)
            if text:
                node.stack_trace = text
        return node

    def proxy(self, node: Node) -> Proxy:
        """The stand-in for a node's value."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node for a call whose arguments may hold stand-ins, and the stand-in for its value."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def _find_user_frame(self) -> types.FrameType | None:
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename.endswith(_HERE):
            frame = frame.f_back
        return frame

    def create_arg(self, a: Any) -> Any:
        """What stands in a node for a value of the traced program.

        Raises:
            NotImplementedError: if a graph cannot hold it.
        """
        kind = type(a)
        if kind in PLAIN:
            return a
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            return kind(*items) if hasattr(a, "_fields") else kind(items)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return self._dict_arg(a)
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if kind.__name__ in ("OpOverload", "OpOverloadPacket"):
            return a
        if dataclasses.is_dataclass(a):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", kind, (), fields)
        if isinstance(a, (*base_types, Node, enum.Enum)):
            return a
        raise NotImplementedError(f"argument of type: {kind}")

    def _dict_arg(self, a: dict[Any, Any]) -> dict[Any, Any]:
        made = {}
        for k, v in a.items():
            if type(k) is not str:
                k = self.create_arg(k)
                _no_nodes(k)
            made[k] = self.create_arg(v)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a value, which nobody knows; a tracer that does overrides this."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The items of a value, of which nobody knows how many there are."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
            "pytorch.org for a more detailed explanation of what types of control flow can be "
            "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
            "errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """What `**value` asks for."""
        return Attribute(obj, "keys")()


def _no_nodes(key: Any) -> None:
    def check(x: Any) -> Any:
        if isinstance(x, Node):
            raise RuntimeError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
            )
        return x

    map_aggregate(key, check)


class GraphAppendingTracer(TracerBase):
    """Adds to a graph what is done with a stand-in that was made by hand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.node_name_to_scope = {}


def assert_fn(x: Any) -> None:
    """What an `assert` of a stand-in becomes."""
    if not x:
        raise AssertionError("Assertion failed")


def _instruction(frame: types.FrameType) -> tuple[list[dis.Instruction], int]:
    """The instructions of a function, and which of them it is at."""
    found = list(dis.get_instructions(frame.f_code))
    return found, bisect_left([i.offset for i in found], frame.f_lasti)


class Proxy:
    """A stand-in for a value: calls of functions, methods and operators on it are recorded.

    It has no value: it cannot be asked for its truth, its length, or how many items it has, unless the number of
    items is clear from where they go (`a, b = proxy`).
    """

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        # copy and pickle ask for these on objects that have nothing yet, and the core whether it is a number
        if k in ("tracer", "node", "__setstate__", "__getstate__", "__index__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = Proxy.__new__(Proxy)
        made.__dict__.update((n, _copied(v, memo)) for n, v in self.__dict__.items())
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        code, at = _instruction(frame.f_back)
        if code[at].opname == "UNPACK_SEQUENCE":
            return (self[i] for i in range(code[at].argval))  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        caller = frame.f_back
        tracer = self.tracer
        if caller.f_code is torchlike._assert.__code__:
            # a call of `torch._assert`, under whatever name, is a node
            message = caller.f_locals["message"]
            tracer.create_proxy("call_function", torchlike._assert, (self, message), {})
            return True
        if tracer.trace_asserts and _is_assert(*_instruction(caller)):
            tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return tracer.to_bool(self)

    def keys(self) -> Any:
        """What `**proxy` asks for."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want "
            "this call to be recorded, please call torch.fx.wrap('len') at "
            "module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None
    ) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers: dict[TracerBase, None] = {}
        _find_tracers((args, kwargs) if kwargs else args, cls, tracers)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while "
                f"trying to trace operations {orig_method}"
            )
        tracer = next(iter(tracers))
        name = orig_method.__name__
        if _is_method(orig_method):
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy(
            "call_function",
            orig_method,
            args,
            kwargs,
            name=tracer.graph._target_to_str(orig_method),
        )


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy, or a shallow one of what cannot be copied deeply."""
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return copy.copy(value)


def _is_assert(code: list[dis.Instruction], at: int) -> bool:
    """True if a truth is asked for by an `assert`: what follows makes an AssertionError and raises it."""
    if code[at].opname in ("COMPARE_OP", "TO_BOOL"):
        at += 1  # these ask for the truth themselves since Python 3.13
    if not code[at].opname.startswith("POP_JUMP"):
        return False
    behind = [i for i in code[at + 1 : at + 12] if i.opname not in ("CACHE", "NOT_TAKEN")]
    raises = any(i.opname == "RAISE_VARARGS" for i in behind)
    first = behind[0] if behind else None
    return raises and first is not None and (
        first.opname == "LOAD_ASSERTION_ERROR" or first.argval is AssertionError
    )  # fmt: skip


def _find_tracers(a: Any, cls: type, found: dict[TracerBase, None]) -> None:
    if isinstance(a, cls):
        found[a.tracer] = None  # type: ignore[attr-defined]
    elif isinstance(a, list | tuple):
        for x in a:
            _find_tracers(x, cls, found)
    elif isinstance(a, dict):
        for x in a.values():
            _find_tracers(x, cls, found)


def _is_method(func: Any) -> bool:
    """True for methods of Tensor, and for what reads its attributes."""
    kind = type(func)
    if kind is types.BuiltinFunctionType:
        return False
    if kind is types.MethodDescriptorType:
        return True
    return torchlike.overrides.is_tensor_method_or_property(func)


class MetaProxy(Proxy):
    """A stand-in whose node also has a fake value, `meta["val"]`."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None
    ) -> MetaProxy:
        args, kwargs = args or (), kwargs or {}
        first = next((a for a in args if isinstance(a, MetaProxy)), None)
        if first is None:
            raise AssertionError("No MetaProxy found in arguments, but one is expected.")
        proxy = super().__torch_function__(orig_method, types, args, kwargs)
        values = [a.node.meta["val"] if isinstance(a, Proxy) else a for a in args]
        with first.fake_mode:
            proxy.node.meta["val"] = orig_method(*values, **kwargs)
        return MetaProxy(proxy.node, proxy.tracer, first.fake_mode)


class Attribute(Proxy):
    """An attribute of a stand-in: a call of it is a method call, any other use a `getattr`."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of the `getattr`, made when it is first needed."""
        if self._node is None:
            proxy = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = proxy.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A stand-in for a parameter, which knows its shape."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, torchlike.nn.Parameter):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The sizes."""
        return self.param.shape

    def size(self) -> Any:
        """The sizes."""
        return self.param.size()

    def dim(self) -> int:
        """The number of dimensions."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.param.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """The number of elements."""
        return self.param.nelement()


def _define_operators() -> None:
    def plain(name: str) -> Any:
        target = getattr(operator, name, None)

        def impl(*args: Any, **kwargs: Any) -> Any:
            return args[0].tracer.create_proxy("call_function", target, args, kwargs)

        return impl

    def reflected(name: str) -> Any:
        target = getattr(operator, name, None)

        def impl(self: Proxy, rhs: Any) -> Any:
            return self.tracer.create_proxy("call_function", target, (rhs, self), {})

        return impl

    for table, make, prefix in (
        (magic_methods, plain, ""),
        (reflectable_magic_methods, reflected, "r"),
    ):
        for name in table:
            method = f"__{prefix}{name.strip('_')}__"
            impl = make(name)
            impl.__name__ = impl.__qualname__ = method
            setattr(Proxy, method, impl)


_define_operators()
