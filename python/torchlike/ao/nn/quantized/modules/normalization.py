"""Normalisations of quantised tensors as layers, whose results have a scale and a zero point."""

from __future__ import annotations

from typing import Any

from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import _output, _Scaled
from torchlike.nn.modules.instancenorm import InstanceNorm1d as InstanceNorm1dLayer
from torchlike.nn.modules.instancenorm import InstanceNorm2d as InstanceNorm2dLayer
from torchlike.nn.modules.instancenorm import InstanceNorm3d as InstanceNorm3dLayer
from torchlike.nn.modules.normalization import GroupNorm as GroupNormLayer
from torchlike.nn.modules.normalization import LayerNorm as LayerNormLayer

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"]


class LayerNorm(_Scaled, LayerNormLayer):
    """Layer norm of quantised tensors."""

    def __init__(
        self,
        normalized_shape: Any,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self.weight, self.bias = weight, bias
        self._scaled(scale, zero_point, device, dtype)

    def forward(self, input: Any) -> Any:
        """The input, normalised."""
        rest = self.weight, self.bias, self.eps, self.scale, self.zero_point
        return ops.quantized.layer_norm(input, list(self.normalized_shape), *rest)

    def _get_name(self) -> str:
        return "QuantizedLayerNorm"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return cls.from_reference(mod, *_output(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        numbers = mod.weight, mod.bias, float(scale), int(zero_point)
        return cls(mod.normalized_shape, *numbers, mod.eps, mod.elementwise_affine)


class GroupNorm(_Scaled, GroupNormLayer):
    """Group norm of quantised tensors."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device=device, dtype=dtype)
        self.weight, self.bias = weight, bias
        self._scaled(scale, zero_point, device, dtype)

    def forward(self, input: Any) -> Any:
        """The input, normalised."""
        rest = self.weight, self.bias, self.eps, self.scale, self.zero_point
        return ops.quantized.group_norm(input, self.num_groups, *rest)

    def _get_name(self) -> str:
        return "QuantizedGroupNorm"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        numbers = mod.weight, mod.bias, *_output(mod)
        return cls(mod.num_groups, mod.num_channels, *numbers, mod.eps, mod.affine)


class _InstanceNorm(_Scaled):
    """Instance norm of quantised tensors."""

    def __init__(
        self,
        num_features: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        made: Any = super().__init__
        made(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.weight, self.bias = weight, bias
        self._scaled(scale, zero_point, device, dtype)

    def forward(self, input: Any) -> Any:
        """The input, normalised."""
        own: Any = self
        rest = own.weight, own.bias, own.eps, self.scale, self.zero_point
        return ops.quantized.instance_norm(input, *rest)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return cls.from_reference(mod, *_output(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        numbers = mod.weight, mod.bias, float(scale), int(zero_point)
        return cls(mod.num_features, *numbers, mod.eps, affine=mod.affine)


class InstanceNorm1d(_InstanceNorm, InstanceNorm1dLayer):
    """Instance norm of quantised sequences."""


class InstanceNorm2d(_InstanceNorm, InstanceNorm2dLayer):
    """Instance norm of quantised images."""


class InstanceNorm3d(_InstanceNorm, InstanceNorm3dLayer):
    """Instance norm of quantised volumes."""
