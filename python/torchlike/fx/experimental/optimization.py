"""Layers that can be one: convolutions and normalisations, and dropout taken out."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torchlike import nn as _nn
from torchlike.fx._symbolic_trace import Tracer, symbolic_trace
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.interpreter import Transformer
from torchlike.fx.node import Node
from torchlike.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "matches_module_pattern",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
]

# a table of layers that are imported when they are asked for, of which type checkers know nothing
nn: Any = _nn

_PAIRS: list[tuple[type, type]] = [
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
    (nn.Linear, nn.BatchNorm1d),
]


def _parent_name(target: str) -> tuple[str, str]:
    """The path of a module's parent, and its name there."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(
    pattern: Iterable[type], node: Node, modules: dict[str, _nn.Module]
) -> bool:
    """True if a node calls a module of the second class with what one of the first gives."""
    if not node.args:
        return False
    return all(
        isinstance(n, Node)
        and n.op == "call_module"
        and n.target in modules
        and type(modules[n.target]) is kind
        for kind, n in zip(pattern, (node.args[0], node), strict=False)
    )


def replace_node_module(node: Node, modules: dict[str, _nn.Module], new_module: _nn.Module) -> None:
    """Puts another module in the place of the one that a node calls."""
    parent, name = _parent_name(node.target)
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: _nn.Module, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """The model with normalisations made part of the layers before them, for evaluation.

    Args:
        inplace: the layers of the model itself change.
        no_trace: the model is a graph module, whose graph is taken.
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for pattern in _PAIRS:
        for node in graph.nodes:
            if not matches_module_pattern(pattern, node, modules):
                continue
            layer: Any = node.args[0]
            norm: Any = modules[node.target]
            if len(layer.users) > 1 or not norm.track_running_stats:
                continue
            join: Any = fuse_linear_bn_eval if pattern[0] is nn.Linear else fuse_conv_bn_eval
            replace_node_module(layer, modules, join(modules[layer.target], norm))
            node.replace_all_uses_with(layer)
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: _nn.Module) -> GraphModule:
    """The model without its dropout layers."""

    class Remover(Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return Remover(symbolic_trace(model)).transform()


def extract_subgraph(
    orig_module: _nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]
) -> GraphModule:
    """A module of some nodes of a graph."""
    graph = Graph()
    env = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        env[node] = graph.node_copy(node, lambda x: env[x])
    graph.output([env[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


class UnionFind:
    """Groups of numbers that can be joined."""

    def __init__(self, n: int) -> None:
        self.parent: list[int | None] = [None] * n
        self.size: list[int] = [0] * n

    def make_set(self, v: int) -> None:
        """A group of one."""
        self.parent[v] = v
        self.size[v] = 1

    def find(self, v: int) -> int:
        """The number that stands for the group of one."""
        parent = self.parent[v]
        assert parent is not None
        while parent != v:
            above = self.parent[parent]
            assert above is not None
            self.parent[v] = above
            v, parent = parent, above
        return v

    def join(self, a: int, b: int) -> int | None:
        """Makes two groups one."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        if self.size[a] < self.size[b]:
            a, b = b, a
        self.parent[b] = a
        self.size[a] += self.size[b]
        return None


def optimize_for_inference(
    model: _nn.Module, pass_config: dict[str, Any] | None = None, tracer: type[Tracer] = Tracer
) -> _nn.Module:
    """The model for evaluation: normalisations joined, dropout taken out.

    Args:
        pass_config: `conv_bn_fuse` and `remove_dropout` switch these off; `mkldnn_layout_optimize` has to be off, as
            there is no such layout.

    Raises:
        RuntimeError: for an option that does not exist.
        NotImplementedError: if the layout is asked for.
    """
    config = {"conv_bn_fuse": True, "remove_dropout": True, "mkldnn_layout_optimize": False}
    for name, value in (pass_config or {}).items():
        if name not in config:
            raise RuntimeError(f"optimize_for_inference: there is no pass {name!r}")
        config[name] = bool(value)
    if config["mkldnn_layout_optimize"]:
        raise NotImplementedError("optimize_for_inference: mkldnn_layout_optimize is not supported")
    if config["conv_bn_fuse"]:
        model = fuse(model)
    if config["remove_dropout"]:
        model = remove_dropout(model)
    root: _nn.Module = copy.deepcopy(model)
    return GraphModule(root, tracer().trace(root))
