"""Collectives with gradients: there are no process groups."""

from torchlike.distributed.nn import functional
