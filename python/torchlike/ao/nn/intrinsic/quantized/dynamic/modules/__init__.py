"""Layers of quantised weights and real inputs with ReLU."""

from torchlike.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu import LinearReLU

__all__ = ["LinearReLU"]
