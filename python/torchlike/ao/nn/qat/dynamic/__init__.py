"""Layers for training whose inputs will be quantised by their own range."""

from torchlike import _lazy
from torchlike.ao.nn.qat.dynamic.modules import *

__getattr__ = _lazy.submodules("ao.nn.qat.dynamic", "modules")
