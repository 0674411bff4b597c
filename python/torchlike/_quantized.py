"""Pooling and normalisation of quantised tensors, as functions of PyTorch's."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import _C
from torchlike._function import overridable

__all__ = [
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "empty_quantized",
    "quantized_batch_norm",
    "quantized_max_pool1d",
    "quantized_max_pool2d",
    "quantized_max_pool3d",
]


def _check(name: str, t: Any) -> None:
    if not t.is_quantized or t.qscheme() != torchlike.per_tensor_affine:
        raise NotImplementedError(
            f"{name}(): the input must be a tensor quantised with one scale, not one of {t.dtype}"
        )


def _sizes(value: Any, count: int) -> list[int]:
    """An integer for all dimensions, or one a dimension."""
    sizes = [value] * count if isinstance(value, int) else list(value)
    return sizes + [0] * (count - len(sizes))


def _pooled(
    count: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Any:
    name = f"quantized_max_pool{count}d"
    _check(name, input)
    kernel = _sizes(kernel_size, count)
    if min(kernel) <= 0:
        raise RuntimeError("kernel_size should be greater than zero.")
    if count == 3 and input.dim() != 5:
        raise RuntimeError("Expecting the input tensor of rank 5.")
    steps = _sizes(stride, count) if isinstance(stride, int) or len(stride) else kernel
    pool: Any = getattr(torchlike, f"max_pool{count}d")
    return pool(input, kernel, steps, _sizes(padding, count), _sizes(dilation, count), ceil_mode)


def _stored(numbers: Any, dtype: Any, scale: float, zero_point: int) -> Any:
    """A quantised tensor with these integers."""
    kinds = {
        torchlike.quint8: torchlike.uint8,
        torchlike.qint8: torchlike.int8,
        torchlike.qint32: torchlike.int32,
    }
    root: Any = torchlike
    return root._make_per_tensor_quantized_tensor(numbers.to(kinds[dtype]), scale, zero_point)


@overridable
def quantized_max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """The largest of each window along the last dimension, of a quantised tensor.

    Raises:
        NotImplementedError: if it is not quantised with one scale.
    """
    return _pooled(1, input, kernel_size, stride, padding, dilation, ceil_mode)


@overridable
def quantized_max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """As :func:`quantized_max_pool1d`, along the last two dimensions."""
    return _pooled(2, input, kernel_size, stride, padding, dilation, ceil_mode)


@overridable
def quantized_max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """As :func:`quantized_max_pool1d`, along the last three dimensions of five."""
    return _pooled(3, input, kernel_size, stride, padding, dilation, ceil_mode)


@overridable
def quantized_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Any:
    """The normalisation of each channel by given means and variances, quantised anew.

    Raises:
        NotImplementedError: if the input is not quantised with one scale.
        RuntimeError: if there is no weight or bias.
    """
    _check("quantized_batch_norm", input)
    if weight is None or bias is None:
        raise RuntimeError("Weight must be provided" if weight is None else "Bias must be provided")
    shape = [1, -1] + [1] * (input.dim() - 2)
    formats = {4: torchlike.channels_last, 5: torchlike.channels_last_3d}
    input = input.contiguous(memory_format=formats.get(input.dim(), torchlike.contiguous_format))
    factor = weight / torchlike.sqrt(var + eps)
    shift = ((bias - mean * factor) / output_scale).reshape(shape)
    factor = (factor * (input.q_scale() / output_scale)).reshape(shape)
    centred = _C._integers(input).float() - input.q_zero_point()
    numbers = torchlike.round(centred * factor + shift) + output_zero_point
    ends = torchlike.iinfo(input.dtype)
    return _stored(numbers.clamp(ends.min, ends.max), input.dtype, output_scale, output_zero_point)


def _unwritten(size: Any, dtype: Any, memory_format: Any, options: dict[str, Any]) -> Any:
    """Numbers that are to be quantised, whose values nobody asked for."""
    if dtype not in (torchlike.quint8, torchlike.qint8, torchlike.qint32):
        raise RuntimeError(
            "Creation of quantized tensor requires quantized dtype like torch.quint8"
        )
    if memory_format is not None:
        options["memory_format"] = memory_format
    return torchlike.empty(tuple(size), dtype=torchlike.float32, **options).zero_()


def _empty_affine_quantized(
    size: Any,
    *,
    scale: float = 1,
    zero_point: int = 0,
    memory_format: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """A tensor of a size that is quantised with one scale."""
    made = _unwritten(size, dtype, memory_format, options)
    return torchlike.quantize_per_tensor(made, scale, zero_point, dtype)


def _empty_per_channel_affine_quantized(
    size: Any,
    *,
    scales: Any,
    zero_points: Any,
    axis: int,
    memory_format: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """A tensor of a size that is quantised with a scale for each channel."""
    made = _unwritten(size, dtype, memory_format, options)
    return torchlike.quantize_per_channel(made, scales, zero_points, axis, dtype)


def empty_quantized(size: Any, qtensor: Any, *, memory_format: Any = None, **options: Any) -> Any:
    """A tensor of another size that is quantised as `qtensor` is."""
    options.setdefault("device", qtensor.device)
    options.setdefault("dtype", qtensor.dtype)
    if qtensor.qscheme() == torchlike.per_tensor_affine:
        return _empty_affine_quantized(
            size,
            scale=qtensor.q_scale(),
            zero_point=qtensor.q_zero_point(),
            memory_format=memory_format,
            **options,
        )
    return _empty_per_channel_affine_quantized(
        size,
        scales=qtensor.q_per_channel_scales(),
        zero_points=qtensor.q_per_channel_zero_points(),
        axis=qtensor.q_per_channel_axis(),
        memory_format=memory_format,
        **options,
    )
