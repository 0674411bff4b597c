"""Views, and elements taken and put by place, in core operators."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike._decomp._table import (
    aten,
    cast,
    chosen,
    core,
    counting,
    full,
    wrapped,
)


@core("t.default")
def t(self: Any) -> Any:
    """The dimensions of a matrix swapped."""
    if self.dim() < 2:
        return aten.alias.default(self)
    return aten.permute.default(self, [1, 0])


@core("transpose.int")
def transpose(self: Any, dim0: int, dim1: int) -> Any:
    """Two dimensions swapped."""
    if self.dim() == 0:
        return aten.alias.default(self)
    order = list(range(self.dim()))
    a, b = wrapped(dim0, self.dim()), wrapped(dim1, self.dim())
    order[a], order[b] = order[b], order[a]
    return aten.permute.default(self, order)


@core("squeeze.default")
def squeeze(self: Any) -> Any:
    """Without dimensions of size 1."""
    return aten.squeeze.dims(self, list(range(self.dim())))


@core("squeeze.dim")
def squeeze_dim(self: Any, dim: int) -> Any:
    """Without one dimension of size 1."""
    return aten.squeeze.dims(self, [dim])


@core("_unsafe_view.default")
def unsafe_view(self: Any, size: Any) -> Any:
    """Another shape."""
    return aten.view.default(self, size)


@core("detach.default")
def detach(self: Any) -> Any:
    """The same without a history."""
    return aten.alias.default(self)


@core("lift_fresh_copy.default")
def lift_fresh_copy(self: Any) -> Any:
    """A copy of a constant."""
    return aten.clone.default(self)


@core("_reshape_alias.default")
def reshape_alias(self: Any, size: Any, stride: Any) -> Any:
    """Another shape."""
    return aten.view.default(self, size)


@core("split.Tensor", "unsafe_split.Tensor")
def split(self: Any, split_size: int, dim: int = 0) -> Any:
    """Pieces of one size, and the rest."""
    length = self.shape[dim]
    if split_size == 0:
        return NotImplemented
    sizes = [min(split_size, length - at) for at in range(0, length, split_size)] or [length]
    return aten.split_with_sizes.default(self, sizes, dim)


@core("unsafe_split_with_sizes.default")
def split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> Any:
    """Pieces of given sizes."""
    return aten.split_with_sizes.default(self, split_sizes, dim)


@core("unbind.int")
def unbind(self: Any, dim: int = 0) -> Any:
    """The slices along a dimension."""
    dim = wrapped(dim, self.dim())
    parts = [aten.slice.Tensor(self, dim, i, i + 1) for i in range(self.shape[dim])]
    return [aten.squeeze.dims(part, [dim]) for part in parts]


@core("stack.default")
def stack(tensors: Any, dim: int = 0) -> Any:
    """Side by side along a new dimension."""
    ndim = tensors[0].dim()
    dim = wrapped(dim, ndim + 1)
    if dim == ndim:
        return aten.cat.default([aten.unsqueeze.default(x, dim) for x in tensors], dim)
    sizes = [*tensors[0].shape[:dim], len(tensors), *tensors[0].shape[dim:]]
    return aten.view.default(aten.cat.default(tensors, dim), sizes)


@core("rot90.default")
def rot90(self: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    """Turned by quarters."""
    a, b = dims
    if k % 4 == 1:
        return transpose(aten.flip.default(self, [b]), a, b)
    if k % 4 == 2:
        return aten.flip.default(self, list(dims))
    if k % 4 == 3:
        return transpose(aten.flip.default(self, [a]), a, b)
    return aten.clone.default(self, memory_format=torchlike.contiguous_format)


@core("roll.default")
def roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    """Moved along dimensions, around the end."""
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if self.numel() == 0:
        return aten.clone.default(self)
    if not dims:
        flat = aten.view.default(self, [self.numel()]) if self.is_contiguous() else None
        if flat is None or len(shifts) != 1:
            return NotImplemented
        return aten.view.default(roll(flat, shifts, [0]), list(self.shape))
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        at = aten.add.Tensor(counting(size, self.device), (size - shift) % size)
        self = aten.index_select.default(self, dim, aten.fmod.Scalar(at, size))
    return self


@core("diag_embed.default")
def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Rows as diagonals."""
    ndim = self.dim() + 1
    a, b = wrapped(dim1, ndim), wrapped(dim2, ndim)
    if offset or a > b:
        return NotImplemented
    size = self.shape[-1]
    row = aten.unsqueeze.default(self, a)
    order = [d for d in range(ndim) if d not in (a, b)]
    back = [0] * ndim
    rest = [d for d in range(ndim - 1) if d != a]
    for target, source in zip([*order, b], [*rest, ndim - 1], strict=True):
        back[target] = source
    back[a] = a
    row = aten.permute.default(row, back)
    columns = counting(size, self.device, dtype=torchlike.int64)
    rows = aten.unsqueeze.default(counting(size, self.device, dtype=torchlike.int64), -1)
    sizes = [size if d in (a, b) else 1 for d in range(ndim)]
    mask = aten.view.default(aten.eq.Tensor(columns, rows), sizes)
    return chosen(mask, row, 0)


