"""Types of items of tuples and lists."""

from __future__ import annotations

import operator
import typing
from typing import TYPE_CHECKING

from torchlike._C import Tensor

if TYPE_CHECKING:
    from torchlike.fx.graph import Graph


def annotate_getitem_nodes(graph: Graph) -> None:
    """Gives nodes that take an item of a container the type that the container's type says."""
    for node in graph.nodes:
        if node.target is not operator.getitem:
            continue
        container, index = node.args
        kind = container.type
        if not kind:
            continue
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is tuple:
            if len(inner) == 2 and inner[1] is ...:
                node.type = inner[0]
            elif len(inner) <= index:
                raise AssertionError(
                    f"Index {index} out of range for parameterized_types (len={len(inner)})"
                )
            else:
                node.type = inner[index]
        elif origin is list:
            node.type = inner[0]
        elif kind is not Tensor and hasattr(kind, "_fields"):
            node.type = kind.__annotations__[kind._fields[index]]
