"""Checks of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike.fx.node import Node, _legal_ops

if TYPE_CHECKING:
    from torchlike.fx.graph import Graph


def lint(graph: Graph) -> None:
    """Checks that nodes belong to their graph, stand in order and refer to what exists.

    Raises:
        RuntimeError: if one does not.
        ValueError: if a target is of the wrong kind.
    """
    seen: set[Node] = set()
    names: set[str] = set()
    for node in graph.nodes:
        if node.op not in _legal_ops:
            raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        for arg in node._input_nodes:
            _check_argument(graph, arg, node, seen)
        seen.add(node)
        if node._name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node._name)
    if graph.owning_module is not None:
        for node in graph.nodes:
            _check_target(graph.owning_module, node)


def _check_argument(graph: Graph, arg: Node, node: Node, seen: set[Node]) -> None:
    if arg.graph is not graph:
        raise RuntimeError(
            f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an "
            "argument! If you are copying nodes from another graph, make sure to use "
            f"``arg_transform`` on node_copy() to remap values\n{graph}"
        )
    if arg not in seen:
        raise RuntimeError(
            f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check "
            f"that Nodes in the graph are topologically ordered\n{graph}"
        )


def _check_target(owner: Any, node: Node) -> None:
    from torchlike._tensor import typename
    from torchlike.nn import Module

    right = callable(node.target) if node.op == "call_function" else isinstance(node.target, str)
    if not right:
        wanted = "Callable" if node.op == "call_function" else "str"
        raise ValueError(
            f"Node {node} target {node.target} has type {typename(node.target)} but "
            f"a {wanted} is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    atoms = node.target.split(".")
    here = owner
    for i, atom in enumerate(atoms):
        here = getattr(here, atom, None)
        above = ".".join(atoms[:i])
        if here is None:
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute "
                f"{atom} of {above}"
            )
        if node.op == "call_module" and not isinstance(here, Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {atom} of {above} does "
                "not reference an nn.Module"
            )
