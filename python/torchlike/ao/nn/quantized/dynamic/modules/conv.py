"""Convolutions of real numbers with quantised weights."""

from __future__ import annotations

import warnings
from typing import Any

from torchlike import nn
from torchlike.ao.nn.quantized.modules import conv

layers: Any = nn


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Dynamic(conv._ConvNd):
    """A convolution that quantises its input by its own range."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"The current implementation of the {self._get_name_of_kind()} module has poor numerical accuracy and its "
            "use is not recommended",
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)

    def _get_name_of_kind(self) -> str:
        return type(self).__name__

    def _get_name(self) -> str:
        return "DynamicQuantized" + super()._get_name().removeprefix("Quantized")

    def forward(self, input: Any, reduce_range: bool = True) -> Any:
        """The convolution with the weight, and the bias."""
        input = self._padded(input)
        return self._operator("_dynamic")(input, self._packed_params, reduce_range)


class Conv1d(_Dynamic, conv.Conv1d):
    """A convolution over sequences."""

    _FLOAT_MODULE = layers.Conv1d


class Conv2d(_Dynamic, conv.Conv2d):
    """A convolution over images."""

    _FLOAT_MODULE = layers.Conv2d


class Conv3d(_Dynamic, conv.Conv3d):
    """A convolution over volumes."""

    _FLOAT_MODULE = layers.Conv3d


class ConvTranspose1d(_Dynamic, conv.ConvTranspose1d):
    """A transposed convolution over sequences."""

    _FLOAT_MODULE = layers.ConvTranspose1d


class ConvTranspose2d(_Dynamic, conv.ConvTranspose2d):
    """A transposed convolution over images."""

    _FLOAT_MODULE = layers.ConvTranspose2d


class ConvTranspose3d(_Dynamic, conv.ConvTranspose3d):
    """A transposed convolution over volumes."""

    _FLOAT_MODULE = layers.ConvTranspose3d
