"""Parts of graphs as modules, and comparing graphs."""

from __future__ import annotations

from typing import Any

from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.nn import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """Holds modules by name, for paths that lead through it."""

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A module for a part of a graph, with the attributes that it needs.

    Args:
        gm: has the attributes.
        comp_name: where the new module will stand, for the paths that are returned.

    Returns:
        The module, and for each path in `gm` that it needs the path in the module.
    """
    holder = HolderModule({})
    paths: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        here: Any = holder
        source: Any = gm
        *prefix, field = node.target.split(".")
        for name in prefix:
            source = getattr(source, name)
            if not hasattr(here, name):
                here.add_module(name, HolderModule({}))
            here = getattr(here, name)
        value = getattr(source, field)
        paths[node.target] = f"{comp_name}.{node.target}" if comp_name else node.target
        setattr(here, field, value)
    return GraphModule(holder, subgraph, class_name), paths


def compare_graphs(left: Graph, right: Graph) -> bool:
    """True if one graph looks like the other, with the same inputs and outputs."""
    from torchlike.fx.passes.utils.matcher_utils import SubgraphMatcher

    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
