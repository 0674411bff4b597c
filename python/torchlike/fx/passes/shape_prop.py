"""Shapes, types and layouts of all values of a graph, from a run."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import torchlike
from torchlike.fx._fake import detect_fake_mode, fake_copy
from torchlike.fx.interpreter import Interpreter
from torchlike.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What a tensor looked like."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    """What a tensor looks like."""
    strided = result.layout is torchlike.strided
    memory_format = None
    if include_contiguity and strided:
        for query in ("contiguous_format", "channels_last", "channels_last_3d"):
            wanted = getattr(torchlike, query)
            if result.is_contiguous(memory_format=wanted):
                memory_format = wanted
                break
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride() if strided else (),
        memory_format,
        result.is_quantized,
        _quantization(result) if result.is_quantized else {},
    )


def _quantization(result: Any) -> dict[str, Any]:
    scheme = result.qscheme()
    if scheme in (torchlike.per_tensor_affine, torchlike.per_tensor_symmetric):
        return {"qscheme": scheme, "scale": result.q_scale(), "zero_point": result.q_zero_point()}
    return {
        "qscheme": scheme,
        "scale": result.q_per_channel_scales().tolist(),
        "zero_point": result.q_per_channel_zero_points().tolist(),
        "axis": result.q_per_channel_axis(),
    }


class ShapeProp(Interpreter):
    """Runs a graph and notes of each value, in `meta["tensor_meta"]`, what it looked like.

    Args:
        gm: the module.
        fake_mode: runs it with fake tensors of this mode.
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode if fake_mode is not None else detect_fake_mode()
        self.fake_module: Any = (
            fake_copy(gm, self.fake_mode) if self.fake_mode is not None else None
        )
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """The value of a node, which is noted."""
        try:
            result = self._run(n)
        except Exception as e:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from e
        found = False

        def describe(value: Any) -> Any:
            nonlocal found
            if not isinstance(value, torchlike.Tensor):
                return value
            found = True
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, describe)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def _run(self, n: Node) -> Any:
        if self.fake_mode is None:
            return super().run_node(n)
        self.module = self.fake_module
        try:
            with self.fake_mode:
                return super().run_node(n)
        finally:
            self.module = self.real_module

    def propagate(self, *args: Any) -> Any:
        """The result of the module for example inputs, with everything noted on the way."""
        if self.fake_mode is not None:
            convert = self.fake_mode.from_tensor
            args = tuple(convert(a) if isinstance(a, torchlike.Tensor) else a for a in args)
        return super().run(*args)
