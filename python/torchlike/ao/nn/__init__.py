"""Layers of quantised models."""

from torchlike import _lazy

__getattr__ = _lazy.submodules("ao.nn", "intrinsic", "qat", "quantized")
