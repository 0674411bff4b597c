"""Activations and dropout of `nn.functional` as TorchScript."""

from __future__ import annotations

import torchlike
from torchlike import Tensor

aten = torchlike.ops.aten


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.relu_(input) if inplace else aten.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.hardtanh_(input, 0.0, 6.0) if inplace else aten.hardtanh(input, 0.0, 6.0)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    return (
        aten.hardtanh_(input, min_val, max_val)
        if inplace
        else aten.hardtanh(input, min_val, max_val)
    )


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.hardswish_(input) if inplace else aten.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.hardsigmoid_(input) if inplace else aten.hardsigmoid(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.silu_(input) if inplace else aten.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.mish_(input) if inplace else aten.mish(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return aten.elu_(input, alpha) if inplace else aten.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    return aten.selu_(input) if inplace else aten.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return aten.celu_(input, alpha) if inplace else aten.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    return (
        aten.leaky_relu_(input, negative_slope)
        if inplace
        else aten.leaky_relu(input, negative_slope)
    )


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    return (
        aten.threshold_(input, threshold, value)
        if inplace
        else aten.threshold(input, threshold, value)
    )


def rrelu(
    input: Tensor,
    lower: float = 0.125,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    if inplace:
        return aten.rrelu_(input, lower, upper, training)
    return aten.rrelu(input, lower, upper, training)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return aten.gelu(input, approximate=approximate)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    return aten.glu(input, dim)


def logsigmoid(input: Tensor) -> Tensor:
    return aten.log_sigmoid(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return aten.softplus(input, beta, threshold)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    return aten.softshrink(input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    return aten.hardshrink(input, lambd)


def softsign(input: Tensor) -> Tensor:
    return input / (aten.abs(input) + 1)


def tanhshrink(input: Tensor) -> Tensor:
    return input - aten.tanh(input)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None
) -> Tensor:
    return aten.softmax(aten.neg(input), -1 if dim is None else dim, dtype)


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None
) -> Tensor:
    return aten.softmax(input, -1 if dim is None else dim, dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None
) -> Tensor:
    return aten.log_softmax(input, -1 if dim is None else dim, dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return aten.dropout_(input, p, training) if inplace else aten.dropout(input, p, training)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    return (
        aten.alpha_dropout_(input, p, training)
        if inplace
        else aten.alpha_dropout(input, p, training)
    )


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    if inplace:
        return aten.feature_alpha_dropout_(input, p, training)
    return aten.feature_alpha_dropout(input, p, training)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    batched = aten.unsqueeze(input, 0) if input.dim() == 2 else input
    made = (
        aten.feature_dropout_(batched, p, training)
        if inplace
        else aten.feature_dropout(batched, p, training)
    )
    return aten.squeeze(made, 0) if input.dim() == 2 else made


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return (
        aten.feature_dropout_(input, p, training)
        if inplace
        else aten.feature_dropout(input, p, training)
    )


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return (
        aten.feature_dropout_(input, p, training)
        if inplace
        else aten.feature_dropout(input, p, training)
    )
