"""A linear layer with batch norm that rounds as a quantised one would."""

from __future__ import annotations

from typing import Any, ClassVar

from torchlike import nn
from torchlike.ao.nn.intrinsic.modules import fused as nni
from torchlike.ao.nn.intrinsic.qat.modules._norm import _WithNorm
from torchlike.ao.nn.qat.modules._checks import check_float
from torchlike.nn.modules.linear import Linear as LinearLayer
from torchlike.nn.parameter import Parameter
from torchlike.nn.utils.fusion import fuse_linear_bn_weights

layers: Any = nn


__all__ = ["LinearBn1d"]


class LinearBn1d(_WithNorm, LinearLayer):
    """A linear layer and batch norm whose weight is rounded."""

    _FLOAT_MODULE: ClassVar[Any] = nni.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        layers.Linear.__init__(self, in_features, out_features, False)
        bn = layers.BatchNorm1d(out_features, eps, momentum, True, True)
        self._normed(bn, out_features, bias, freeze_bn, qconfig)

    def forward(self, input: Any) -> Any:
        """The product with the rounded weight, and batch norm."""
        linear = nn.functional.linear
        return self.bn(self._rounded(linear, input, self.out_features, 2))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layers of a sequence of real numbers, with the same parameters.

        Raises:
            AssertionError: if it is no such sequence.
        """
        check_float(cls, mod)
        of, bn = mod[0], mod[1]
        rest = of.bias is not None, bn.eps, bn.momentum, False, mod.qconfig
        return cls(of.in_features, of.out_features, *rest)._take(of, bn)

    def to_float(self) -> Any:
        """A linear layer of real numbers that batch norm is a part of."""
        made = layers.Linear(self.in_features, self.out_features)
        weight, bias = self._folded(fuse_linear_bn_weights)
        made.weight, made.bias = Parameter(weight.detach()), Parameter(bias.detach())
        return made
