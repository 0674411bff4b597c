"""Layers that are one layer when they are quantised: sequences of them."""

from __future__ import annotations

from typing import Any

from torchlike.nn.modules.container import Sequential

# what arguments are called, by the words for layers, in their order
_ARGUMENTS = {
    "convolution": "conv",
    "linear layer": "linear",
    "batch norm": "bn",
    "Batch norm": "batch_norm",
    "ReLU": "relu",
}


class _FusedModule(Sequential):
    """Layers that belong together."""


def _sequence(name: str, what: str) -> Any:
    names = [_ARGUMENTS[word] for word in _ARGUMENTS if word in what]

    def init(self: Any, *layers: Any, **named: Any) -> None:
        missing = [n for n in names[len(layers) :] if n not in named]
        if missing or len(layers) + len(named) != len(names):
            raise TypeError(f"{name} takes the layers {', '.join(names)}")
        _FusedModule.__init__(self, *layers, *(named[n] for n in names[len(layers) :]))

    body = {"__module__": __name__, "__doc__": f"{what}, in this order.", "__init__": init}
    return type(name, (_FusedModule,), body)


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

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
]
