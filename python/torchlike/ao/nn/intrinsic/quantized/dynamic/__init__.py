"""Layers of quantised weights and real inputs with ReLU."""

from torchlike import _lazy
from torchlike.ao.nn.intrinsic.quantized.dynamic.modules import *

__getattr__ = _lazy.submodules("ao.nn.intrinsic.quantized.dynamic", "modules")
