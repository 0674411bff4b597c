"""Graphs as text."""

from __future__ import annotations

from typing import Any


def lazy_format_graph_code(name: str, gm: Any, maybe_id: int | None = None, **kwargs: Any) -> str:
    """The source of a module with a heading."""
    title = f"{name} {maybe_id}" if maybe_id is not None else name
    return f"===== {title} =====\n{gm.print_readable(print_output=False)}"


def first_call_function_nn_module_stack(graph: Any) -> Any:
    """The modules around the first function call that notes them, or None."""
    for node in graph.nodes:
        if node.op == "call_function" and "nn_module_stack" in node.meta:
            return node.meta["nn_module_stack"]
    return None


def get_node_context(node: Any, num_nodes: int = 2) -> str:
    """A node and those before it, as text."""
    nodes = [node]
    while len(nodes) < num_nodes and nodes[-1].prev.op != "root":
        nodes.append(nodes[-1].prev)
    return "\n".join(str(n.format_node()) for n in reversed(nodes))
