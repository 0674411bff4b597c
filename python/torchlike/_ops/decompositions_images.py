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
@of("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(
    input: Any, output_size: Any, return_indices: bool = False, name: str = ""
) -> Any:
    """The operator that also gives the places."""
    dims = 3 if name.endswith("3d") else 2
    given, both = _each(output_size, dims), not name.startswith(_N)
    if both and None not in given:
        return NotImplemented
    sizes = [n if s is None else s for s, n in zip(given, input.shape[-dims:], strict=True)]
    made = aten.adaptive_max_pool3d if dims == 3 else aten.adaptive_max_pool2d
    results = made(input, sizes)
    return results if return_indices or both else results[0]


@of(_N + "pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """A constant around the tensor, or the operator that repeats its elements."""
    if mode == "constant":
        return aten.constant_pad_nd(input, list(pad), value or 0.0)
    return repeated(input, pad, mode)


def repeated(input: Any, pad: Any, mode: str) -> Any:
    """The operator that repeats elements, if there is one for so many dimensions."""
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
    return resized(input, sizes, mode, bool(align_corners), False, factors)


def _resizing(dims: int, mode: str, align_corners: bool, antialias: bool) -> tuple[str, list[bool]]:
    """The operator of a mode, and what it is told of corners."""
    name = _SIZES[mode].format(dims)
    aligned = [] if mode.startswith("nearest") else [align_corners]
    return f"_{name}_aa" if antialias else name, aligned


@of("_upsample")
def resized(
    input: Any, output_size: Any, mode: str, align_corners: bool, antialias: bool, scales: Any
) -> Any:
    """The operator of the mode and the number of dimensions."""
    name, aligned = _resizing(input.dim() - 2, mode, align_corners, antialias)
    known = [s or None for s in scales]
    return getattr(aten, name).default(input, list(output_size), *aligned, *known)


@of("_grad.upsample")
def resized_backward(
    grad_output: Any,
    output_size: Any,
    input_size: Any,
    mode: str,
    align_corners: bool,
    antialias: bool,
    scales: Any,
    **_: Any,
) -> Any:
    """The operator that goes back."""
    name, aligned = _resizing(grad_output.dim() - 2, mode, align_corners, antialias)
    operator, known = getattr(aten, name + "_backward").default, [s or None for s in scales]
    return operator(grad_output, list(output_size), list(input_size), *aligned, *known)


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


@of("_fractional_max_pool")
def fractional_max_pool(self: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
    """The operator for the number of dimensions."""
    pools = {2: aten.fractional_max_pool2d, 3: aten.fractional_max_pool3d}
    return pools[len(kernel_size)](self, kernel_size, output_size, random_samples)


@of("_max_unpool")
def max_unpool(self: Any, indices: Any, output_size: Any) -> Any:
    """The operator for the number of dimensions; a line is an image of one column."""
    if len(output_size) == 1:
        column, places = (aten.unsqueeze(t, -1) for t in (self, indices))
        return aten.squeeze.dim(aten.max_unpool2d(column, places, [*output_size, 1]), -1)
    if len(output_size) == 2:
        return aten.max_unpool2d(self, indices, output_size)
    # Steps and edges are no part of the result.
    return aten.max_unpool3d(self, indices, output_size, [1, 1, 1], [0, 0, 0])


@of(_N + "local_response_norm")
def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Squares, their means over neighbouring channels, and a power."""
    if input.dim() < 3 or input.numel() == 0:
        return NotImplemented
    squares, edges = aten.mul.Tensor(input, input), [size // 2, (size - 1) // 2]
    if input.dim() == 3:
        rows = aten.constant_pad_nd(aten.unsqueeze(squares, 1), [0, 0, *edges], 0.0)
        means = aten.squeeze.dim(aten.avg_pool2d(rows, [size, 1], [1, 1]), 1)
    else:
        shape = list(input.shape)
        flat = aten.view(squares, [shape[0], 1, shape[1], shape[2], -1])
        padded = aten.constant_pad_nd(flat, [0, 0, 0, 0, *edges], 0.0)
        means = aten.squeeze.dim(aten.avg_pool3d(padded, [size, 1, 1], [1, 1, 1]), 1)
        means = aten.view(means, shape)
    by = aten.pow.Tensor_Scalar(aten.add.Tensor(aten.mul.Tensor(means, alpha), k), beta)
    return aten.div.Tensor(input, by)


@of("_pad_mode")
def padded(self: Any, pad: Any, mode: str) -> Any:
    """Around the edges: the middle first, then each side of what is there; or the operator that repeats elements."""
    if mode != "circular":
        return repeated(self, pad, mode)
    dims = range(self.dim() - 1, self.dim() - 1 - len(pad) // 2, -1)
    sides = list(zip(dims, pad[::2], pad[1::2], strict=True))
    shape = list(self.shape)
    for d, before, after in sides:
        shape[d] += before + after
    like = {"dtype": self.dtype, "layout": self.layout, "device": self.device}
    out = aten.new_empty(self, shape, **like)
    to, source = out, self
    for d, before, after in sides:
        to = aten.slice.Tensor(to, d, max(before, 0), shape[d] - max(after, 0))
        source = aten.slice.Tensor(source, d, max(-before, 0), self.shape[d] - max(-after, 0))
    aten.copy_(to, source)
    for d, before, after in sides:
        for width, at, of_it in (
            (before, 0, shape[d] - before - max(after, 0)),
            (after, shape[d] - after, max(before, 0)),
        ):
            if width > 0:
                place = aten.slice.Tensor(out, d, at, at + width)
                aten.copy_(place, aten.slice.Tensor(out, d, of_it, of_it + width))
    return out


def _convolution(dims: int, transposed: bool) -> Any:
    def made(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        output_padding: Any = 0,
    ) -> Any:
        if input.dim() != dims + 2:
            return NotImplemented
        stride, dilation, output_padding = (
            [v] * dims if isinstance(v, int) else list(v)
            for v in (stride, dilation, output_padding)
        )
        if isinstance(padding, str):
            input, padding = _same(input, weight, padding, dilation, dims)
        padding = [padding] * dims if isinstance(padding, int) else list(padding)
        how = (stride, padding, dilation, transposed, output_padding, groups)
        if input.is_complex() and weight.is_complex():
            return _of_parts(input, weight, bias, how)
        return aten.convolution(input, weight, bias, *how)

    return made


def _of_parts(input: Any, weight: Any, bias: Any, how: Any) -> Any:
    """A convolution of complex numbers by three of real ones."""

    def parts(t: Any) -> Any:
        both = aten.view_as_real(t)
        return aten.select.int(both, -1, 0), aten.select.int(both, -1, 1)

    (x, xi), (w, wi) = parts(input), parts(weight)
    b, bi = (None, None) if bias is None else parts(bias)
    first = aten.convolution(x, w, b, *how)
    second = aten.convolution(xi, wi, None, *how)
    shift = None if bias is None else aten.add.Tensor(b, bi)
    sums = aten.add.Tensor(w, wi)
    both = aten.convolution(aten.add.Tensor(x, xi), sums, shift, *how)
    rest = aten.sub.Tensor(aten.sub.Tensor(both, first), second)
    imaginary = aten.mul.Scalar(rest, 1j)
    return aten.add.Tensor(aten.sub.Tensor(first, second), imaginary)


def _same(input: Any, weight: Any, padding: str, dilation: Any, dims: int) -> Any:
    if padding == "valid":
        return input, 0
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    before = [t // 2 for t in total]
    odd = [t - 2 * b for t, b in zip(total, before, strict=True)]
    if any(odd):
        extra = [v for o in reversed(odd) for v in (0, o)]
        input = aten.constant_pad_nd(input, extra, 0)
    return input, before


for _dims in (1, 2, 3):
    of(f"conv{_dims}d", f"{_N}conv{_dims}d")(_convolution(_dims, False))
    of(f"conv_transpose{_dims}d", f"{_N}conv_transpose{_dims}d")(_convolution(_dims, True))
