"""Recording what a module or function does with stand-ins for its arguments."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import math
import threading
import types
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._arguments import PLAIN
from torchlike.fx._patching import (  # noqa: F401
    _autowrap_check,
    _create_wrapped_func,
    _create_wrapped_method,
    _find_proxy,
    _maybe_revert_all_patches,
    _new_patcher,
    _patch_wrapped_functions,
    _Patcher,
    _wrapped_fns_to_patch,
    _wrapped_methods_to_patch,
    wrap,
)
from torchlike.fx._placeholders import (  # noqa: F401
    HAS_VARSTUFF,
    PH,
    PHBase,
    PHWithMeta,
    Placeholders,
    _annotations,
    _patch_function,
    _transfer_attrs,
)
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.proxy import ParameterProxy, Proxy, Scope
from torchlike.nn import Module, Parameter
from torchlike.nn.modules.container import Sequential
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

_orig_module_call: Callable[..., Any] = Module.__call__
_orig_module_getattr: Callable[..., Any] = Module.__getattribute__
_proxyable_classes: dict[type, None] = {}
_is_fx_tracing_flag = False

_CONSTANTS = (torchlike.Tensor, pytree.TreeSpec)
_LEAVES = ("torchlike.nn", "torchlike.ao.nn", "torch.nn", "torch.ao.nn")


def is_fx_tracing() -> bool:
    """True while a program is being traced."""
    return _is_fx_tracing_flag


is_fx_symbolic_tracing = is_fx_tracing


class ProxyableClassMeta(type):
    """A metaclass: making an object with stand-ins becomes a node."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made: Any = cls.__new__(cls)  # type: ignore[call-overload]
        if is_fx_tracing():
            found = _find_proxy(args, kwargs)
            if found is not None:
                return found.tracer.create_proxy("call_function", cls, args, kwargs)
        cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
        return made


