"""Nodes grouped by the module or function of the original program that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchlike.fx.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.fx.graph import Graph

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call of a module or function."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def _source(node: Node, wanted: list[Any]) -> tuple[Any, str] | None:
    """Which of the wanted sources a node comes from, and under which name."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        name, source = stack[-1]
        return (source, name) if source in wanted else None
    torch_fn = node.meta.get("torch_fn")
    if torch_fn is not None:
        source = torch_fn[1].split(".")[1]
        if source in wanted:
            return source, torch_fn[0]
    modules = node.meta.get("nn_module_stack")
    if node.op == "call_function" and modules:
        path, kind = list(modules.values())[-1]
        for source in wanted:
            if isinstance(source, type) and isinstance(kind, type):
                if issubclass(kind, source):
                    return source, path
            elif kind == source or (
                isinstance(source, type) and kind == f"{source.__module__}.{source.__qualname__}"
            ):
                return source, path
    return None


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """For each of these modules and functions, the groups of nodes that come from calls of them.

    Args:
        filter_fn: only groups all of whose nodes it lets through.
    """
    groups: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        found = _source(node, wanted_sources)
        if found is not None:
            groups.setdefault(found[0], {}).setdefault(found[1], []).append(node)
    return {
        source: [
            _partition(nodes, source)
            for nodes in by_name.values()
            if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for source, by_name in groups.items()
    }


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    used = dict.fromkeys(a for n in nodes for a in n.args if isinstance(a, Node))
    calls = [n for n in nodes if n.op != "get_attr"]
    return SourcePartition(
        nodes,
        source,
        [n for n in used if n not in inside and n.op != "get_attr"],
        [n for n in calls if any(u not in inside for u in n.users)],
        [n for n in nodes if n.op == "get_attr"],
    )


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """True if a node of the second group uses one of the first."""
    inside = set(subgraph2.nodes)
    return any(user in inside for node in subgraph1.nodes for user in node.users)
