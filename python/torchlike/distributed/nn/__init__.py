"""Collectives with gradients."""

from torchlike.distributed.nn import functional
from torchlike.distributed.nn.functional import *