class Tracer(Placeholders):
    """Traces modules and functions; overriding its methods says how.

    Args:
        autowrap_modules: modules whose functions become nodes instead of being traced.
        autowrap_functions: functions for which the same is true.
        param_shapes_constant: shapes of parameters are numbers, not nodes.
    """

    _qualname_counter: dict[str, int] = collections.defaultdict(int)
    root: Module
    tensor_attrs: dict[Any, str]

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids: set[int] = {
            id(value)
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        }
        self._autowrap_function_ids.update(map(id, autowrap_functions))
        self._autowrap_search: list[types.ModuleType] = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name: str = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self._paths: dict[str, dict[Any, str]] = {}

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for an attribute of the root that is free."""
        name = f"{prefix}0"
        if not hasattr(self.root, name):
            self._qualname_counter[prefix] = 0
            return name
        count = self._qualname_counter[prefix]
        while hasattr(self.root, f"{prefix}{count}"):
            count += 1
        self._qualname_counter[prefix] = count + 1
        return f"{prefix}{count}"

    def _path(self, kind: str, value: Any) -> str | None:
        """Where a parameter, buffer or module stands below the root; looked for again if it is new."""
        known = self._paths.get(kind, {}).get(value)
        if known is None:
            found: dict[Any, str] = {}
            for name, item in getattr(self.root, f"named_{kind}")():
                found.setdefault(item, name)
            self._paths[kind] = found
            known = found.get(value)
        return known

    def create_arg(self, a: Any) -> Any:
        """What stands in a node for a value; tensors and modules are fetched from the root."""
        kind = type(a)
        if kind is Proxy:
            return a.node
        if kind in PLAIN:
            return a
        if kind is tuple or kind is list:
            return kind([self.create_arg(x) for x in a])
        if kind is dict and not a:
            return {}
        if isinstance(a, torchlike.Tensor):
            return self._tensor_arg(a)
        if isinstance(a, Module):
            path = self._path("modules", a)
            if path is not None:
                return self.create_node("get_attr", path, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            items = tuple(self.create_arg(x) for x in a)
            return self.create_node("call_function", kind, items, {})
        if isinstance(a, pytree.TreeSpec):
            return self._constant(a, "_tree_spec_constant")
        if kind in _proxyable_classes:
            name = self.get_fresh_qualname(f"_{kind.__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _tensor_arg(self, a: Any) -> Any:
        if isinstance(a, Parameter):
            path = self._path("parameters", a)
            if path is None:
                raise NameError("parameter is not a member of this module")
            return self.create_node("get_attr", path, (), {})
        path = self._path("buffers", a)
        if path is not None:
            return self.create_node("get_attr", path, (), {})
        return self._constant(a, "_tensor_constant")

    def _constant(self, a: Any, prefix: str) -> Any:
        name = self.tensor_attrs.get(a)
        if name is None:
            name = self.tensor_attrs[a] = self.get_fresh_qualname(prefix)
            setattr(self.root, name, a)
        return self.create_node("get_attr", name, (), {})

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True if calls of this module become nodes instead of being traced."""
        return m.__module__.startswith(_LEAVES) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The path of a module below the root.

        Raises:
            NameError: if it is not there.
        """
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, item in self.root.named_modules():
            if item is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call of a module in the traced program: a node for a leaf, otherwise what it does."""
        path = self.path_of_module(m)
        scope, kind = self.scope, type(m)
        before = scope.module_path, scope.module_type
        scope.module_path, scope.module_type = path, kind
        calls = self.num_calls.get(path, 0)
        self.module_stack[f"{path}@{calls}" if calls else path] = (path, kind)
        self.num_calls[path] = calls + 1
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack.popitem(last=True)
            scope.module_path, scope.module_type = before

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What the traced program gets for a parameter, buffer or submodule of a module."""
        kind = None
        if isinstance(attr_val, Parameter):
            kind = "parameters"
        elif self.proxy_buffer_attributes and isinstance(attr_val, torchlike.Tensor):
            kind = "buffers"
        path = self._path(kind, attr_val) if kind is not None else None
        if path is None:
            return attr_val
        proxy = parameter_proxy_cache.get(path)
        if proxy is None:
            options: dict[str, Any] = {}
            if "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters:
                options["proxy_factory_fn"] = (
                    (lambda node: ParameterProxy(self, node, path, attr_val))
                    if self.param_shapes_constant and kind == "parameters"
                    else None
                )
            proxy = self.create_proxy("get_attr", path, (), {}, **options)
            parameter_proxy_cache[path] = proxy
        return proxy

    # tracing

    def trace(
        self,
        root: Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """The graph of what a module or function does.

        Args:
            concrete_args: values for some arguments, which become part of the program; `PH` in them stands for inputs.
        """
        global _is_fx_tracing_flag
        before, _is_fx_tracing_flag = _is_fx_tracing_flag, True
        self._paths = {}
        try:
            fn = self._start(root)
            self.graph = Graph(tracer_cls=type(self))
            if hasattr(fn, "__code__"):
                code = fn.__code__
                self.graph._co_fields = {
                    "co_name": code.co_name,
                    "co_filename": code.co_filename,
                    "co_firstlineno": code.co_firstlineno,
                }
            self.tensor_attrs = {}
            _collect_constants(self.root, [], self.tensor_attrs)
            if not isinstance(fn, types.FunctionType):
                raise AssertionError(f"Expected FunctionType, got {type(fn)}")
            outer = fn.__globals__
            fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            with _new_patcher() as patcher:
                self._patch(patcher, outer)
                returns = _annotations(inspect.unwrap(fn)).get("return", None)
                result = (self.create_arg(fn(*args)),)
                self.create_node("output", "output", result, {}, type_expr=returns)
            self.submodule_paths = None
        finally:
            _is_fx_tracing_flag = before
            self._paths = {}
        return self.graph

    def _start(self, root: Any) -> Any:
        """Notes the root; the function to trace."""
        if not isinstance(root, Module):
            self.root = Module()
            return root
        self.root = root
        if not hasattr(type(root), self.traced_func_name):
            raise AssertionError(
                f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}"
            )
        self.root_module_name = root._get_name()
        self.submodule_paths = {mod: name for name, mod in root.named_modules()}
        return getattr(type(root), self.traced_func_name)

    def _patch(self, patcher: _Patcher, outer: dict[str, Any]) -> None:
        """Replaces calls and attributes of modules, in this thread, and what is to be wrapped."""
        cache: dict[str, Proxy] = {}
        thread = threading.get_ident()
        ids = self._autowrap_function_ids
        all_kinds = self.proxy_buffer_attributes or type(self).getattr is not Tracer.getattr
        shown: Any = (torchlike.Tensor, Module) if all_kinds else torchlike.Tensor
        plain = _orig_module_getattr
        visited: set[type] = set()

        def read(mod: Module, attr: str) -> Any:
            value = plain(mod, attr)
            if not isinstance(value, shown) or threading.get_ident() != thread:
                return value
            return self.getattr(attr, value, cache) if attr in plain(mod, "_kinds") else value

        @functools.wraps(_orig_module_call)
        def call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return _orig_module_call(mod, *args, **kwargs)

            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(mod, *args, **kwargs)

            if type(mod) not in visited:
                visited.add(type(mod))
                inner = getattr(plain(mod, "forward"), "__globals__", {})
                _autowrap_check(patcher, inner, ids)
            return self.call_module(mod, forward, args, kwargs)

        patcher.patch_method(Module, "__getattribute__", read, deduplicate=False)
        patcher.patch_method(Module, "__call__", call, deduplicate=False)
        _patch_wrapped_functions(patcher)
        _autowrap_check(patcher, outer, ids)
        for module in self._autowrap_search:
            _autowrap_check(patcher, module.__dict__, ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = Tracer.__new__(Tracer)
        for name, value in self.__dict__.items():
            shallow = name == "_autowrap_search"
            made.__dict__[name] = copy.copy(value) if shallow else copy.deepcopy(value, memo)
        return made


def _collect_constants(m: Module, path: list[str], found: dict[Any, str]) -> None:
    """Tensors that are plain attributes of modules, and structures of trees, with their paths."""
    state = m._state_
    kinds = state["_kinds"]
    for name, value in state.items():
        if isinstance(value, _CONSTANTS) and kinds.get(name) != "parameter":
            found[value] = ".".join([*path, name])
    for name, kind in kinds.items():
        if kind == "module" and state[name] is not None:
            _collect_constants(state[name], [*path, name], found)


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A module that does what a module or function does, as a graph that can be rewritten.

    Args:
        concrete_args: values for some arguments, which become part of the program.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)
