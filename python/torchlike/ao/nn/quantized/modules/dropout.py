"""Dropout among quantised layers."""

from __future__ import annotations

from typing import Any

from torchlike import nn
from torchlike.nn.modules.dropout import Dropout as DropoutLayer

layers: Any = nn


__all__ = ["Dropout"]


class Dropout(DropoutLayer):
    """Dropout, which leaves quantised tensors as they are."""

    def forward(self, input: Any) -> Any:
        """The input."""
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers."""
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The layer of a reference layer."""
        return cls(mod.p, mod.inplace)
