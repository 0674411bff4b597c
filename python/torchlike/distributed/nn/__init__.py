"""Collectives with gradients: nothing connects processes yet."""

from torchlike.distributed.nn import functional
