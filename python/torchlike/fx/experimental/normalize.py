"""Calls with their arguments in the form of the signature."""

from __future__ import annotations

from typing import Any

from torchlike.fx.interpreter import Transformer
from torchlike.fx.node import Node, map_aggregate
from torchlike.fx.operator_schemas import create_type_hint, normalize_function, normalize_module
from torchlike.fx.proxy import Proxy


class NormalizeArgs(Transformer):
    """Gives arguments of functions and layers their names and defaults, as far as signatures are known.

    Args:
        normalize_to_only_use_kwargs: all arguments get names.
    """

    def __init__(self, module: Any, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        """The node in the new graph."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def kind(arg: Any) -> Any:
            return arg.meta.get("type") if isinstance(arg, Node) else type(arg)

        if n.op == "call_function":
            arg_types = map_aggregate(n.args, kind)
            kwarg_types = {k: create_type_hint(map_aggregate(v, kind)) for k, v in n.kwargs.items()}
            out = self._function(
                n, args, kwargs, tuple(map(create_type_hint, arg_types)), kwarg_types
            )
        else:
            out = super().run_node(n)
        if n.op != "output":
            self.node_map[out] = n
            out.node.meta = n.meta
            out.node.type = n.type
        return out

    def _function(self, n: Node, args: Any, kwargs: Any, arg_types: Any, kwarg_types: Any) -> Any:
        found = normalize_function(
            n.target, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs
        )
        if found is not None:
            args, kwargs = found
        return self.tracer.create_proxy("call_function", n.target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module, in the new graph."""
        only = self.normalize_to_only_use_kwargs
        found = normalize_module(self.module, target, args, kwargs, only)
        if found is not None:
            args, kwargs = found
        return super().call_module(target, args, kwargs)
