"""A graph split into modules that call each other's results."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node, map_arg
from torchlike.fx.proxy import Proxy
from torchlike.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Partition", "split_module"]


class Partition:
    """One of the modules while the graph is split."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n"
            f" nodes: {self.node_names},\n"
            f" inputs: {self.inputs},\n"
            f" outputs: {self.outputs},\n"
            f" partitions depended on: {self.dependencies},\n"
            f" partition dependents: {self.dependents}"
        )


def _get_attr_from_qualname(mod: Any, qualname: str) -> Any:
    for atom in qualname.split("."):
        if not hasattr(mod, atom):
            raise AttributeError(f"Node target {qualname} not found!")
        mod = getattr(mod, atom)
    return mod


class _Split:
    """The state of one split."""

    def __init__(self, m: GraphModule) -> None:
        self.m = m
        self.partitions: dict[str, Partition] = {}
        self.of: dict[Node, Partition] = {}
        self.nodes = {n.name: n for n in m.graph.nodes}
        self.base = Graph()
        self.env: dict[str, Node] = {}
        self.attrs: dict[str, Any] = {}
        self.keep_names = False
        self.keep_inputs = True
        self.tuple_return = False

    def assign(self, callback: Callable[[Node], Any], affix: str | None) -> None:
        """Asks for each call where it belongs."""
        for node in self.m.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            if node.op == "call_function" and node.target.__name__ in (
                "_enter_autocast",
                "_exit_autocast",
                "_set_grad_enabled",
            ):
                raise NotImplementedError(
                    f"split_module: a graph with {node.target.__name__} is not supported"
                )
            name = str(callback(node))
            if affix is not None:
                name = f"{affix}_{name}"
            partition = self.partitions.setdefault(name, Partition(name))
            partition.node_names.append(node.name)
            self.of[node] = partition

    def connect(self) -> None:
        """Notes what modules need of each other."""
        for node in self.m.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            for arg in node.all_input_nodes:
                defined, used = self.of.get(arg), self.of.get(node)
                if defined is used:
                    continue
                if defined is not None:
                    defined.outputs.setdefault(arg.name)
                    if used is not None:
                        defined.dependents.setdefault(used.name)
                        used.dependencies.setdefault(defined.name)
                if used is not None:
                    used.inputs.setdefault(arg.name)

    def order(self) -> list[str]:
        """The modules in an order in which each comes behind what it needs."""
        ready = [n for n, p in self.partitions.items() if not p.dependencies]
        found = []
        while ready:
            name = ready.pop()
            found.append(name)
            for dependent in self.partitions[name].dependents:
                left = self.partitions[dependent].dependencies
                left.pop(name)
                if not left:
                    ready.append(dependent)
        if len(found) != len(self.partitions):
            raise RuntimeError("cycle exists between partitions!")
        return found

    def make_inputs(self, partition: Partition) -> None:
        """Gives a module placeholders for what comes from outside."""
        names: dict[str, None] = {}
        modules = [n for n in partition.inputs if self._module_of(n) is not None]
        for name in [n for n in partition.inputs if n not in modules]:
            old = self.nodes[name]
            shown = name if self.keep_inputs else f"arg_{len(names)}"
            new = partition.graph.placeholder(shown, type_expr=old.type)
            names[name] = None
            new.meta = old.meta.copy()
            partition.environment[old] = new
        for name in modules:
            old = self.nodes[name]
            new = partition.graph.get_attr(old.target)
            partition.targets[old.target] = self._module_of(name)
            new.meta = old.meta.copy()
            partition.environment[old] = new
        partition.inputs = names

    def _module_of(self, name: str) -> Any:
        node = self.nodes[name]
        if node.op != "get_attr":
            return None
        value = _get_attr_from_qualname(self.m, node.target)
        return value if isinstance(value, Module) else None

    def copy_calls(self, qualname_map: dict[str, str] | None) -> None:
        """Puts each call into its module."""
        for node, partition in self.of.items():
            env = partition.environment
            args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
            target = node.target
            if node.op == "call_module":
                target = node.target.replace(".", "_")
                partition.targets[target] = _get_attr_from_qualname(self.m, node.target)
                if qualname_map is not None:
                    qualname_map[f"{partition.submod_name}.{target}"] = node.target
            name = node.name if self.keep_names else None
            new = partition.graph.create_node(
                node.op, target, args, kwargs, name=name, type_expr=node.type
            )
            new.meta = node.meta.copy()
            env[node] = new

    def add_outer(self, node: Node) -> None:
        """Puts an input or attribute of the whole into the graph of calls."""
        if node.op == "placeholder":
            default = node.args[0] if node.args else inspect.Signature.empty
            name = node.name if self.keep_names else node.target
            new = self.base.placeholder(name, type_expr=node.type, default_value=default)
        elif node.op == "get_attr":
            new = self.base.get_attr(node.target)
            self.attrs[node.target] = _get_attr_from_qualname(self.m, node.target)
        else:
            return
        new.meta = node.meta.copy()
        self.env[node.name] = new

    def add_call(self, partition: Partition) -> None:
        """Ends a module, and puts a call of it into the graph of calls."""
        outputs = tuple(partition.environment[self.nodes[n]] for n in partition.outputs)
        alone = len(outputs) == 1 and not self.tuple_return
        partition.graph.output(outputs[0] if alone else outputs)
        self.attrs[partition.submod_name] = GraphModule(partition.targets, partition.graph)
        call = self.base.call_module(
            partition.submod_name, tuple(self.env[n] for n in partition.inputs)
        )
        if alone:
            self.env[next(iter(partition.outputs))] = call
            return
        proxy: Any = Proxy(call)
        for i, name in enumerate(partition.outputs):
            self.env[name] = proxy[i].node


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that calls the parts of another one, each a module `submod_<name>`.

    Args:
        m: what is split.
        root_m: not used.
        split_callback: gives the name of the part that a node belongs to.
        qualname_map: where the old paths of modules are noted, by new path.
        keep_original_order: parts are called in the order in which they begin.
        keep_original_node_name: nodes keep their names.
        keep_original_input_name: inputs of parts have the names of what they are; otherwise numbers.
        partition_affix: stands before names of parts.
        tuple_return: parts that return one value return a tuple, too.

    Raises:
        RuntimeError: if parts need each other in a circle.
    """
    split = _Split(m)
    split.keep_names = bool(keep_original_node_name)
    split.keep_inputs = keep_original_input_name
    split.tuple_return = tuple_return
    split.assign(split_callback, partition_affix)
    split.connect()
    original = list(split.partitions)
    ordered = split.order()
    for name in ordered:
        split.make_inputs(split.partitions[name])
    split.copy_calls(qualname_map)
    if not keep_original_order or not split.partitions:
        for node in m.graph.nodes:
            split.add_outer(node)
    for name in original if keep_original_order else ordered:
        partition = split.partitions[name]
        if keep_original_order:
            inputs = [n for n in m.graph.nodes if n.op == "placeholder"]
            for node in [*inputs, *(split.nodes[n] for n in partition.inputs)]:
                if node.name not in split.env:
                    split.add_outer(node)
        split.add_call(partition)
    output = m.graph.output_node()
    for node in output.all_input_nodes:
        if node.name not in split.env:
            split.add_outer(node)
    split.base.output(map_arg(output.args[0], lambda n: split.env[n.name]))
    return GraphModule(split.attrs, split.base)
