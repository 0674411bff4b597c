"""Layers of quantised weights whose inputs are real numbers, which are quantised meanwhile."""

from torchlike import _lazy
from torchlike.ao.nn.quantized.dynamic.modules import *

__getattr__ = _lazy.submodules("ao.nn.quantized.dynamic", "modules")
