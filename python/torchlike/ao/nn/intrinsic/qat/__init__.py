"""Sequences of layers for training that round as quantised ones would."""

from torchlike import _lazy
from torchlike.ao.nn.intrinsic.qat.modules import *

__getattr__ = _lazy.submodules("ao.nn.intrinsic.qat", "modules")
