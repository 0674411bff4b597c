"""Modules that are compiled when they are first called, as all graph modules are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torchlike.fx.graph_module import GraphModule

if TYPE_CHECKING:
    from collections.abc import Iterator


class _LazyGraphModule(GraphModule):
    """A graph module."""

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        """The module of this class with the same graph."""
        return gm if isinstance(gm, _LazyGraphModule) else cls(gm, gm.graph)

    @staticmethod
    def force_recompile(gm: Any) -> None:
        """Compiles the module now."""
        if isinstance(gm, GraphModule):
            _ = gm.forward


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    yield


def _get_graph_module_cls() -> type[GraphModule]:
    return GraphModule


def _make_graph_module(*args: Any, graph_module_cls: Any = None, **kwargs: Any) -> GraphModule:
    return (graph_module_cls or GraphModule)(*args, **kwargs)
