"""Quantised layers with ReLU."""

from torchlike.ao.nn.intrinsic.quantized.modules.bn_relu import BNReLU2d, BNReLU3d
from torchlike.ao.nn.intrinsic.quantized.modules.conv_relu import ConvReLU1d, ConvReLU2d, ConvReLU3d
from torchlike.ao.nn.intrinsic.quantized.modules.linear_relu import LinearReLU

__all__ = ["BNReLU2d", "BNReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearReLU"]
