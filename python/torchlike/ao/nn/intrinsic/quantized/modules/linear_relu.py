"""A quantised linear layer with ReLU."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._ops import ops
from torchlike.ao.nn import intrinsic as nni
from torchlike.ao.nn.quantized.modules import linear

__all__ = ["LinearReLU"]


class LinearReLU(linear.Linear):
    """A linear layer of quantised tensors without what is negative."""

    _FLOAT_MODULE = nni.LinearReLU

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Any) -> Any:
        """The product with the weight, and the bias, without what is negative."""
        return ops.quantized.linear_relu(
            x, self._packed_params._packed_params, self.scale, self.zero_point
        )

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"
