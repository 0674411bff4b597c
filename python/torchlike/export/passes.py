"""Changes of exported programs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.nn import Module, Parameter

if TYPE_CHECKING:
    from torchlike.export.exported_program import ExportedProgram

__all__ = ["move_to_device_pass"]


def move_to_device_pass(ep: ExportedProgram, location: Any) -> ExportedProgram:
    """The program on another device: its state, its constants, and what makes tensors in its graph.

    Args:
        location: a device, or devices by those that are there now, as texts.
    """
    from torchlike.export.exported_program import ExportedProgram

    def there(device: Any) -> Any:
        if isinstance(location, dict):
            return torchlike.device(location.get(str(device), device))
        return torchlike.device(location)

    moved: dict[int, Any] = {}

    def move(tensor: Any) -> Any:
        # what is one tensor under two names stays one
        if id(tensor) not in moved:
            made = tensor.detach().to(there(tensor.device))
            if isinstance(tensor, Parameter):
                made = Parameter(made, requires_grad=tensor.requires_grad)
            moved[id(tensor)] = made
        return moved[id(tensor)]

    def claimed(value: Any) -> Any:
        return value.to(there(value.device))

    tree_map_only = torchlike.utils._pytree.tree_map_only
    graph = copy.deepcopy(ep.graph)
    for node in graph.nodes:
        if "device" in node.meta:
            node.meta["device"] = str(there(node.meta["device"]))
        if "val" in node.meta:
            node.meta["val"] = tree_map_only(torchlike.Tensor, claimed, node.meta["val"])
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": there(node.kwargs["device"])}
    example = tree_map_only(torchlike.Tensor, move, ep.example_inputs)
    made = ExportedProgram(
        Module(),
        graph,
        ep.graph_signature,
        {name: move(t) for name, t in ep.state_dict.items()},
        ep._sizes,
        ep.module_call_graph,
        example,
        {name: move(t) for name, t in ep.constants.items()},
    )
    made._aliases = ep._aliases
    return made
