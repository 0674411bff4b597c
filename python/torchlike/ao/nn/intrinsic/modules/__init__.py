"""Sequences of layers that are one layer when they are quantised."""

from torchlike.ao.nn.intrinsic.modules.fused import *
from torchlike.ao.nn.intrinsic.modules.fused import _FusedModule as _FusedModule
