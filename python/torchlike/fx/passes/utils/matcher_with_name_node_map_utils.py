"""A matcher whose pattern says, beside its result, which names its nodes have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike.fx.graph import Graph
    from torchlike.fx.graph_module import GraphModule
    from torchlike.fx.node import Node

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _take_names(pattern: GraphModule) -> dict[str, Node]:
    """Takes the dictionary of names, which is the last result, out of a pattern."""
    (output,) = (n for n in pattern.graph.nodes if n.op == "output")
    spec = pattern._out_spec
    if spec is None:
        raise AssertionError("gm._out_spec is None")
    results: Any = pytree.tree_unflatten(list(output.args[0]), spec)
    if not isinstance(results, tuple):
        raise AssertionError("Expecting the pattern graph to return a tuple")
    if len(results) < 2:
        raise AssertionError("Expecting the pattern graph to have at least two outputs")
    *rest, names = results
    if not isinstance(names, dict):
        raise AssertionError("Expecting the input graph to have a dict output as the last element")
    leaves, rest_spec = pytree.tree_flatten(rest)
    output.args = (leaves,)
    codegen: Any = pattern.graph._codegen
    codegen.pytree_info = codegen.pytree_info._replace(out_spec=rest_spec)
    pattern.recompile()
    return names


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """Finds a pattern that returns `result, {"name": node, ...}`; matches have `name_node_map`, the nodes by name.

    >>> pattern = torch.export.export(Pattern(), example).module()
    >>> SubgraphMatcherWithNameNodeMap(pattern).match(graph)[0].name_node_map["conv"]
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.name_node_map = _take_names(pattern_gm)
        super().__init__(
            pattern_gm.graph,
            match_output,
            match_placeholder,
            remove_overlapping_matches,
            ignore_literals,
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places where the pattern is found, each with its nodes by name."""
        found = super().match(graph, node_name_match)
        for match in found:
            match.name_node_map.update(
                {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
            )
        return found
