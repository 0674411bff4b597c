"""Pools and resampling of `nn.functional` as TorchScript, in the words of PyTorch's operators."""

from __future__ import annotations

import math

import torchlike
from torchlike import Tensor
from torchlike.jit._library import _each

aten = torchlike.ops.aten


def max_pool1d(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0],  # noqa: B006
    dilation: list[int] = [1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.max_pool1d(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def max_pool2d(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0],  # noqa: B006
    dilation: list[int] = [1, 1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.max_pool2d(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def max_pool3d(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0, 0],  # noqa: B006
    dilation: list[int] = [1, 1, 1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.max_pool3d(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0],  # noqa: B006
    dilation: list[int] = [1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    return aten.max_pool1d_with_indices(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0],  # noqa: B006
    dilation: list[int] = [1, 1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    return aten.max_pool2d_with_indices(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0, 0],  # noqa: B006
    dilation: list[int] = [1, 1, 1],  # noqa: B006
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    return aten.max_pool3d_with_indices(
        input, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode
    )


def adaptive_avg_pool1d(input: Tensor, output_size: list[int]) -> Tensor:
    return aten.adaptive_avg_pool1d(input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: list[int]) -> Tensor:
    return aten.adaptive_avg_pool2d(input, _each(output_size, 2))


def adaptive_avg_pool3d(input: Tensor, output_size: list[int]) -> Tensor:
    return aten.adaptive_avg_pool3d(input, _each(output_size, 3))


def adaptive_max_pool1d(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.adaptive_max_pool1d(input, output_size)[0]


def adaptive_max_pool2d(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.adaptive_max_pool2d(input, _each(output_size, 2))[0]


def adaptive_max_pool3d(
    input: Tensor, output_size: list[int], return_indices: bool = False
) -> Tensor:
    if return_indices:
        raise NotImplementedError("positions of largest elements are not written as TorchScript")
    return aten.adaptive_max_pool3d(input, _each(output_size, 3))[0]


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool1d(input, output_size)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool2d(input, _each(output_size, 2))


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: list[int], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool3d(input, _each(output_size, 3))


def _rooted(means: Tensor, count: int, power: float) -> Tensor:
    positive = aten.mul(aten.sign(means), aten.relu(aten.abs(means)))
    return aten.pow(aten.mul(positive, count), 1.0 / power)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int,
    stride: list[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    out = aten.avg_pool1d(
        aten.pow(input, norm_type),
        [kernel_size],
        [kernel_size] if stride is None else stride,
        [0],
        ceil_mode,
    )
    return _rooted(out, kernel_size, norm_type)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: list[int],
    stride: list[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    kernel = _each(kernel_size, 2)
    means = aten.avg_pool2d(
        aten.pow(input, norm_type),
        kernel,
        kernel if stride is None else _each(stride, 2),
        [0, 0],
        ceil_mode,
    )
    return _rooted(means, kernel[0] * kernel[1], norm_type)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: list[int],
    stride: list[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    kernel = _each(kernel_size, 3)
    means = aten.avg_pool3d(
        aten.pow(input, norm_type),
        kernel,
        kernel if stride is None else _each(stride, 3),
        [0, 0, 0],
        ceil_mode,
    )
    return _rooted(means, kernel[0] * kernel[1] * kernel[2], norm_type)


def interpolate(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    aligned = False if align_corners is None else align_corners
    sizes: list[int] | None = None
    if size is not None:
        sizes = [size[0] for i in range(input.dim() - 2)] if len(size) == 1 else size
    scales: list[float] | None = None
    if scale_factor is not None:
        scales = (
            [scale_factor[0] for i in range(input.dim() - 2)]
            if len(scale_factor) == 1
            else scale_factor
        )
    if scales is not None and (recompute_scale_factor is True or mode == "area"):
        sizes = [math.floor(float(input.size(i + 2)) * scales[i]) for i in range(input.dim() - 2)]
        scales = None
    if antialias:
        if mode == "bilinear":
            return aten._upsample_bilinear2d_aa(input, sizes, aligned, scales)
        return aten._upsample_bicubic2d_aa(input, sizes, aligned, scales)
    if mode == "nearest":
        if input.dim() == 3:
            return aten.upsample_nearest1d(input, sizes, scales)
        if input.dim() == 4:
            return aten.upsample_nearest2d(input, sizes, scales)
        return aten.upsample_nearest3d(input, sizes, scales)
    if mode == "nearest-exact":
        if input.dim() == 3:
            return aten._upsample_nearest_exact1d(input, sizes, scales)
        if input.dim() == 4:
            return aten._upsample_nearest_exact2d(input, sizes, scales)
        return aten._upsample_nearest_exact3d(input, sizes, scales)
    if mode == "area":
        assert sizes is not None, "one of size or scale_factor should be defined"
        if input.dim() == 3:
            return aten.adaptive_avg_pool1d(input, sizes)
        if input.dim() == 4:
            return aten.adaptive_avg_pool2d(input, sizes)
        return aten.adaptive_avg_pool3d(input, sizes)
    if mode == "bilinear":
        return aten.upsample_bilinear2d(input, sizes, aligned, scales)
    if mode == "linear":
        return aten.upsample_linear1d(input, sizes, aligned, scales)
    if mode == "trilinear":
        return aten.upsample_trilinear3d(input, sizes, aligned, scales)
    if mode == "bicubic":
        return aten.upsample_bicubic2d(input, sizes, aligned, scales)
    raise NotImplementedError("this mode of interpolation is not written as TorchScript")


def upsample(
    input: Tensor,
    size: list[int] | None = None,
    scale_factor: list[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: list[int] | None = None, scale_factor: list[float] | None = None
) -> Tensor:
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: list[int] | None = None, scale_factor: list[float] | None = None
) -> Tensor:
    return interpolate(input, size, scale_factor, "bilinear", True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    kind = 2
    if mode == "bilinear":
        kind = 0
    elif mode == "nearest":
        kind = 1
    border = 2
    if padding_mode == "zeros":
        border = 0
    elif padding_mode == "border":
        border = 1
    return aten.grid_sampler(
        input, grid, kind, border, False if align_corners is None else align_corners
    )


def _unpooled(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    output_size: list[int] | None,
) -> list[int]:
    count = len(kernel_size)
    if output_size is not None:
        return output_size[len(output_size) - count :]
    return [
        (input.size(input.dim() - count + i) - 1) * stride[i] + kernel_size[i] - 2 * padding[i]
        for i in range(count)
    ]


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0],  # noqa: B006
    output_size: list[int] | None = None,
) -> Tensor:
    sizes = _unpooled(
        input, kernel_size, kernel_size if stride is None else stride, padding, output_size
    )
    return aten.squeeze(
        aten.max_unpool2d(aten.unsqueeze(input, -1), aten.unsqueeze(indices, -1), [sizes[0], 1]),
        -1,
    )


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0],  # noqa: B006
    output_size: list[int] | None = None,
) -> Tensor:
    kernel = _each(kernel_size, 2)
    steps = kernel if stride is None else _each(stride, 2)
    sizes = _unpooled(input, kernel, steps, _each(padding, 2), output_size)
    return aten.max_unpool2d(input, indices, sizes)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: list[int],
    stride: list[int] | None = None,
    padding: list[int] = [0, 0, 0],  # noqa: B006
    output_size: list[int] | None = None,
) -> Tensor:
    kernel = _each(kernel_size, 3)
    steps = kernel if stride is None else _each(stride, 3)
    margins = _each(padding, 3)
    sizes = _unpooled(input, kernel, steps, margins, output_size)
    return aten.max_unpool3d(input, indices, sizes, steps, margins)
