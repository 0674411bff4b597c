"""Which nodes a backend can run."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from torchlike.fx.node import Node
from torchlike.fx.passes.shape_prop import TensorMetadata
from torchlike.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

SupportDict = dict[str, Any]


class OperatorSupportBase(abc.ABC):
    """Says of nodes whether they can be run."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """True if the backend can run the node."""
        raise NotImplementedError


class OperatorSupport(OperatorSupportBase):
    """Says it by a table: for each target the types of its arguments, or None for any."""

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """True if the table has the target, with these types."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        positional, named = self._support_dict[target]
        pairs = list(zip(positional, node.args, strict=False))
        pairs += [(dtypes, node.kwargs[k]) for k, dtypes in named.items() if k in node.kwargs]
        return all(
            _get_arg_dtype(arg) in dtypes
            for dtypes, arg in pairs
            if dtypes is not None and isinstance(arg, Node)
        )


def create_op_support(
    is_node_supported: Callable[[Mapping[str, Any], Node], bool],
) -> OperatorSupportBase:
    """Says it by a function."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Nodes that all of these can run."""
    return create_op_support(lambda s, n: all(x.is_node_supported(s, n) for x in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Nodes that one of these can run."""
    return create_op_support(lambda s, n: any(x.is_node_supported(s, n) for x in op_support))


class OpSupports:
    """Common answers."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Nodes that have no input of a type."""
        return create_op_support(
            lambda _, node: all(_get_arg_dtype(a) != dtype for a in node.all_input_nodes)
        )

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Nodes that have other names."""
        return create_op_support(lambda _, node: node.name not in disallow_set)


def _get_arg_dtype(arg: Node) -> Any:
    meta = arg.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else arg.meta["type"]
