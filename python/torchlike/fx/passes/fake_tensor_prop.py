"""Fake values of all nodes of a graph."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.fx._fake import detect_fake_mode
from torchlike.fx.interpreter import Interpreter
from torchlike.fx.node import Node, map_aggregate
from torchlike.fx.passes.shape_prop import _extract_tensor_metadata

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph with fake tensors and notes each value in `meta["val"]`.

    Args:
        module: the module.
        mode: the mode of fake tensors; without it one of its own.
    """

    def __init__(self, module: Any, mode: Any = None) -> None:
        super().__init__(module)
        if mode is None:
            from torchlike._subclasses.fake_tensor import (
                FakeTensorMode,
            )

            mode = FakeTensorMode()
        self._mode = mode

    def run_node(self, n: Node) -> Any:
        """The value of a node, which is noted."""
        result = super().run_node(n)
        found = False

        def noted(value: Any) -> Any:
            nonlocal found
            if isinstance(value, torchlike.Tensor):
                found = True
                return value.detach()
            return value

        value = map_aggregate(result, noted)
        if found:
            n.meta["val"] = value
            n.meta["tensor_meta"] = map_aggregate(
                value,
                lambda v: _extract_tensor_metadata(v) if isinstance(v, torchlike.Tensor) else v,
            )
        return result

    def propagate(self, *args: Any) -> Any:
        """The result for example inputs, which become fake."""
        convert = self._mode.from_tensor
        fake = [convert(a) if isinstance(a, torchlike.Tensor) else a for a in args]
        return self.propagate_dont_convert_inputs(*fake)

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """The result for inputs that are fake already."""
        mode = detect_fake_mode(args) or self._mode
        with mode:
            return super().run(*args)
