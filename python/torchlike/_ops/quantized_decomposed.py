"""The operators `quantized_decomposed`: quantised numbers are plain integers, what they stand for is said by arguments.

Exported programs of quantised models are made of them. Their schemas are the file beside this one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torchlike as torch
from torchlike._ops import ops
from torchlike.ao.quantization.utils import determine_qparams, validate_qmin_qmax
from torchlike.autograd import Function

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
KERNELS: dict[str, dict[str, Callable[..., Any]]] = {}

_BOUNDS: dict[Any, tuple[int, int]] = {
    **{
        d: (torch.iinfo(d).min, torch.iinfo(d).max)
        for d in (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32)
    },
    **{
        d: (int(torch.finfo(d).min), int(torch.finfo(d).max))
        for d in (torch.float8_e5m2, torch.float8_e4m3fn)
    },
}
_HALVES = (torch.float16, torch.bfloat16)


def kernel(*names: str, key: str = "CompositeExplicitAutograd") -> Callable[[F], F]:
    """Takes a function as the kernel of overloads, as a decorator."""

    def taken(fn: F) -> F:
        for name in names:
            KERNELS.setdefault(name, {})[key] = fn
        return fn

    return taken


def _check(met: bool, text: str) -> None:
    if not met:
        raise AssertionError(text)


def _check_bounds(low: int, high: int, dtype: Any) -> None:
    if dtype not in _BOUNDS:
        raise ValueError(f"Unsupported dtype: {dtype}")
    least, most = _BOUNDS[dtype]
    _check(
        low >= least,
        f"quant_min out of bounds for dtype, quant_min_lower_bound: {least} quant_min: {low}",
    )
    _check(
        high <= most,
        f"quant_max out of bounds for dtype, quant_max_upper_bound: {most} quant_max: {high}",
    )


def _single(input: Any) -> Any:
    """Numbers in single precision; 16-bit ones are converted."""
    input = input.to(torch.float32) if input.dtype in _HALVES else input
    _check(
        input.dtype == torch.float32,
        f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}",
    )
    return input


def _check_of_one(scale: Any, zero_point: Any) -> None:
    for name, t in (("zero_point", zero_point), ("scale", scale)):
        _check(
            t.numel() == 1,
            f"Expecting {name} tensor to be one element, but received : {t.numel()}",
        )


@kernel("quantize_per_tensor")
def quantize_per_tensor(
    input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    """The nearest integers, one scale for all."""
    input = _single(input)
    _check_bounds(quant_min, quant_max, dtype)
    steps = torch.round(input * (1.0 / scale)) + zero_point
    return torch.clamp(steps, quant_min, quant_max).to(dtype)


@kernel("quantize_per_tensor.tensor", "quantize_per_tensor.tensor2")
def _quantize_by_tensors(
    input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Any:
    _check_of_one(scale, zero_point)
    low, high = int(quant_min), int(quant_max)
    return quantize_per_tensor(input, scale.item(), zero_point.item(), low, high, dtype)


@kernel("quantize_per_tensor", key="Meta")
def _quantized_outline(input: Any, *given: Any) -> Any:
    return torch.empty_like(_single(input), dtype=given[-1])


@kernel("quantize_per_tensor.tensor", "quantize_per_tensor.tensor2", key="Meta")
def _quantized_by_tensors_outline(input: Any, scale: Any, zero_point: Any, *given: Any) -> Any:
    _check_of_one(scale, zero_point)
    return _quantized_outline(input, *given)


def _check_type(input: Any, dtype: Any) -> None:
    _check(input.dtype == dtype, f"Expecting input to have dtype: {dtype}, but got {input.dtype}")
    if dtype not in _BOUNDS:
        raise ValueError(f"Unsupported dtype in dequantize_per_tensor: {dtype}")


@kernel("dequantize_per_tensor")
def dequantize_per_tensor(
    input: Any,
    scale: float,
    zero_point: int,
    quant_min: Any,
    quant_max: Any,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    """What integers stand for, one scale for all."""
    _check_type(input, dtype)
    return (input.to(out_dtype or torch.float32) - zero_point) * scale


@kernel("dequantize_per_tensor.tensor", "dequantize_per_tensor.tensor2")
def _dequantize_by_tensors(
    input: Any, scale: Any, zero_point: Any, *given: Any, out_dtype: Any = None
) -> Any:
    _check_of_one(scale, zero_point)
    return dequantize_per_tensor(
        input, scale.item(), zero_point.item(), *given, out_dtype=out_dtype
    )


@kernel("dequantize_per_tensor", key="Meta")
def _dequantized_outline(input: Any, *given: Any, out_dtype: Any = None) -> Any:
    return torch.empty_like(input, dtype=out_dtype or torch.float32)


@kernel("dequantize_per_tensor.tensor", "dequantize_per_tensor.tensor2", key="Meta")
def _dequantized_by_tensors_outline(
    input: Any, scale: Any, zero_point: Any, low: Any, high: Any, dtype: Any, out_dtype: Any = None
) -> Any:
    _check_of_one(scale, zero_point)
    _check_type(input, dtype)
    return _dequantized_outline(input, out_dtype=out_dtype)


def _choose(input: Any, low: int, high: int, eps: float, dtype: Any, qscheme: Any) -> Any:
    _check(
        input.dtype == torch.float32 or input.dtype in _HALVES,
        f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}",
    )
    _check(
        dtype in _BOUNDS,
        f"Expecting target dtype to be one of {_BOUNDS.keys()}, but got: {dtype}",
    )
    validate_qmin_qmax(low, high)
    least, most = torch.aminmax(input)
    return determine_qparams(
        least, most, low, high, dtype, torch.tensor([eps], dtype=torch.float32), False, qscheme
    )


@kernel("choose_qparams.tensor")
def choose_qparams(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """A scale and a zero point by the smallest and largest number."""
    return _choose(input, quant_min, quant_max, eps, dtype, torch.per_tensor_affine)


@kernel("choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> Any:
    """The same, reaching as far below zero as above."""
    return _choose(input, quant_min, quant_max, eps, dtype, torch.per_tensor_symmetric)


@kernel("choose_qparams.tensor", "choose_qparams_symmetric.tensor", key="Meta")
def _chosen_outline(input: Any, *_: Any) -> Any:
    return _chosen_like(input, (1,))


def _chosen_like(input: Any, shape: Any) -> Any:
    """Scales and zero points without values."""
    return (
        torch.empty(shape, dtype=torch.double, device=input.device),
        torch.empty(shape, dtype=torch.int64, device=input.device),
    )


def _along(t: Any, like: Any, axis: int) -> Any:
    """Numbers of channels, so that they broadcast along a dimension."""
    _check(axis < like.dim(), f"Expecting axis to be < {like.dim()}")
    shape = [1] * like.dim()
    shape[axis] = t.shape[0]
    return t.view(shape)


@kernel("quantize_per_channel")
def quantize_per_channel(
    input: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
) -> Any:
    """The nearest integers, a scale for each channel."""
    input = _single(input)
    scales = _along(scales, input, axis)
    _check_bounds(quant_min, quant_max, dtype)
    steps = torch.round(input * (1.0 / scales)) + _along(zero_points, input, axis)
    return torch.clamp(steps, quant_min, quant_max).to(dtype)


@kernel("quantize_per_channel", key="Meta")
def _quantized_channels_outline(
    input: Any, scales: Any, zero_points: Any, axis: int, low: int, high: int, dtype: Any
) -> Any:
    input = _single(input)
    _along(scales, input, axis)
    _check_bounds(low, high, dtype)
    return torch.empty_like(input, dtype=dtype)


@kernel("dequantize_per_channel")
def dequantize_per_channel(
    input: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Any:
    """What integers stand for, a scale for each channel."""
    _check(
        input.dtype == dtype,
        f"Expecting input to have dtype: {dtype}, but got dtype: {input.dtype}",
    )
    scales = _along(scales, input, axis)
    _check_bounds(quant_min, quant_max, dtype)
    steps = input if zero_points is None else input - _along(zero_points, input, axis)
    return (steps * scales).to(out_dtype or torch.float32)


@kernel("dequantize_per_channel", key="Meta")
def _dequantized_channels_outline(
    input: Any, scales: Any, zero_points: Any, axis: int, *given: Any, out_dtype: Any = None
) -> Any:
    low, high, dtype = given
    _check(
        input.dtype == dtype, f"Expecting input to have dtype {dtype}, but got dtype: {input.dtype}"
    )
    _along(scales, input, axis)
    _check_bounds(low, high, dtype)
    return torch.empty_like(input, dtype=out_dtype or torch.float32)


@kernel("choose_qparams_per_token")
def choose_qparams_per_token(input: Any, dtype: Any) -> Any:
    """A symmetric scale for each row."""
    scales = input.abs().amax(dim=-1, keepdim=True)
    scales = scales.float() if scales.dtype == torch.float16 else scales
    if dtype != torch.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scales = scales.clamp(min=1e-5).div(127)
    return scales, torch.zeros_like(scales)


@kernel("choose_qparams_per_token_asymmetric", "_choose_qparams_per_token_asymmetric_impl")
def choose_qparams_per_token_asymmetric(input: Any, dtype: Any) -> Any:
    """A scale and a zero point for each row, by its smallest and largest number."""
    least, most = -128, 127
    low = input.amin(dim=-1, keepdim=True).clamp(max=0)
    high = input.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / float(most - least)).clamp(min=torch.finfo(torch.float32).eps)
    from_least, from_most = low / scale, high / scale
    nearer = (least + from_least) + (most + from_most) > 0
    zero = torch.where(nearer, least - from_least, most - from_most)
    return scale.to(torch.float64), zero.clamp(least, most).round().to(torch.int64)


@kernel(
    "choose_qparams_per_token",
    "choose_qparams_per_token_asymmetric",
    "_choose_qparams_per_token_asymmetric_impl",
    key="Meta",
)
def _chosen_rows_outline(input: Any, *_: Any) -> Any:
    return _chosen_like(input, (*input.shape[:-1], 1))


@kernel("quantize_per_token")
def quantize_per_token(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    """The nearest integers, a scale for each row."""
    _check_bounds(quant_min, quant_max, dtype)
    rows = math.prod(input.shape[:-1])
    _check(rows == scales.numel(), f"num_tokens: {rows} scales: {scales.size()}")
    _check(rows == zero_points.numel(), f"num_tokens: {rows} zero_points: {zero_points.size()}")
    steps = input.mul(1.0 / scales).add(zero_points).round()
    return steps.clamp(quant_min, quant_max).to(dtype)


@kernel("dequantize_per_token")
def dequantize_per_token(
    input: Any,
    scales: Any,
    zero_points: Any,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    output_dtype: Any,
) -> Any:
    """What integers stand for, a scale for each row."""
    return ((input - zero_points) * scales).to(output_dtype)


@kernel("quantize_per_token", "dequantize_per_token", key="Meta")
def _rows_outline(input: Any, scales: Any, zero_points: Any, *given: Any) -> Any:
    _check_bounds(*given[:3])
    return torch.empty_like(input, dtype=given[-1])


def _groups(name: str, input: Any, scales: Any, size: int) -> Any:
    """The groups of a matrix's rows, a row each."""
    _check(size > 1, "group_size must be > 1")
    if size > input.shape[-1] and scales.shape[-1] == 1:
        size = input.shape[-1]
    _check(input.shape[-1] % size == 0, f"{name}.shape[-1] must be divisible by group_size")
    _check(input.dim() == 2, f"{name} must be 2-dimensional")
    return input.reshape(-1, size)


