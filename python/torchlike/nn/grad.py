"""Gradients of convolutions by themselves: by the input, and by the weight."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.nn.modules.utils import _pair, _single, _triple

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _backward(grad: Any, input: Any, weight: Any, spread: Any, settings: Any, which: int) -> Any:
    """One gradient of a convolution: 0 is the input's, 1 the weight's."""
    stride, padding, dilation, groups = settings
    mask = [i == which for i in range(3)]
    made = torchlike.ops.aten.convolution_backward(
        grad,
        input,
        weight,
        None,
        spread(stride),
        spread(padding),
        spread(dilation),
        False,
        spread(0),
        groups,
        mask,
    )
    return made[which]


def _by_input(spread: Any, input_size: Any, weight: Any, grad_output: Any, *settings: Any) -> Any:
    return _backward(
        grad_output, grad_output.new_empty(1).expand(input_size), weight, spread, settings, 0
    )


def _by_weight(spread: Any, input: Any, weight_size: Any, grad_output: Any, *settings: Any) -> Any:
    return _backward(
        grad_output, input, grad_output.new_empty(1).expand(weight_size), spread, settings, 1
    )


def conv1d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv1d` by an input of this size."""
    return _by_input(_single, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv1d` by a weight of this size."""
    return _by_weight(_single, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv2d` by an input of this size."""
    return _by_input(_pair, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv2d` by a weight of this size."""
    return _by_weight(_pair, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Any,
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv3d` by an input of this size."""
    return _by_input(_triple, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Any,
    weight_size: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The gradient of `conv3d` by a weight of this size."""
    return _by_weight(_triple, input, weight_size, grad_output, stride, padding, dilation, groups)
