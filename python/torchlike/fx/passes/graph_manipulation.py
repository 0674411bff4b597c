"""Sizes of values, and other targets for nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike
from torchlike.fx.graph import Graph
from torchlike.fx.passes.shape_prop import ShapeProp, TensorMetadata

if TYPE_CHECKING:
    from torchlike.fx.graph_module import GraphModule
    from torchlike.fx.node import Node

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Gives nodes of one operation and target another one."""
    new = Graph()
    env: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args = torchlike.fx.node.map_arg(node.args, lambda n: env[n])
            kwargs = torchlike.fx.node.map_arg(node.kwargs, lambda n: env[n])
            env[node] = new.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            env[node] = new.node_copy(node, lambda n: env[n])
    fx_module.graph = new


class size_bytes(NamedTuple):
    """Bytes of a value, and of it and the parameters of the module that makes it."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Notes on each node, as `size_bytes`, the size of its value.

    Args:
        args: example inputs, for graphs without notes of shapes.
    """
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)  # type: ignore[attr-defined]


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What shape propagation noted of a node.

    Raises:
        RuntimeError: if it has not run.
    """
    meta = node.meta.get("tensor_meta")
    if not meta:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! "
            f"Check that shape propagation has run."
        )
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The size of the value of a node."""
    count = 0
    if node.op == "call_module":
        count = sum(p.numel() for p in fx_module.get_submodule(node.target).parameters())
    meta = get_tensor_meta(node)
    out = meta.shape.numel()
    each = meta.dtype.itemsize
    return size_bytes(each * out, each * (count + out))
