"""Replacing every place in a graph that looks like a pattern."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike.fx._symbolic_trace import symbolic_trace
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node
from torchlike.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.fx.passes.utils.matcher_utils import InternalMatch

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A place that was replaced: its last node, and which node stood for which of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place that was replaced, and the new nodes."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _graph_of(program: Any) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    return program if isinstance(program, Graph) else symbolic_trace(program).graph


def _replace_attributes(gm: GraphModule, replacement: Module) -> None:
    """Takes over what new nodes refer to."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()

    def found(module: Any, path: str) -> Any:
        for part in path.split("."):
            module = getattr(module, part, None)
        return module

    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or found(gm, node.target) is not None:
            continue
        value = found(replacement, node.target)
        if value is None:
            raise RuntimeError(
                'Attempted to create a "',
                node.op,
                '" node during subgraph rewriting '
                f"with target {node.target}, but "
                "the referenced attribute does not "
                "exist in the replacement GraphModule",
            )
        if isinstance(value, Module):
            gm.add_submodule(node.target, copy.deepcopy(value))
        else:
            _set_path(gm, node.target, copy.deepcopy(value))
    gm.graph.lint()


def _set_path(gm: GraphModule, path: str, value: Any) -> None:
    from torchlike.fx.graph_module import _assign_attr

    _assign_attr(value, gm, path)


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replaces what looks like a pattern, wherever it does not overlap with an earlier place.

    Args:
        gm: the module whose graph is changed.
        pattern: a function or module, whose inputs stand for anything.
        replacement: a function or module with the same inputs.

    Returns:
        The places that were replaced.
    """
    done = _replace_pattern(gm, pattern, replacement)
    return [Match(anchor=m.anchor, nodes_map=m.nodes_map) for m in done]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """As `replace_pattern`, for those places that the filters let through.

    Args:
        match_filters: get a place, the graph and the pattern.
        ignore_literals: numbers and texts among the arguments need not be the same.
        replacement_callback: makes the replacement for a place.
        node_name_match: nodes with this in their names look like any.
    """
    return _replace_pattern(
        gm,
        pattern,
        replacement,
        match_filters,
        ignore_literals,
        replacement_callback,
        node_name_match,
    )


def _replace_pattern(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: Any = None,
    ignore_literals: bool = False,
    replacement_callback: Any = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    from torchlike.fx.passes.utils.matcher_utils import SubgraphMatcher

    graph, wanted = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(wanted, ignore_literals=ignore_literals)
    matches = [
        m
        for m in matcher.match(graph, node_name_match=node_name_match)
        if all(keep(m, graph, wanted) for keep in match_filters or ())
    ]
    if replacement is None and replacement_callback is None:
        raise AssertionError(
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    common = _graph_of(replacement) if replacement is not None else None
    changed: dict[Node, Node] = {}
    done = []
    for match in matches:
        new = replacement_callback(match, graph, wanted) if replacement_callback else common
        done.append(_replace(gm, match, wanted, new, changed))
    gm.recompile()
    if isinstance(replacement, Module):
        _replace_attributes(gm, replacement)
    return done


def _inputs(match: InternalMatch, new: Graph, changed: dict[Node, Node]) -> dict[Node, Any]:
    """What stands in the graph for the inputs of the replacement."""
    holders = [n for n in new.nodes if n.op == "placeholder"]
    if len(match.placeholder_nodes) != len(holders):
        raise AssertionError(
            f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs {len(holders)}"
        )
    values: dict[Node, Any] = {}
    for at, (holder, value) in enumerate(zip(holders, match.placeholder_nodes, strict=True)):
        current = value
        while isinstance(current, Node) and current in changed:
            current = changed[current]
        if current is not value:
            match.placeholder_nodes[at] = current
            key = next(k for k, v in match.nodes_map.items() if v is value)
            match.nodes_map[key] = current
        values[holder] = current
    return values


def _insert_point(graph: Graph, returned: list[Node]) -> Node:
    """The first node that uses what is replaced, or the one behind it if nobody does."""
    users = {user for n in returned for user in n.users}
    first = min(users) if users else max(returned).next
    if first is graph._root:
        raise AssertionError("The insert point can't be None")
    return first


def _replace(
    gm: GraphModule, match: InternalMatch, pattern: Graph, new: Any, changed: dict[Node, Node]
) -> ReplacedPatterns:
    graph = gm.graph
    values = _inputs(match, new, changed)
    with graph.inserting_before(_insert_point(graph, match.returning_nodes)):
        results = graph.graph_copy(new, values)
    if isinstance(results, Node):
        results = (results,)
    made = [v for v in values.values() if v not in match.placeholder_nodes]
    if len(match.returning_nodes) != len(results):
        raise AssertionError(
            f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results)}"
        )
    for old, result in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(result)
        changed[old] = result
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    return ReplacedPatterns(match.anchors[0], match.nodes_map, made)
