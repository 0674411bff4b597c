"""The gradients of convolutions by their inputs and weights, as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike

if TYPE_CHECKING:
    from torchlike import Tensor

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _gradients(n: int, input: Any, weight: Any, grad: Tensor, of: int, how: Any, groups: int) -> Tensor:  # fmt: skip
    """The gradient of an input (0) or weight (1), of which the sizes do."""
    both = [input, weight]
    both[of] = grad.new_empty(1).expand(both[of])
    stride, padding, dilation = ([v] * n if isinstance(v, int) else list(v) for v in how)
    wanted = (of == 0, of == 1, False)
    made: Tensor = torchlike.ops.aten.convolution_backward(
        grad, *both, None, stride, padding, dilation, False, [0], groups, wanted
    )[of]
    return made


def conv1d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` by an input of sizes `input_size`."""
    how = stride, padding, dilation
    return _gradients(1, input_size, weight, grad_output, 0, how, groups)


def conv1d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` by a weight of sizes `weight_size`."""
    how = stride, padding, dilation
    return _gradients(1, input, weight_size, grad_output, 1, how, groups)


def conv2d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` by an input of sizes `input_size`."""
    how = stride, padding, dilation
    return _gradients(2, input_size, weight, grad_output, 0, how, groups)


def conv2d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` by a weight of sizes `weight_size`."""
    how = stride, padding, dilation
    return _gradients(2, input, weight_size, grad_output, 1, how, groups)


def conv3d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` by an input of sizes `input_size`."""
    how = stride, padding, dilation
    return _gradients(3, input_size, weight, grad_output, 0, how, groups)


def conv3d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` by a weight of sizes `weight_size`."""
    how = stride, padding, dilation
    return _gradients(3, input, weight_size, grad_output, 1, how, groups)
