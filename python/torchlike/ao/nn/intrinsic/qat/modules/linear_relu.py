"""A linear layer with ReLU that rounds as a quantised one would."""

from __future__ import annotations

from typing import Any, ClassVar

from torchlike import nn
from torchlike.ao.nn.intrinsic.modules import fused as nni
from torchlike.ao.nn.qat.modules import linear

layers: Any = nn


__all__ = ["LinearReLU"]


class LinearReLU(linear.Linear, nni._FusedModule):
    """A linear layer whose weight is rounded, and ReLU."""

    _FLOAT_MODULE: ClassVar[Any] = nni.LinearReLU

    def forward(self, input: Any) -> Any:
        """The product with the rounded weight, without what is negative."""
        return nn.functional.relu(super().forward(input))

    def to_float(self) -> Any:
        """The layers of real numbers."""
        return nni.LinearReLU(linear.Linear.to_float(self), layers.ReLU())
