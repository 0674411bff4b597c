"""Channels in another order."""

from __future__ import annotations

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.module import Module

__all__ = ["ChannelShuffle"]

Tensor = torch.Tensor


class ChannelShuffle(Module):
    """Interleaves groups of channels."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
