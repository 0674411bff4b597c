"""Quantised convolutions with ReLU."""

from __future__ import annotations

from typing import Any

from torchlike.ao.nn import intrinsic as nni
from torchlike.ao.nn.quantized.modules import conv

__all__ = ["ConvReLU1d", "ConvReLU2d", "ConvReLU3d"]


class _ConvReLU(conv._ConvNd):
    """A convolution without what is negative."""

    def forward(self, input: Any) -> Any:
        """The convolution with the weight, and the bias, without what is negative."""
        input = self._padded(input)
        operator = self._operator("_relu")
        return operator(input, self._packed_params, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return f"QuantizedConvReLU{self._COUNT}d"


class ConvReLU1d(_ConvReLU, conv.Conv1d):
    """A convolution over quantised sequences, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU1d


class ConvReLU2d(_ConvReLU, conv.Conv2d):
    """A convolution over quantised images, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU2d


class ConvReLU3d(_ConvReLU, conv.Conv3d):
    """A convolution over quantised volumes, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU3d
