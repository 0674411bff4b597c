"""A graph split into modules by tags on its nodes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node, map_arg
from torchlike.fx.passes.utils.common import HolderModule, lift_subgraph_as_module
from torchlike.fx.proxy import Proxy
from torchlike.nn.modules.container import ModuleList

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """What stands at a path below an object; None if nothing does."""
    for layer in name.split("."):
        if isinstance(obj, ModuleList):
            obj = obj._modules.get(layer)
        else:
            obj = getattr(obj, layer, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Puts a value at a path below an object."""
    *path, last = attr.split(".")
    for layer in path:
        obj = getattr(obj, layer)
    setattr(obj, last, value)


@dataclass
class Component:
    """One of the modules while the graph is split."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


class _ByTags:
    """The state of one split."""

    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm = gm
        self.components = [Component(Graph(), i, f"{tag}") for i, tag in enumerate(tags)]
        self.by_tag = dict(zip(tags, self.components, strict=True))
        self.of: dict[Node, Component] = {}
        self.copies: dict[Node, Node] = {}
        self.used: dict[Node, None] = {}
        self.main = Graph()
        self.env: dict[Node, Node] = {}

    def remapped(self, comp: Component, x: Node) -> Node:
        """What stands in a module for a node of the whole."""
        if x.op == "get_attr":
            if x not in comp.getattr_maps:
                made = comp.graph.get_attr(x.target, type_expr=x.type)
                made.meta = copy.copy(x.meta)
                comp.getattr_maps[x] = made
            return comp.getattr_maps[x]
        if x.op != "placeholder" and self.of[x] is comp:
            return self.copies[x]
        if x not in comp.orig_inputs:
            comp.orig_inputs.append(x)
            holder = comp.graph.placeholder(x.name, type_expr=x.type)
            holder.meta = copy.copy(x.meta)
            comp.input_placeholders.append(holder)
            self.used[x] = None
        return comp.input_placeholders[comp.orig_inputs.index(x)]

    def place(self, node: Node) -> None:
        """Puts a call into its module."""
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        comp = self.by_tag[node.tag]
        self.of[node] = comp
        before = [self.of[x] for x in node.all_input_nodes if x in self.of and x is not node]
        last = max((c.order for c in before), default=0)
        if comp.order < last:
            raise AssertionError(
                f"Component {comp.name} order must be >= max of its upstream components, "
                f"order={comp.order} and max={last}"
            )
        made: Any = comp.graph.node_copy(node, lambda x: self.remapped(comp, x))
        made.tag = node.tag
        self.copies[node] = made

    def finish(self, comp: Component, return_tuple: bool) -> dict[str, str]:
        """Ends a module, and puts a call of it into the graph of calls."""
        outs = tuple(self.copies[n] for n in comp.orig_outputs)
        alone = len(outs) == 1 and not return_tuple
        comp.graph.output(outs[0] if alone else outs)
        comp.gm, paths = lift_subgraph_as_module(self.gm, comp.graph, comp_name=comp.name)
        args = tuple(self.env[n] for n in comp.orig_inputs)
        call = self.main.call_module(comp.name, args=args, kwargs=None)
        if alone:
            self.env[comp.orig_outputs[0]] = call
        else:
            proxy: Any = Proxy(call)
            for i, old in enumerate(comp.orig_outputs):
                self.env[old] = proxy[i].node
        return paths


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """A module that calls the parts of another one, which are named by the attribute `tag` of nodes.

    Args:
        gm: what is split.
        tags: the parts in order; none may need a later one.
        return_fqn_mapping: gives the old paths of the parts' state, too.
        return_tuple: parts that return one value return a tuple, too.
        GraphModuleCls: the class of the result.
    """
    split = _ByTags(gm, tags)
    output: Node | None = None
    for node in gm.graph.nodes:
        if node.op == "output":
            if output is not None:
                raise RuntimeError("Multiple output nodes in graph!")
            output = node
        elif node.op == "placeholder":
            split.env[node] = split.main.placeholder(node.name, type_expr=node.type)
            split.env[node].meta = copy.copy(node.meta)
        elif node.op != "get_attr":
            split.place(node)
    if output is None:
        raise RuntimeError("Graph had no output node!")
    fetched = [n for n in output.all_input_nodes if n.op == "get_attr"]
    for node in output.all_input_nodes:
        if node.op == "get_attr":
            split.env[node] = split.main.get_attr(node.name, type_expr=node.type)
        else:
            split.used[node] = None
    for node in split.used:
        if node.op != "placeholder":
            split.of[node].orig_outputs.append(node)
    paths: dict[str, str] = {}
    for comp in split.components:
        paths.update(split.finish(comp, return_tuple))
    split.main.output(map_arg(output.args[0], lambda n: split.env[n]))
    root = HolderModule({comp.name: comp.gm for comp in split.components})
    split.main._codegen = gm.graph._codegen
    for node in fetched:
        setattr(root, node.name, getattr_recursive(gm, node.target))
    result = GraphModuleCls(root, split.main)
    return (result, paths) if return_fqn_mapping else result
