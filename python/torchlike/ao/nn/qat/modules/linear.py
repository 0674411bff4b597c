"""A linear layer that rounds its weight as a quantised one would."""

from __future__ import annotations

from typing import Any, ClassVar

from torchlike import nn
from torchlike.ao.nn.intrinsic.modules.fused import LinearReLU
from torchlike.ao.nn.qat.modules._checks import check_configured, check_float
from torchlike.nn.modules.linear import Linear as LinearLayer
from torchlike.nn.parameter import Parameter
from torchlike.nn.utils.parametrize import (
    is_parametrized,
    transfer_parametrizations_and_params,
    type_before_parametrizations,
)

layers: Any = nn


__all__ = ["Linear"]


class Linear(LinearLayer):
    """A linear layer whose weight is rounded."""

    _FLOAT_MODULE: ClassVar[Any] = layers.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        check_configured(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Any) -> Any:
        """The product with the rounded weight."""
        return nn.functional.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers, with the same parameters.

        Raises:
            AssertionError: if it is no such layer.
        """
        check_float(cls, mod)
        if type_before_parametrizations(mod) is LinearReLU:
            mod = mod[0]
        made: Any = cls(
            mod.in_features, mod.out_features, bias=mod.bias is not None, qconfig=mod.qconfig
        )
        for name in ("weight", "bias"):
            if is_parametrized(mod, name):
                transfer_parametrizations_and_params(mod, made, name)
            else:
                setattr(made, name, getattr(mod, name))
        return made

    def to_float(self) -> Any:
        """A layer of real numbers with parameters of the same values."""
        made = layers.Linear(self.in_features, self.out_features, self.bias is not None)
        made.weight = Parameter(self.weight.detach())
        if self.bias is not None:
            made.bias = Parameter(self.bias.detach())
        made.train(self.training)
        return made
