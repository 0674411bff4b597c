"""Layers that round their weights as quantised ones would, for training."""

from torchlike import _lazy
from torchlike.ao.nn.qat.modules import *

__getattr__ = _lazy.submodules("ao.nn.qat", "dynamic", "modules")
