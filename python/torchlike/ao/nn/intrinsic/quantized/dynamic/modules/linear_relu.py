"""A linear layer with a quantised weight and ReLU."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._ops import ops
from torchlike.ao.nn.quantized.dynamic.modules import linear

__all__ = ["LinearReLU"]


class LinearReLU(linear.Linear):
    """A linear layer of real numbers without what is negative."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Any) -> Any:
        """The product with the weight, and the bias, without what is negative."""
        packed = self._packed_params
        if packed.dtype == torch.float16:
            made = ops.quantized.linear_relu_dynamic_fp16(x, packed._packed_params)
        else:
            made = ops.quantized.linear_relu_dynamic(x, packed._packed_params, True)
        return made if made.dtype == x.dtype else made.to(x.dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
