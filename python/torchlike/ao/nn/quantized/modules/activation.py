"""Functions of single elements as layers, whose results have a scale and a zero point."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import _output, _Scaled
from torchlike.nn.modules.activation import ELU as ELULayer
from torchlike.nn.modules.activation import Hardswish as HardswishLayer
from torchlike.nn.modules.activation import LeakyReLU as LeakyReLULayer
from torchlike.nn.modules.activation import ReLU as ReLULayer
from torchlike.nn.modules.activation import Sigmoid as SigmoidLayer
from torchlike.nn.modules.activation import Softmax as SoftmaxLayer

__all__ = ["ELU", "Hardswish", "LeakyReLU", "PReLU", "ReLU6", "Sigmoid", "Softmax"]

_root: Any = torch


class ReLU6(ReLULayer):
    """Clamps quantised tensors between 0 and 6."""

    def forward(self, input: Any) -> Any:
        """The clamped tensor."""
        return ops.quantized.relu6(input, self.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers."""
        return ReLU6(mod.inplace)


class Hardswish(_Scaled, HardswishLayer):
    """Hardswish of quantised tensors."""

    def __init__(
        self, scale: float, zero_point: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self._scaled(scale, zero_point, device, dtype)

    def forward(self, input: Any) -> Any:
        """Hardswish of the input."""
        return ops.quantized.hardswish(input, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedHardswish"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return Hardswish(*_output(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        return cls(float(scale), int(zero_point))


class ELU(ELULayer):
    """The exponential linear unit of quantised tensors."""

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.scale = scale
        self.zero_point = zero_point

    def forward(self, input: Any) -> Any:
        """ELU of the input."""
        return ops.quantized.elu(input, self.scale, self.zero_point, self.alpha)

    def _get_name(self) -> str:
        return "QuantizedELU"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return ELU(*_output(mod), mod.alpha)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        return cls(float(scale), int(zero_point), mod.alpha)


class LeakyReLU(_Scaled, LeakyReLULayer):
    """Leaky ReLU of quantised tensors."""

    def __init__(
        self,
        scale: float,
        zero_point: int,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(negative_slope, inplace)
        self._scaled(scale, zero_point, device, dtype)

    def forward(self, input: Any) -> Any:
        """What is negative times the slope."""
        return ops.quantized.leaky_relu(
            input, self.negative_slope, self.inplace, self.scale, self.zero_point
        )

    def _get_name(self) -> str:
        return "QuantizedLeakyReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return cls(*_output(mod), mod.negative_slope, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        return cls(float(scale), int(zero_point), mod.negative_slope, mod.inplace)


class Sigmoid(SigmoidLayer):
    """The logistic function of quantised tensors."""

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.output_scale = output_scale
        self.output_zero_point = output_zero_point

    def forward(self, input: Any) -> Any:
        """The logistic function of the input."""
        return ops.quantized.sigmoid(input, self.output_scale, self.output_zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return cls(*_output(mod))


class Softmax(SoftmaxLayer):
    """The softmax of quantised tensors."""

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__(dim)
        self.scale = scale
        self.zero_point = zero_point

    def forward(self, input: Any) -> Any:
        """The softmax of the input."""
        dim: Any = self.dim
        if dim is None:
            # As without a dimension everywhere: the first of tensors of 0, 1 and 3 dimensions, else the second.
            dim = 0 if input.dim() in (0, 1, 3) else 1
        return ops.quantized.softmax(input, dim, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedSoftmax"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return Softmax(mod.dim, *_output(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        return cls(mod.dim, float(scale), int(zero_point))


class PReLU(nn.Module):
    """ReLU of quantised tensors with quantised slopes below zero."""

    def __init__(
        self, output_scale: float, output_zero_point: int, num_parameters: int = 1
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.scale = output_scale
        self.zero_point = output_zero_point
        slopes = torch.randn(num_parameters)
        self.set_weight(_root.quantize_per_tensor(slopes, 1.0, 0, torch.quint8))

    def set_weight(self, w: Any) -> None:
        """Takes quantised slopes."""
        self.weight = w

    def forward(self, input: Any) -> Any:
        """What is negative times the slope of its channel."""
        return ops.quantized.prelu(input, self.weight, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedPReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        return cls.from_reference(mod, *_output(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        made = cls(float(scale), int(zero_point), mod.num_parameters)
        slopes = mod.weight.detach().float()
        observer = mod.qconfig.weight()
        observer(slopes)
        own, zero = observer.calculate_qparams()
        made.set_weight(_root.quantize_per_tensor(slopes, float(own), int(zero), torch.quint8))
        return made
