"""Quantisation of models: its stubs and settings; no model is quantised."""

from torchlike import _lazy

__getattr__ = _lazy.submodules("ao", "nn", "quantization")
