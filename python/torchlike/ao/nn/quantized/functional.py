"""Functions of quantised tensors."""

from __future__ import annotations

import warnings
from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import check_dimensions

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "celu",
    "clamp",
    "conv1d",
    "conv2d",
    "conv3d",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "leaky_relu",
    "linear",
    "max_pool1d",
    "max_pool2d",
    "threshold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

F: Any = nn.functional


def _check(name: str, t: Any) -> None:
    if not t.is_quantized:
        raise ValueError(f"Input to 'quantized.{name}' must be quantized!")


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of images."""
    _check("avg_pool2d", input)
    rest = stride, padding, ceil_mode, count_include_pad, divisor_override
    return F.avg_pool2d(input, kernel_size, *rest)


def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of volumes."""
    _check("avg_pool3d", input)
    rest = stride, padding, ceil_mode, count_include_pad, divisor_override
    return F.avg_pool3d(input, kernel_size, *rest)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The means of so many windows of images."""
    _check("functional.adaptive_avg_pool2d", input)
    return F.adaptive_avg_pool2d(input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """The means of so many windows of volumes."""
    _check("functional.adaptive_avg_pool3d", input)
    return F.adaptive_avg_pool3d(input, output_size)


def _convolve(
    count: int,
    input: Any,
    weight: Any,
    bias: Any,
    moves: tuple[Any, Any, Any],
    groups: int,
    padding_mode: str,
    scale: float,
    zero_point: int,
    dtype: Any,
) -> Any:
    if padding_mode != "zeros":
        raise NotImplementedError("Only zero-padding is supported!")
    if input.dtype != torch.quint8:
        raise NotImplementedError("Only torch.quint8 is supported for activation tensor!")
    if weight.dtype != torch.qint8:
        raise NotImplementedError("Only torch.qint8 is supported for weight tensor!")
    if dtype != torch.quint8:
        raise NotImplementedError("Only torch.quint8 is supported for activation tensor!")
    check_dimensions(input, count)
    spread = [list(m) if isinstance(m, list | tuple) else [m] * count for m in moves]
    packed = getattr(ops.quantized, f"conv{count}d_prepack")(weight, bias, *spread, groups)
    return getattr(ops.quantized, f"conv{count}d")(input, packed, scale, zero_point)


def conv1d(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: Any = torch.quint8,
) -> Any:
    """A convolution over sequences."""
    moves = stride, padding, dilation
    to = scale, zero_point, dtype
    return _convolve(1, input, weight, bias, moves, groups, padding_mode, *to)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: Any = torch.quint8,
) -> Any:
    """A convolution over images."""
    moves = stride, padding, dilation
    to = scale, zero_point, dtype
    return _convolve(2, input, weight, bias, moves, groups, padding_mode, *to)


def conv3d(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: Any = torch.quint8,
) -> Any:
    """A convolution over volumes."""
    moves = stride, padding, dilation
    to = scale, zero_point, dtype
    return _convolve(3, input, weight, bias, moves, groups, padding_mode, *to)


def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """Images of another size."""
    _check("interpolate", input)
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    """The product with a weight, quantised as the input unless told otherwise."""
    scale = input.q_scale() if scale is None else scale
    zero_point = input.q_zero_point() if zero_point is None else zero_point
    packed = ops.quantized.linear_prepack(weight, bias)
    return ops.quantized.linear(input, packed, scale, zero_point)


def _largest(
    name: str,
    input: Any,
    kernel_size: Any,
    rest: tuple[Any, Any, Any],
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    if return_indices:
        raise NotImplementedError("return_indices is not yet implemented!")
    stride, padding, dilation = rest
    stride = [] if stride is None else stride
    return getattr(torch, name)(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of sequences."""
    rest = stride, padding, dilation
    return _largest("max_pool1d", input, kernel_size, rest, ceil_mode, return_indices)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of images."""
    rest = stride, padding, dilation
    return _largest("max_pool2d", input, kernel_size, rest, ceil_mode, return_indices)


def celu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """The exponential linear unit whose slope has no jump."""
    _check("celu", input)
    return ops.quantized.celu(input, scale, zero_point, alpha)


def leaky_relu(
    input: Any,
    negative_slope: float = 0.01,
    inplace: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    """What is negative times a slope."""
    if scale is not None and zero_point is not None:
        if inplace:
            raise AssertionError("Cannot rescale with `inplace`")
        return ops.quantized.leaky_relu(input, negative_slope, inplace, scale, zero_point)
    return F.leaky_relu(input, negative_slope, inplace)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Clamped."""
    _check("hardtanh", input)
    return F.hardtanh(input, min_val, max_val, inplace)


def hardswish(input: Any, scale: float, zero_point: int) -> Any:
    """The product with a ramp between -3 and 3."""
    _check("hardswish", input)
    return ops.quantized.hardswish(input, scale, zero_point)


def threshold(input: Any, threshold: float, value: float) -> Any:
    """A value in place of what is not larger than a threshold."""
    _check("threshold", input)
    if threshold is None:
        raise ValueError("Input to 'threshold' must be specified!")
    if value is None:
        raise ValueError("Input to 'value' must be specified!")
    return F.threshold(input, threshold, value)


def elu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """The exponential linear unit."""
    _check("elu", input)
    return ops.quantized.elu(input, scale, zero_point, alpha)


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """A ramp from 0 to 1 between -3 and 3."""
    _check("hardsigmoid", input)
    return F.hardsigmoid(input, inplace)


def clamp(input: Any, min_: float, max_: float) -> Any:
    """Clamped."""
    _check("clamp", input)
    return torch.clamp(input, min_, max_)


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Any:
    """The old name of :func:`interpolate`."""
    _warn("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Bilinear interpolation whose corners lie on corners."""
    _warn("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """The nearest elements."""
    _warn("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def _warn(name: str) -> None:
    warnings.warn(
        f"nn.quantized.functional.{name} is deprecated. Use nn.quantized.functional.interpolate instead.",
        stacklevel=3,
    )
