"""Batch norm of quantised tensors, by means and variances that are known."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops

layers: Any = nn


__all__ = ["BatchNorm2d", "BatchNorm3d"]


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm whose results have a scale and a zero point."""

    _operator = ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, True, True, device=device, dtype=dtype)
        self.register_buffer("scale", torch.tensor(1.0, device=device, dtype=dtype))
        self.register_buffer("zero_point", torch.tensor(0, device=device, dtype=dtype))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def forward(self, input: Any) -> Any:
        """The input, normalised."""
        stats = self.running_mean, self.running_var, self.eps, self.scale, self.zero_point
        return getattr(ops.quantized, self._operator)(input, self.weight, self.bias, *stats)

    def _take(self, bn: Any, scale: Any, zero_point: Any) -> Any:
        self.weight, self.bias = bn.weight, bn.bias
        self.running_mean, self.running_var = bn.running_mean, bn.running_var
        self.scale, self.zero_point = torch.as_tensor(scale), torch.as_tensor(zero_point)
        return self

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one."""
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        if isinstance(mod, layers.Sequential):
            mod = mod[0]
        return cls(mod.num_features, mod.eps)._take(mod, scale, zero_point)

    @classmethod
    def from_reference(cls, bn: Any, output_scale: float, output_zero_point: int) -> Any:
        """The layer of a reference layer."""
        made = cls(bn.num_features, bn.eps, bn.momentum)
        return made._take(bn, output_scale, output_zero_point)


class BatchNorm2d(_BatchNorm):
    """Batch norm of quantised images."""

    _operator = "batch_norm2d"


class BatchNorm3d(_BatchNorm):
    """Batch norm of quantised volumes."""

    _operator = "batch_norm3d"
