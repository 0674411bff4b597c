"""Layers and functions of quantised tensors."""

from torchlike import _lazy
from torchlike.ao.nn.quantized.modules import *
from torchlike.ao.nn.quantized.modules import MaxPool2d as MaxPool2d

__getattr__ = _lazy.submodules("ao.nn.quantized", "dynamic", "functional", "modules", "reference")
