"""Layers that a quantised model would join: sequences of them."""

from __future__ import annotations

from typing import Any

from torchlike.nn.modules.container import Sequential


class _FusedModule(Sequential):
    """Layers that belong together."""


def _sequence(name: str, what: str) -> Any:
    return type(
        name, (_FusedModule,), {"__module__": __name__, "__doc__": f"{what}, in this order."}
    )


ConvReLU1d = _sequence("ConvReLU1d", "A convolution and ReLU")
ConvReLU2d = _sequence("ConvReLU2d", "A convolution and ReLU")
ConvReLU3d = _sequence("ConvReLU3d", "A convolution and ReLU")
LinearReLU = _sequence("LinearReLU", "A linear layer and ReLU")
ConvBn1d = _sequence("ConvBn1d", "A convolution and batch norm")
ConvBn2d = _sequence("ConvBn2d", "A convolution and batch norm")
ConvBn3d = _sequence("ConvBn3d", "A convolution and batch norm")
ConvBnReLU1d = _sequence("ConvBnReLU1d", "A convolution, batch norm and ReLU")
ConvBnReLU2d = _sequence("ConvBnReLU2d", "A convolution, batch norm and ReLU")
ConvBnReLU3d = _sequence("ConvBnReLU3d", "A convolution, batch norm and ReLU")
BNReLU2d = _sequence("BNReLU2d", "Batch norm and ReLU")
BNReLU3d = _sequence("BNReLU3d", "Batch norm and ReLU")
LinearBn1d = _sequence("LinearBn1d", "A linear layer and batch norm")
