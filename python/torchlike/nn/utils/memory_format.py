"""Weights of convolutions in another order in memory."""

from __future__ import annotations

from typing import Any

from torchlike.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, kinds: tuple[Any, ...], memory_format: Any) -> Any:
    for part in module.modules():
        if isinstance(part, kinds):
            weight = part.weight.detach().clone()
            part.weight.data = weight.contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Gives the weights of all convolutions of images a memory format, in place."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Gives the weights of all convolutions of volumes a memory format, in place."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
