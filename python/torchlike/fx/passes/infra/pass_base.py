"""The base class of passes."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torchlike.fx.graph_module import GraphModule
    from torchlike.nn import Module

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether it changed."""

    graph_module: Module
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` between two checks."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """What the pass does."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks what has to be true before."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Checks what has to be true after."""
