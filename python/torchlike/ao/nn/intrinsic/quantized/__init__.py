"""Quantised layers with ReLU."""

from torchlike import _lazy
from torchlike.ao.nn.intrinsic.quantized.modules import *

__getattr__ = _lazy.submodules("ao.nn.intrinsic.quantized", "dynamic", "modules")
