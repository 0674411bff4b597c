"""Batch norm behind a layer whose weight is rounded as the two together will be."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike.ao.nn.intrinsic.modules.fused import _FusedModule
from torchlike.ao.nn.qat.modules._checks import check_configured
from torchlike.nn import init
from torchlike.nn.parameter import Parameter

layers: Any = nn


class _WithNorm(_FusedModule):
    """A layer, its batch norm, and what rounds its weight."""

    bn: Any
    weight: Any
    bias: Any
    freeze_bn: bool

    def _normed(self, bn: Any, channels: int, bias: bool, freeze_bn: bool, qconfig: Any) -> None:
        """Gives a layer without bias its batch norm and what rounds its weight."""
        check_configured(qconfig)
        self.qconfig = qconfig
        self.bn = bn
        self.weight_fake_quant = qconfig.weight()
        if bias:
            self.bias = Parameter(torch.empty(channels))
        else:
            self.register_parameter("bias", None)
        self.reset_bn_parameters()
        frozen = freeze_bn or not self.training
        if frozen:
            self.freeze_bn_stats()
        else:
            self.update_bn_stats()

    def reset_running_stats(self) -> None:
        """Sets the means and variances back."""
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        """Sets the batch norm back, and the bias anew."""
        self.bn.reset_running_stats()
        init.uniform_(self.bn.weight)
        init.zeros_(self.bn.bias)
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def update_bn_stats(self) -> Any:
        """Lets means and variances follow the batches."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Any:
        """Keeps means and variances as they are."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self, mode: bool = True) -> Any:
        """Sets the mode; a batch norm that is frozen stays so."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def _rounded(self, run: Any, input: Any, channels: int, dims: int) -> Any:
        """The layer with the weight that the two together have, rounded, and its results before batch norm."""
        factor = self.bn.weight / torch.sqrt(self.bn.running_var + self.bn.eps)
        across = [1] * dims
        rows = [-1, *across[1:]]
        weight = self.weight_fake_quant(self.weight * factor.reshape(rows))
        zeros = torch.zeros(channels, device=weight.device, dtype=input.dtype)
        across[1] = -1
        made = run(input, weight, zeros) / factor.reshape(across)
        return made if self.bias is None else made + self.bias.reshape(across)

    def _folded(self, fuse: Any) -> tuple[Any, Any]:
        """The weight and the bias of a layer that batch norm is a part of, by what fuses them."""
        bn = self.bn
        stats = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        weight, bias = fuse(self.weight, self.bias, *stats)
        return weight, bias

    def _take(self, layer: Any, bn: Any) -> Any:
        """The parameters of others."""
        self.weight, self.bias = layer.weight, layer.bias
        self.bn.weight, self.bn.bias = bn.weight, bn.bias
        self.bn.running_mean, self.bn.running_var = bn.running_mean, bn.running_var
        self.bn.num_batches_tracked = bn.num_batches_tracked
        return self


def freeze_bn_stats(mod: Any) -> None:
    """Keeps the means and variances of a layer as they are; for `Module.apply`."""
    if isinstance(mod, _WithNorm) and not isinstance(mod, layers.Linear):
        mod.freeze_bn_stats()


def update_bn_stats(mod: Any) -> None:
    """Lets the means and variances of a layer follow the batches; for `Module.apply`."""
    if isinstance(mod, _WithNorm) and not isinstance(mod, layers.Linear):
        mod.update_bn_stats()
