"""Observers, modules that round as integers would, and stubs; no model is changed into one of integers."""

from __future__ import annotations

import enum
from typing import Any

from torchlike import _absent, nn
from torchlike.ao.quantization.fake_quantize import *
from torchlike.ao.quantization.observer import *
from torchlike.ao.quantization.qconfig import *

_why = "no model is quantised"


class QuantStub(nn.Module):
    """Where values would be quantised; they pass as they are."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The input."""
        return x


class DeQuantStub(nn.Module):
    """Where values would be real numbers again; they pass as they are."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """The input."""
        return x


class QuantWrapper(nn.Module):
    """A module between two stubs."""

    quant: QuantStub
    dequant: DeQuantStub
    module: nn.Module

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(qconfig))
        self.add_module("dequant", DeQuantStub(qconfig))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        """The module's result."""
        return self.dequant(self.module(self.quant(X)))


class QuantType(enum.IntEnum):
    """When values would be quantised."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


globals().update(
    _absent.names(
        __name__,
        _why,
        "quantize quantize_dynamic quantize_qat prepare prepare_qat convert quantize_jit quantize_dynamic_jit "
        "fuse_modules fuse_modules_qat fuse_conv_bn fuse_conv_bn_relu fuse_linear_bn propagate_qconfig_ swap_module "
        "add_quant_dequant get_default_qconfig_mapping get_default_qat_qconfig_mapping default_eval_fn QConfigMapping",
    )
)
