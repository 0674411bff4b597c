"""Layers for training whose inputs will be quantised by their own range."""

from torchlike.ao.nn.qat.dynamic.modules.linear import Linear

__all__ = ["Linear"]
