"""Normalisations of quantised tensors: of the real numbers that they stand for, quantised anew."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._ops.quantized import kernel
from torchlike._ops.quantized.pointwise import check_uniform, requantized
from torchlike._quantized import quantized_batch_norm

F: Any = torch.nn.functional


@kernel("layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Any:
    """Each part of these last dimensions normalised."""
    check_uniform("layer_norm", input)
    made = F.layer_norm(input.dequantize(), normalized_shape, weight, bias, eps)
    return requantized(made, output_scale, output_zero_point, input.dtype)


@kernel("group_norm")
def group_norm(
    input: Any,
    num_groups: int,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> Any:
    """Each group of channels of each example normalised."""
    check_uniform("group_norm", input)
    made = F.group_norm(input.dequantize(), num_groups, weight, bias, eps)
    return requantized(made, output_scale, output_zero_point, input.dtype)


@kernel("instance_norm")
def instance_norm(
    input: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> Any:
    """Each channel of each example normalised."""
    if input.dim() < 3:
        raise RuntimeError("Expected the input to have at least 3 dimensions")
    channels = input.size(1)
    return group_norm(input, channels, weight, bias, eps, output_scale, output_zero_point)


def _batch_norm(name: str, dims: tuple[int, ...], relu: bool) -> Any:
    def run(
        qx: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        eps: float,
        output_scale: float,
        output_zero_point: int,
    ) -> Any:
        check_uniform(name, qx)
        if dims and qx.dim() not in dims:
            raise RuntimeError(
                f"quantized::{name}: expected a tensor of {dims} dimensions, got {qx.dim()}"
            )
        if weight is None or bias is None:
            raise RuntimeError(
                "Weight must be provided" if weight is None else "Bias must be provided"
            )
        to = float(output_scale), int(output_zero_point)
        made = quantized_batch_norm(qx, weight, bias, mean, var, eps, *to)
        return torch.relu_(made) if relu else made

    return run


for _relu in (False, True):
    _end = "_relu" if _relu else ""
    for _name, _dims in (
        ("batch_norm", ()),
        ("batch_norm1d", (2, 3)),
        ("batch_norm2d", (4,)),
        ("batch_norm3d", (5,)),
    ):
        kernel(_name + _end)(_batch_norm(_name + _end, _dims, _relu))
