"""Collectives with gradients, which torchlike has not."""

from torchlike.distributed.nn import functional
