"""Sequences of layers that are one layer when they are quantised."""

from torchlike import _lazy
from torchlike.ao.nn.intrinsic.modules import *
from torchlike.ao.nn.intrinsic.modules import _FusedModule as _FusedModule

__getattr__ = _lazy.submodules("ao.nn.intrinsic", "modules", "qat", "quantized")
