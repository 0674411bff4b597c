"""Functions of images that PyTorch makes of other operators: windows, sizes, edges."""

from __future__ import annotations

import math
from typing import Any

from torchlike._ops import ops
from torchlike._ops.decompositions import of

aten: Any = ops.aten
_N = "nn.functional."


def _each(v: Any, dims: int) -> list[int]:
    """A number a dimension."""
    values = [v] if isinstance(v, int) else list(v)
    return values * dims if len(values) == 1 else values


def _max_pool(dims: int) -> Any:
    def made(
        input: Any = None,
        kernel_size: Any = 1,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        name: str = "",
        self: Any = None,
    ) -> Any:
        x = self if input is None else input
        windows = (kernel_size, stride or [], padding, dilation, ceil_mode)
        wanted = return_indices or "with_indices" in name
        if dims == 3:
            both = aten.max_pool3d_with_indices(x, *windows)
            return both if wanted else both[0]
        if dims == 2:
            both = aten.max_pool2d_with_indices(x, *windows)
            return both if wanted else both[0]
        flat = [[1, *_each(v, 1)] for v in (kernel_size, stride or kernel_size)]
        flat += [[0, *_each(padding, 1)], [1, *_each(dilation, 1)]]
        both = aten.max_pool2d_with_indices(aten.unsqueeze(x, -2), *flat, ceil_mode)
        both = tuple(aten.squeeze.dim(t, -2) for t in both)
        return both if wanted else both[0]

    return made


for _dims in (1, 2, 3):
    _name = f"{_N}max_pool{_dims}d"
    of(_name, f"{_name}_with_indices", f"max_pool{_dims}d")(_max_pool(_dims))


def _means(x: Any, sizes: list[int]) -> Any:
    """Means of windows, or of everything where one number is left."""
    if all(n == 1 for n in sizes):
        return aten.mean.dim(x, [-1 - i for i in range(len(sizes))], True)
    made = aten._adaptive_avg_pool2d if len(sizes) == 2 else aten._adaptive_avg_pool3d
    return made(x, sizes)


@of(_N + "adaptive_avg_pool2d", _N + "adaptive_avg_pool3d")
def adaptive_avg_pool(input: Any, output_size: Any, name: str = "") -> Any:
    """The operator, or a mean where one number is left."""
    dims = 3 if name.endswith("3d") else 2
    if input.dim() not in (dims + 1, dims + 2):
        return NotImplemented
    sizes = [output_size] if isinstance(output_size, int) else list(output_size)
    sizes = sizes * dims if len(sizes) == 1 else sizes
    return _means(
        input,
        [n if s is None else s for s, n in zip(sizes, input.shape[-dims:], strict=True)],
    )


@of(_N + "adaptive_avg_pool1d", "adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Any = None, output_size: Any = 1, self: Any = None) -> Any:
    """That of images of height one."""
    x = self if input is None else input
    return aten.squeeze.dim(_means(aten.unsqueeze(x, -2), [1, *_each(output_size, 1)]), -2)


@of(_N + "adaptive_max_pool1d", "adaptive_max_pool1d")
def adaptive_max_pool1d(
    input: Any, output_size: Any, return_indices: bool = False, name: str = ""
) -> Any:
    """That of images of height one."""
    both = aten.adaptive_max_pool2d(aten.unsqueeze(input, -2), [1, *_each(output_size, 1)])
    both = tuple(aten.squeeze.dim(t, -2) for t in both)
    return both if return_indices or name == "adaptive_max_pool1d" else both[0]


@of(_N + "adaptive_max_pool2d", _N + "adaptive_max_pool3d")
def adaptive_max_pool(
    input: Any, output_size: Any, return_indices: bool = False, name: str = ""
) -> Any:
    """The operator that also gives the places."""
    dims = 3 if name.endswith("3d") else 2
    sizes = [
        n if s is None else s
        for s, n in zip(_each(output_size, dims), input.shape[-dims:], strict=True)
    ]
    made = aten.adaptive_max_pool3d if dims == 3 else aten.adaptive_max_pool2d
    both = made(input, sizes)
    return both if return_indices else both[0]


@of(_N + "pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """A constant around the tensor, or the operator that repeats its elements."""
    if mode == "constant":
        return aten.constant_pad_nd(input, list(pad), value or 0.0)
    dims = len(pad) // 2
    if mode not in ("reflect", "replicate") or input.dim() not in (dims + 1, dims + 2):
        return NotImplemented
    kind = "reflection" if mode == "reflect" else "replication"
    return getattr(aten, f"{kind}_pad{dims}d")(input, list(pad))


_SIZES = {
    "nearest": "upsample_nearest{}d",
    "nearest-exact": "_upsample_nearest_exact{}d",
    "linear": "upsample_linear{}d",
    "bilinear": "upsample_bilinear{}d",
    "bicubic": "upsample_bicubic{}d",
    "trilinear": "upsample_trilinear{}d",
}


@of(_N + "interpolate")
def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    """The operator of the mode and the number of dimensions."""
    dims = input.dim() - 2
    needs = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, dims)
    one = (size is None) != (scale_factor is None)
    if mode not in _SIZES or antialias or dims not in (1, 2, 3) or needs != dims or not one:
        return NotImplemented
    factors = [] if scale_factor is None else list(scale_factor)
    factors = factors * dims if len(factors) == 1 else factors
    if size is None:
        if len(factors) != dims:
            return NotImplemented
        size = [math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True)]
        factors = [] if recompute_scale_factor else factors
    sizes = _each(size, dims)
    if len(sizes) != dims or min(sizes) < 1:
        return NotImplemented
    aligned = [] if mode.startswith("nearest") else [bool(align_corners)]
    operator = getattr(aten, _SIZES[mode].format(dims)).default
    return operator(input, sizes, *aligned, *factors)


@of(_N + "fold")
def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Columns added back into images."""
    both = (_each(v, 2) for v in (output_size, kernel_size, dilation, padding, stride))
    return aten.col2im(input, *both)


@of(_N + "unfold")
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Patches as columns."""
    both = (_each(v, 2) for v in (kernel_size, dilation, padding, stride))
    return aten.im2col(input, *both)
