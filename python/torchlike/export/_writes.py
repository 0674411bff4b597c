"""What a program writes, put back to where it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torchlike
from torchlike.export.graph_signature import ExportGraphSignature, OutputKind

if TYPE_CHECKING:
    from torchlike.fx.graph import Graph
    from torchlike.fx.node import Node


def _call(node: Node) -> tuple[str, ...]:
    """The calls of modules that a node was made in."""
    return tuple(node.meta.get("nn_module_stack", ()))


def write_in_place(graph: Graph, signature: ExportGraphSignature, inputs: dict[str, Node]) -> None:
    """Writes what a call changes behind what computes it, and leaves the caller's results.

    Args:
        inputs: the nodes of buffers and of the caller's inputs, by the names that the signature has for them.
    """
    buffers = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    writes = [(n, inputs[n.meta["writes"]]) for n in graph.nodes if n.meta.get("writes") in inputs]
    output = graph.output_node()
    kept = []
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            kept.append(value)
        else:
            name = spec.target or ""
            if spec.kind is OutputKind.BUFFER_MUTATION:
                name = buffers[name]
            writes.append((value, inputs[name]))
    output.args = (tuple(kept),)
    readers = {target: [*target.users] for _, target in writes}
    for value, target in dict.fromkeys(writes):
        _write(graph, value, target, readers[target])


def _write(graph: Graph, value: Node, target: Node, readers: list[Node]) -> None:
    """Writes one value, which other calls read where it was written."""
    # what reads the old value comes first
    last = max([value, *readers])
    with graph.inserting_after(last):
        made = graph.call_function(torchlike.ops.aten.copy_.default, (target, value))
    if last is value and _call(value):
        made.meta["nn_module_stack"] = value.meta["nn_module_stack"]
    for user in list(value.users):
        if user is not made and user > made and _call(user) != _call(value):
            user.replace_input_with(value, target)