@kernel("quantize_per_channel_group")
def quantize_per_channel_group(
    input: Any,
    scales: Any,
    zero_points: Any,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    group_size: int,
) -> Any:
    """The nearest integers, a scale for each group of a row."""
    groups = _groups("input", input, scales, group_size)
    _check(not groups.isnan().any(), "to_quant must not contain NaNs")
    steps = groups.mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round()
    return steps.clamp(quant_min, quant_max).to(dtype).reshape_as(input)


@kernel("quantize_per_channel_group", key="Meta")
def _quantized_groups_outline(input: Any, scales: Any, *given: Any) -> Any:
    _groups("input", input, scales, given[-1])
    return torch.empty_like(input, dtype=given[-2])


@kernel("dequantize_per_channel_group")
def dequantize_per_channel_group(
    input: Any,
    scales: Any,
    zero_points: Any,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    group_size: int,
    output_dtype: Any,
) -> Any:
    """What integers stand for, a scale for each group of a row."""
    groups = _groups("w_int8", input, scales, group_size)
    zeros: Any = 0 if zero_points is None else zero_points.reshape(-1, 1)
    reals = groups.sub(zeros).mul(scales.reshape(-1, 1))
    return reals.reshape_as(input).to(output_dtype)


class _FakeQuant(Function):
    """Rounds as integers would; gradients go through where these are in range."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, scales: Any, zero_points: Any, axis: int, low: int, high: int
    ) -> Any:
        _check(
            input.dtype == torch.float32,
            f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}",
        )
        scales = _along(scales.to(torch.float32), input, axis)
        zeros = _along(zero_points.to(torch.int32), input, axis)
        steps = torch.round(input * (1.0 / scales)) + zeros
        ctx.save_for_backward((steps >= low) & (steps <= high))
        return (torch.clamp(steps, low, high) - zeros) * scales

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (within,) = ctx.saved_tensors
        return grads[0] * within, None, None, None, None, None


@kernel("fake_quant_per_channel")
@kernel("fake_quant_per_channel", key="Autograd")
def fake_quant_per_channel(*given: Any) -> Any:
    """Numbers rounded to what integers stand for, a scale for each channel."""
    return _FakeQuant.apply(*given)


@kernel("fake_quant_per_channel", key="Meta")
def _fake_quant_outline(input: Any, *_: Any) -> Any:
    return torch.empty_like(input)


@kernel("convert_element_type.no_fuse")
def convert_element_type(input: Any, dtype: Any) -> Any:
    """The same numbers in another type."""
    return input.to(dtype, copy=True)


def _define() -> None:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        overload = ops.quantized_decomposed.define(f"quantized_decomposed::{line}")
        overload.kernels.update(KERNELS[line.partition("(")[0]])


_define()
