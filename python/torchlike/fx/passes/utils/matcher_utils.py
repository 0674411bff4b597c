"""Places in a graph that look like another graph."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from torchlike._C import Tensor
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import _get_attr
from torchlike.fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]

_ENDS = ("placeholder", "output")


@dataclass
class InternalMatch:
    """A place in a graph that looks like the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=self.nodes_map.copy(),
            placeholder_nodes=self.placeholder_nodes.copy(),
            returning_nodes=self.returning_nodes.copy(),
        )


class SubgraphMatcher:
    """Finds a pattern, backwards from what it returns.

    Args:
        pattern: a graph without dead code; its inputs stand for anything.
        match_output: the place has to return what the pattern does.
        match_placeholder: inputs stand for inputs alone.
        remove_overlapping_matches: of places that share nodes, only the first counts.
        ignore_literals: numbers and texts among the arguments need not be the same.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        nodes = list(pattern.nodes)
        if not nodes:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in nodes:
            if node.op != "output" and not node.is_impure() and not node.users:
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with an pattern with dead code"
                )
        self.pattern_placeholder_nodes = [n for n in nodes if n.op == "placeholder"]
        output = nodes[-1]
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        alone = [n for n in self.pattern_returning_nodes if len(n.users) == 1]
        self.pattern_anchors: list[Node] = [output] if match_output else alone

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        mine = _get_attr(pn.graph.owning_module, pn.target)
        other = _get_attr(gn.graph.owning_module, gn.target)
        if type(mine) is not type(other):
            return False
        if not isinstance(mine, Tensor):
            raise RuntimeError(f"Unsupported type {mine} when matching attributes")
        return True

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if pn.op == "placeholder" and not self.match_placeholder:
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op == "get_attr":
            return self._match_attributes(pn, gn)
        return pn.op in _ENDS or pn.target == gn.target

    def _match_literals(self, pn: Any, gn: Any, match: InternalMatch) -> bool:
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in match.nodes_map:
                return match.nodes_map[pn] == gn
            match.nodes_map[pn] = gn
            return True
        return not isinstance(gn, Node) and type(gn) is type(pn) and gn == pn

    def _match_argument(self, a: Any, b: Any, match: InternalMatch) -> bool:
        if isinstance(a, Node) and isinstance(b, Node):
            return self._match_nodes(a, b, match)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            same = len(a) == len(b)
            return same and all(
                self._match_argument(x, y, match) for x, y in zip(a, b, strict=True)
            )
        return self._match_literals(a, b, match) or self.ignore_literals

    def _match_nodes(
        self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = ""
    ) -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] == gn
        if any(gn is other for other in match.nodes_map.values()):
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        mine, other = _arguments(pn, gn)
        return mine is not None and self._match_argument(mine, other, match)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places in a graph that look like the pattern."""
        from torchlike.fx.passes.utils.fuser_utils import validate_partition

        candidates = [
            (a, [n for n in graph.nodes if self._nodes_are_equal(a, n, node_name_match)])
            for a in self.pattern_anchors
        ]
        candidates = [(a, nodes) for a, nodes in candidates if nodes]
        found: list[InternalMatch] = []
        if candidates:
            start = InternalMatch(anchors=self.pattern_anchors)
            self._search(candidates, start, found, node_name_match)
        found = [m for m in found if self._is_contained(m.nodes_map)]
        found = [m for m in found if validate_partition(_inner(m))]
        return self._remove_overlapping(found) if self.remove_overlapping_matches else found

    def _search(
        self,
        left: list[tuple[Node, list[Node]]],
        match: InternalMatch,
        found: list[InternalMatch],
        name: str,
    ) -> None:
        """Tries every node for the first anchor that is left, and the others after it."""
        if not left:
            known = match.nodes_map
            if all(
                p in known for p in self.pattern_placeholder_nodes + self.pattern_returning_nodes
            ):
                match.placeholder_nodes = [known[p] for p in self.pattern_placeholder_nodes]
                match.returning_nodes = [known[p] for p in self.pattern_returning_nodes]
                found.append(match)
            return
        anchor, nodes = left[0]
        for node in nodes:
            attempt = copy.copy(match)
            if self._match_nodes(anchor, node, attempt, name):
                self._search(left[1:], attempt, found, name)

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """True if nobody outside uses a value that the pattern keeps for itself."""
        inner = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        return all(
            pn in self.pattern_returning_nodes or all(user in inner for user in gn.users)
            for gn, pn in inner.items()
        )

    def _remove_overlapping(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        kept = []
        taken: set[Node] = set()
        for m in matches:
            nodes = _inner(m)
            if taken.isdisjoint(nodes):
                kept.append(m)
                taken.update(nodes)
        return kept


def _inner(match: InternalMatch) -> list[Node]:
    """The nodes of a place, without its inputs."""
    return [gn for pn, gn in match.nodes_map.items() if pn.op not in _ENDS]


def _arguments(pn: Node, gn: Node) -> tuple[list[Any] | None, list[Any]]:
    """The arguments of two nodes in the same order; None if they cannot be compared."""
    if len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs):
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
    schema = getattr(pn.target, "_schema", None)
    if pn.op != "call_function" or schema is None:
        return None, []

    def completed(node: Node) -> list[Any]:
        values = []
        for i, arg in enumerate(schema.arguments):
            if arg.name in node.kwargs:
                values.append(node.kwargs[arg.name])
            elif not arg.kwarg_only and i < len(node.args):
                values.append(node.args[i])
            else:
                values.append(arg.default_value)
        return values

    return completed(pn), completed(gn)
