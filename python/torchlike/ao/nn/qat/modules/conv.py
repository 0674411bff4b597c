"""Convolutions that round their weights as quantised ones would."""

from __future__ import annotations

from typing import Any, ClassVar

from torchlike import nn
from torchlike.ao.nn.intrinsic.modules.fused import _FusedModule
from torchlike.ao.nn.qat.modules._checks import check_configured, check_float
from torchlike.nn.modules.conv import Conv1d as Conv1dLayer
from torchlike.nn.modules.conv import Conv2d as Conv2dLayer
from torchlike.nn.modules.conv import Conv3d as Conv3dLayer
from torchlike.nn.parameter import Parameter

layers: Any = nn


__all__ = ["Conv1d", "Conv2d", "Conv3d"]


class _ConvNd(nn.modules.conv._ConvNd):
    """A convolution whose weight is rounded."""

    _FLOAT_MODULE: ClassVar[Any]
    _FLOAT_CONV_MODULE: ClassVar[Any]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        moves = kernel_size, stride, padding, dilation, groups, bias, padding_mode
        made: Any = super().__init__
        made(in_channels, out_channels, *moves, device=device, dtype=dtype)
        check_configured(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Any) -> Any:
        """The convolution with the rounded weight."""
        own: Any = self
        return own._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers, with the same parameters.

        Raises:
            AssertionError: if it is no such layer.
        """
        check_float(cls, mod)
        if isinstance(mod, _FusedModule):
            mod = mod[0]
        moves = mod.stride, mod.padding, mod.dilation, mod.groups, mod.bias is not None
        sizes = mod.in_channels, mod.out_channels, mod.kernel_size
        made = cls(*sizes, *moves, mod.padding_mode, qconfig=mod.qconfig)
        made.weight, made.bias = mod.weight, mod.bias
        return made

    def _float_conv(self) -> Any:
        """A convolution of real numbers with parameters of the same values."""
        moves = self.stride, self.padding, self.dilation, self.groups, self.bias is not None
        sizes = self.in_channels, self.out_channels, self.kernel_size
        made = type(self)._FLOAT_CONV_MODULE(*sizes, *moves, self.padding_mode)
        made.weight = Parameter(self.weight.detach())
        if self.bias is not None:
            made.bias = Parameter(self.bias.detach())
        return made

    def to_float(self) -> Any:
        """The layers of real numbers that it was made of."""
        conv = self._float_conv()
        if not isinstance(self, _FusedModule):
            return conv
        fused = type(self)._FLOAT_MODULE(conv, layers.ReLU())
        fused.train(self.training)
        return fused


class Conv1d(_ConvNd, Conv1dLayer):
    """A convolution over sequences whose weight is rounded."""

    _FLOAT_MODULE = layers.Conv1d
    _FLOAT_CONV_MODULE = layers.Conv1d


class Conv2d(_ConvNd, Conv2dLayer):
    """A convolution over images whose weight is rounded."""

    _FLOAT_MODULE = layers.Conv2d
    _FLOAT_CONV_MODULE = layers.Conv2d


class Conv3d(_ConvNd, Conv3dLayer):
    """A convolution over volumes whose weight is rounded."""

    _FLOAT_MODULE = layers.Conv3d
    _FLOAT_CONV_MODULE = layers.Conv3d
