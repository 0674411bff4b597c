"""Making one node of several."""

from __future__ import annotations

import operator
from collections import deque
from typing import TYPE_CHECKING

from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node
from torchlike.fx.passes.tools_common import legalize_graph
from torchlike.fx.passes.utils.common import lift_subgraph_as_module

if TYPE_CHECKING:
    from collections.abc import Iterable


def topo_sort(nodes: list[Node]) -> list[Node]:
    """The nodes in an order in which each stands behind what it uses."""
    inside = set(nodes)
    waiting = {n: sum(i in inside for i in n.all_input_nodes) for n in nodes}
    ready = deque(n for n in nodes if not waiting[n])
    found = []
    while ready:
        node = ready.popleft()
        found.append(node)
        for user in node.users:
            if user in waiting:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    if len(found) != len(nodes):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return found


def validate_partition(partition: Iterable[Node]) -> bool:
    """True if the nodes can become one: nothing outside stands between two of them."""
    inside = set(partition)
    if not inside:
        return True
    last = max(inside)
    outside = [u for n in inside for u in n.users if u not in inside]
    seen: set[Node] = set()
    while outside:
        node = outside.pop()
        if node in inside:
            return False
        if node in seen or node > last:
            continue
        seen.add(node)
        outside += node.users
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module for some nodes of a graph, which stay as they are.

    Returns:
        The module, the nodes that are its inputs, and those whose values it returns.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(
                f"{node} doesn't belong to passed in graph module {gm._get_name()}"
            )
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
        if node not in gm.graph.nodes:
            raise AssertionError(f"{node} is not found in graph module {gm._get_name()}")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes) if partition_lookup_table is None else set(partition_lookup_table)
    sub = Graph()
    inputs: dict[Node, Node] = {}
    made: dict[Node, Node] = {}

    def remap(x: Node) -> Node:
        if x in inside and x in made:
            return made[x]
        if x.op == "get_attr":
            if x not in made:
                made[x] = sub.node_copy(x)
            return made[x]
        if x not in inputs:
            holder = sub.placeholder(x.name, type_expr=x.type)
            holder.meta = x.meta.copy()
            inputs[x] = holder
        return inputs[x]

    for node in nodes:
        made[node] = sub.node_copy(node, remap)
    outputs = {n: made[n] for n in nodes if any(u not in inside for u in n.users)}
    results = tuple(outputs.values())
    sub.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    sub.lint()
    fused, _ = lift_subgraph_as_module(gm, sub, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """A call of a module in place of what its outputs were before."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    returned = sub_gm.graph.output_node().args[0]
    point = insertion_point if insertion_point is not None else max(orig_outputs)
    with gm.graph.inserting_after(point):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
        if len(orig_outputs) == 1 and not isinstance(returned, tuple):
            orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
            return gm
        after = call
        for i, old in enumerate(orig_outputs):
            with gm.graph.inserting_after(after):
                after = gm.graph.call_function(operator.getitem, (call, i))
            old.replace_all_uses_with(after, propagate_meta=True)
    values = tuple(n.meta.get("val") for n in orig_outputs)
    if any(v is not None for v in values):
        call.meta["val"] = values
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Takes nodes out, the last first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Makes each group of nodes one call of a module."""
    for i, group in enumerate(partitions):
        nodes = topo_sort(list(group))
        fused, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{i}", group, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
    legalize_graph(gm)
    return gm
