"""Channels become pixels, and pixels channels."""

from __future__ import annotations

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]

Tensor = torch.Tensor


class PixelShuffle(Module):
    """Turns channels into finer pixels."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Turns pixels into channels."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