def _put(self: Any, dim: int, index: Any, values: Any, add: bool) -> Any:
    places = [None] * wrapped(dim, self.dim())
    return aten.index_put.default(self, [*places, index], values, add)


@core("index_add.default")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Slices added at an index."""
    if self.dim() == 0 or index.dim() == 0:
        return NotImplemented
    return _put(self, dim, index, source if alpha == 1 else aten.mul.Tensor(source, alpha), True)


@core("index_copy.default")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    """Slices put at an index."""
    if self.dim() == 0 or index.dim() == 0:
        return NotImplemented
    return _put(self, dim, index, source, False)


@core("index_fill.int_Scalar")
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    """One value put at an index."""
    if self.dim() == 0 or index.dim() == 0:
        return NotImplemented
    how = {"dtype": self.dtype, "layout": torchlike.strided, "device": self.device}
    value = aten.scalar_tensor.default(value, **how, pin_memory=False)
    sizes = list(self.shape)
    sizes[dim] = index.shape[0]
    return _put(self, dim, index, aten.expand.default(value, sizes), False)


@core("take.default")
def take(self: Any, index: Any) -> Any:
    """Elements by their place in row-major order."""
    if not self.is_contiguous():
        return NotImplemented
    return aten.index.Tensor(aten.view.default(self, [-1]), [index])


@core("isin.Tensor_Tensor")
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Any:
    """Whether elements are among others."""
    if test_elements.numel() >= 10.0 * math.pow(elements.numel(), 0.145):
        return NotImplemented
    n = test_elements.dim()
    each = aten.view.default(elements, [*elements.shape, *([1] * n)])
    found = aten.eq.Tensor(each, test_elements)
    found = aten.any.dims(found, list(range(-1, -n - 1, -1)))
    return aten.logical_not.default(found) if invert else found


@core("select_scatter.default")
def select_scatter(self: Any, src: Any, dim: int, index: int) -> Any:
    """One slice put along a dimension."""
    dim = wrapped(dim, self.dim())
    size = self.shape[dim]
    index = index % size
    lies = [1] * self.dim()
    lies[dim] = -1
    at = aten.view.default(counting(size, self.device), lies)
    here = aten.eq.Scalar(at, index)
    src = aten.expand.default(aten.unsqueeze.default(src, dim), list(self.shape))
    return aten.where.self(here, cast(src, self.dtype), self)


def _contiguous(x: Any) -> Any:
    return aten.clone.default(x, memory_format=torchlike.contiguous_format)


@core("pixel_shuffle.default")
def pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    """Channels as pixels."""
    r = upscale_factor
    *batch, c, h, w = self.shape
    n = len(batch)
    parted = aten.view.default(self, [*batch, c // r**2, r, r, h, w])
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    moved = _contiguous(aten.permute.default(parted, order))
    return _contiguous(aten.view.default(moved, [*batch, c // r**2, h * r, w * r]))


@core("pixel_unshuffle.default")
def pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    """Pixels as channels."""
    r = downscale_factor
    *batch, c, h, w = self.shape
    n = len(batch)
    parted = aten.view.default(self, [*batch, c, h // r, r, w // r, r])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    moved = _contiguous(aten.permute.default(parted, order))
    return _contiguous(aten.view.default(moved, [*batch, c * r**2, h // r, w // r]))


@core("channel_shuffle.default")
def channel_shuffle(self: Any, groups: int) -> Any:
    """Channels of groups in turn."""
    n, c, *rest = self.shape
    parted = aten.view.default(self, [n, groups, c // groups, *rest])
    order = [0, 2, 1, *range(3, len(rest) + 3)]
    moved = aten.permute.default(parted, order)
    return _contiguous(torchlike.reshape(moved, list(self.shape)))


def _padded(self: Any, padding: Any, at: Any) -> Any:
    n = len(padding) // 2
    for i in range(n):
        size = self.shape[self.dim() - 1 - i]
        left, right = padding[2 * i], padding[2 * i + 1]
        if min(left, right) < -size:
            return NotImplemented
    for i in reversed(range(n)):
        dim = self.dim() - 1 - i
        size, left, right = self.shape[dim], padding[2 * i], padding[2 * i + 1]
        index = at(counting(size + right, self.device, -left), size)
        self = aten.index.Tensor(self, [*([None] * dim), index])
    return self


@core("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(self: Any, padding: Any) -> Any:
    """Longer by what is reflected at the ends."""

    def at(x: Any, size: int) -> Any:
        inner = aten.abs.default(aten.sub.Tensor(size - 1, aten.abs.default(x)))
        return aten.sub.Tensor(size - 1, inner)

    return _padded(self, padding, at)


@core("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(self: Any, padding: Any) -> Any:
    """Longer by the elements at the ends."""
    return _padded(self, padding, lambda x, size: aten.clamp.default(x, 0, size - 1))


@core("linalg_cross.default")
def cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    """The vector product."""
    self, other = torchlike.broadcast_tensors([self, other])
    at = counting(3, self.device)

    def turned(x: Any, by: int) -> Any:
        index = aten.remainder.Scalar(aten.add.Tensor(at, by), 3)
        return aten.index_select.default(x, dim, index)

    first = aten.mul.Tensor(turned(self, 1), turned(other, 2))
    return aten.sub.Tensor(first, aten.mul.Tensor(turned(self, 2), turned(other, 1)))


@core("im2col.default")
def im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Windows as columns."""
    if self.dim() != 4:
        return NotImplemented

    def at(length: int, k: int, d: int, p: int, s: int) -> Any:
        how = {"dtype": torchlike.int64, "device": self.device, "pin_memory": False}
        start = aten.arange.start_step(0, length + 2 * p - d * (k - 1), s, **how)
        start = aten.unsqueeze.default(start, 0)
        within = aten.arange.start_step(0, k * d, d, **how)
        return aten.add.Tensor(start, aten.unsqueeze.default(within, -1))

    n, c, h, w = self.shape
    rows, columns = (
        at(length, k, d, p, s)
        for length, k, d, p, s in zip((h, w), kernel_size, dilation, padding, stride, strict=True)
    )
    ends = [padding[1], padding[1], padding[0], padding[0]]
    padded = aten.constant_pad_nd.default(self, ends, 0.0)
    rows = aten.unsqueeze.default(aten.unsqueeze.default(rows, -1), -1)
    windows = aten.index.Tensor(padded, [None, None, rows, columns])
    windows = aten.permute.default(windows, [0, 1, 2, 4, 3, 5])
    many = windows.shape[4] * windows.shape[5]
    return aten.view.default(_contiguous(windows), [n, c * kernel_size[0] * kernel_size[1], many])


@core("upsample_nearest1d.default")
def upsample_nearest1d(self: Any, output_size: Any, scales: float | None = None) -> Any:
    """Longer by repeating elements."""
    (length,) = output_size
    step = 1 / scales if scales is not None else self.shape[-1] / length
    at = counting(length, self.device, dtype=torchlike.float32)
    at = aten.mul.Tensor(aten.add.Tensor(at, 0.0), step)
    return aten.index.Tensor(self, [None, None, cast(at, torchlike.int64)])


@core("max_unpool2d.default")
def max_unpool2d(self: Any, indices: Any, output_size: Any) -> Any:
    """Elements where they were before a pooling, among zeros."""
    *batch, _, _ = self.shape
    h, w = output_size
    count = math.prod(batch)
    plane = aten.view.default(counting(count, self.device), [*batch, 1, 1])
    at = aten.add.Tensor(indices, aten.mul.Tensor(plane, h * w))
    if not (self.is_contiguous() and indices.is_contiguous()):
        return NotImplemented
    at = aten.view.default(at, [-1])
    zeros = aten.view.default(full([*batch, h, w], 0, self), [-1])
    values = aten.view.default(self, [-1])
    return aten.view.default(aten.index_put.default(zeros, [at], values), [*batch, h, w])
