"""Convolutions with batch norm and ReLU that round as quantised ones would."""

from __future__ import annotations

from typing import Any, ClassVar

from torchlike import nn
from torchlike.ao.nn.intrinsic.modules import fused as nni
from torchlike.ao.nn.intrinsic.qat.modules._norm import (
    _WithNorm,
    freeze_bn_stats,
    update_bn_stats,
)
from torchlike.ao.nn.qat.modules import conv
from torchlike.ao.nn.qat.modules._checks import check_float
from torchlike.nn.modules.conv import Conv1d as Conv1dLayer
from torchlike.nn.modules.conv import Conv2d as Conv2dLayer
from torchlike.nn.modules.conv import Conv3d as Conv3dLayer
from torchlike.nn.parameter import Parameter
from torchlike.nn.utils.fusion import fuse_conv_bn_weights

layers: Any = nn


__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "freeze_bn_stats",
    "update_bn_stats",
]


# What batch norm's values were called when they were the layer's own.
_OLD_NAMES = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "running_mean",
    "running_var": "running_var",
    "num_batches_tracked": "num_batches_tracked",
}


class _ConvBnNd(_WithNorm):
    """A convolution and batch norm whose weight is rounded."""

    _version = 2
    _FLOAT_MODULE: ClassVar[Any]
    _FLOAT_CONV_MODULE: ClassVar[Any]
    _FLOAT_BN_MODULE: ClassVar[Any]
    _FUSED_FLOAT_MODULE: ClassVar[Any]
    _RELU = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: Any = None,
        padding_mode: str = "zeros",
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        moves = stride, padding, dilation, groups, False, padding_mode
        self._FLOAT_CONV_MODULE.__init__(self, in_channels, out_channels, kernel_size, *moves)
        bn = self._FLOAT_BN_MODULE(out_channels, eps, momentum, True, True)
        self._normed(bn, out_channels, bool(bias), freeze_bn, qconfig)

    def forward(self, input: Any) -> Any:
        """The convolution with the rounded weight, and batch norm."""
        own: Any = self
        made = self._rounded(own._conv_forward, input, own.out_channels, self.weight.dim())
        made = self.bn(made)
        return nn.functional.relu(made) if self._RELU else made

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layers of a sequence of real numbers, with the same parameters.

        Raises:
            AssertionError: if it is no such sequence.
        """
        check_float(cls, mod)
        of, bn = mod[0], mod[1]
        sizes = of.in_channels, of.out_channels, of.kernel_size, of.stride, of.padding, of.dilation
        rest = of.groups, of.bias is not None, of.padding_mode, bn.eps, bn.momentum, False
        return cls(*sizes, *rest, mod.qconfig)._take(of, bn)

    def to_float(self) -> Any:
        """A convolution of real numbers that batch norm is a part of, and ReLU."""
        own: Any = self
        moves = own.stride, own.padding, own.dilation, own.groups, own.bias is not None
        sizes = own.in_channels, own.out_channels, own.kernel_size
        made = self._FLOAT_CONV_MODULE(*sizes, *moves, own.padding_mode)
        weight, bias = self._folded(fuse_conv_bn_weights)
        made.weight, made.bias = Parameter(weight.detach()), Parameter(bias.detach())
        if not self._RELU:
            made.train(self.training)
            return made
        fused = self._FUSED_FLOAT_MODULE(made, layers.ReLU())
        fused.train(self.training)
        return fused

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if local_metadata.get("version", None) in (None, 1):
            for name, old in _OLD_NAMES.items():
                if prefix + old in state_dict:
                    state_dict[f"{prefix}bn.{name}"] = state_dict.pop(prefix + old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class ConvBn1d(_ConvBnNd, Conv1dLayer):
    """A convolution over sequences, and batch norm."""

    _FLOAT_MODULE = nni.ConvBn1d
    _FLOAT_CONV_MODULE = layers.Conv1d
    _FLOAT_BN_MODULE = layers.BatchNorm1d
    _FUSED_FLOAT_MODULE = nni.ConvReLU1d


class ConvBn2d(_ConvBnNd, Conv2dLayer):
    """A convolution over images, and batch norm."""

    _FLOAT_MODULE = nni.ConvBn2d
    _FLOAT_CONV_MODULE = layers.Conv2d
    _FLOAT_BN_MODULE = layers.BatchNorm2d
    _FUSED_FLOAT_MODULE = nni.ConvReLU2d


class ConvBn3d(_ConvBnNd, Conv3dLayer):
    """A convolution over volumes, and batch norm."""

    _FLOAT_MODULE = nni.ConvBn3d
    _FLOAT_CONV_MODULE = layers.Conv3d
    _FLOAT_BN_MODULE = layers.BatchNorm3d
    _FUSED_FLOAT_MODULE = nni.ConvReLU3d


class ConvBnReLU1d(ConvBn1d):
    """A convolution over sequences, batch norm and ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU1d
    _RELU = True


class ConvBnReLU2d(ConvBn2d):
    """A convolution over images, batch norm and ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU2d
    _RELU = True


class ConvBnReLU3d(ConvBn3d):
    """A convolution over volumes, batch norm and ReLU."""

    _FLOAT_MODULE = nni.ConvBnReLU3d
    _RELU = True


class _ConvReLU:
    """A convolution whose weight is rounded, and ReLU."""

    def forward(self, input: Any) -> Any:
        """The convolution with the rounded weight, without what is negative."""
        own: Any = self
        weight = own.weight_fake_quant(own.weight)
        return nn.functional.relu(own._conv_forward(input, weight, own.bias))


class ConvReLU1d(_ConvReLU, conv.Conv1d, nni._FusedModule):
    """A convolution over sequences, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU1d


class ConvReLU2d(_ConvReLU, conv.Conv2d, nni._FusedModule):
    """A convolution over images, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU2d


class ConvReLU3d(_ConvReLU, conv.Conv3d, nni._FusedModule):
    """A convolution over volumes, and ReLU."""

    _FLOAT_MODULE = nni.ConvReLU3d
