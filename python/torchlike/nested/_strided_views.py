"""Views of nested tensors of the strided layout: other sizes, strides and offsets of the same buffer."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike import Tensor
from torchlike.nested._calls import sizes
from torchlike.nested._internal.nested_tensor import wrapped
from torchlike.nested._strided import Part, StridedNestedTensor, of_parts
from torchlike.nested._strided_calls import _is, answers


@answers("transpose", "swapaxes", "swapdims")
def _transpose(input: StridedNestedTensor, dim0: int, dim1: int) -> StridedNestedTensor:
    a, b = (wrapped(input.dim(), d) for d in (dim0, dim1))
    if 0 in (a, b):
        raise RuntimeError("Nested tensor dimension 0 cannot be transposed")

    def swapped(values: tuple[int, ...]) -> tuple[int, ...]:
        made = list(values)
        made[a - 1], made[b - 1] = made[b - 1], made[a - 1]
        return tuple(made)

    return input._with([Part(swapped(p.size), swapped(p.stride), p.offset) for p in input._parts])


@answers("squeeze")
def _squeeze(input: StridedNestedTensor, dim: int | None = None) -> StridedNestedTensor:
    ask = "at the moment if you need this feature, please open an issue on github describing your use case."
    if dim is None:
        raise RuntimeError(
            "squeeze(): For nested tensors, squeeze without the dim argument is not supported at the moment, "
            "however you can use squeeze(Tensor self, int dim) instead if you need this feature, please open an issue "
            "on github describing your use case."
        )
    dim = wrapped(input.dim(), dim)
    if dim == 0:
        raise RuntimeError(
            f"squeeze(): For nested tensors, squeezing dimension 0 is not supported {ask}"
        )
    if input.dim() == 2:
        raise RuntimeError(
            "squeeze(): For nested tensors, squeezing a nested tensor of singleton tensors is not supported at the "
            "moment, if you need this feature, please open an issue on github describing your use case."
        )
    if any(p.size[dim - 1] != 1 for p in input._parts):
        return input._with(input._parts)
    return input._with(
        [
            Part(_without(p.size, dim - 1), _without(p.stride, dim - 1), p.offset)
            for p in input._parts
        ]
    )


def _without(values: tuple[int, ...], at: int) -> tuple[int, ...]:
    return values[:at] + values[at + 1 :]


@answers("unsqueeze")
def _unsqueeze(input: StridedNestedTensor, dim: int) -> StridedNestedTensor:
    dim = wrapped(input.dim() + 1, dim)
    if dim == 0:
        raise RuntimeError(
            "unsqueeze(): For nested tensors, unsqueezing dimension 0 is not supported at the moment if you need this "
            "feature, please open an issue on github describing your use case."
        )
    at = dim - 1

    def part(p: Part) -> Part:
        step = p.size[at] * p.stride[at] if at < len(p.size) else 1
        size, stride = (*p.size[:at], 1, *p.size[at:]), (*p.stride[:at], step, *p.stride[at:])
        return Part(size, stride, p.offset)

    return input._with(list(map(part, input._parts)))


@answers("select")
def _select(input: StridedNestedTensor, dim: int, index: int) -> Tensor:
    dim = wrapped(input.dim(), dim)
    if dim == 0:
        count = len(input._parts)
        if not -count <= index < count:
            raise IndexError(f"index {index} is out of bounds for dimension 0 with size {count}")
        return input.unbind()[index]
    at = dim - 1
    for i, p in enumerate(input._parts):
        if not 0 <= index < p.size[at]:
            raise IndexError(
                f"index {index} is out of bounds for dimension {at} of the {i}th constituent tensor with size "
                f"{p.size[at]}"
            )
    return input._with(
        [
            Part(_without(p.size, at), _without(p.stride, at), p.offset + index * p.stride[at])
            for p in input._parts
        ]
    )


@answers("__getitem__")
def _item(input: Any, index: Any) -> Any:
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(e, Tensor | list) for e in entries):
        raise input._refused("index", (input,), {})
    if ... in entries:
        at = entries.index(...)
        fill = (slice(None),) * (input.dim() - sum(e is not None for e in entries) + 1)
        entries = (*entries[:at], *fill, *entries[at + 1 :])
    made, dim = input, 0
    for i, entry in enumerate(entries):
        if not _is(made):
            return made[tuple(entries[i:])]
        if entry is None:
            made, dim = made.unsqueeze(dim), dim + 1
        elif isinstance(entry, slice):
            if entry != slice(None):
                raise input._refused("slice.Tensor", (input,), {})
            dim += 1
        else:
            made = made.select(dim, entry)
    return made


@answers("__setitem__")
def _set_item(input: StridedNestedTensor, index: Any, value: Any) -> None:
    made = _item(input, index)
    if isinstance(value, Tensor):
        made.copy_(value)
    else:
        made.fill_(value)


@answers("narrow")
def _narrow(input: StridedNestedTensor, dim: int, start: int, length: int) -> StridedNestedTensor:
    count = len(input._parts)
    if dim != 0:
        raise RuntimeError(f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    if not 0 <= start <= start + length <= count:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({count}).")
    if not input.is_contiguous():
        raise RuntimeError("narrow(): only contiguous nested tensors supported")
    parts = input._parts[start : start + length]
    first = parts[0].offset if parts else 0
    buffer = input._buffer.narrow(0, first, sum(p.numel for p in parts))
    moved = [Part(p.size, p.stride, p.offset - first) for p in parts]
    return StridedNestedTensor(buffer, moved, input.dim())


def _cut(input: StridedNestedTensor, lengths: list[int]) -> tuple[StridedNestedTensor, ...]:
    """Views of the last dimension, cut into pieces."""
    made, at = [], 0
    for n in lengths:
        parts = [
            Part((*p.size[:-1], n), p.stride, p.offset + at * p.stride[-1]) for p in input._parts
        ]
        made.append(input._with(parts))
        at += n
    return tuple(made)


@answers("chunk")
def _chunk(input: StridedNestedTensor, chunks: int, dim: int = 0) -> Any:
    if wrapped(input.dim(), dim) != input.dim() - 1:
        raise RuntimeError(
            "Chunk for nested tensors is currently only supported for the last dimension."
        )
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not input.is_contiguous():
        raise RuntimeError("chunk expects `self` to be contiguous.")
    last = input.size(-1)
    if last % chunks:
        raise RuntimeError(
            "Chunk for nested tensors is only supported for nested tensors with trailing dimension divisible by "
            f"chunks, got: {last} % {chunks} != 0"
        )
    return _cut(input, [last // chunks] * chunks)


@answers("split", "split_with_sizes")
def _split(input: StridedNestedTensor, split_sizes: Any, dim: int = 0) -> Any:
    if isinstance(split_sizes, int):
        raise input._refused("split.Tensor", (input,), {})
    if wrapped(input.dim(), dim) != input.dim() - 1:
        raise RuntimeError(
            "split_with_sizes for nested tensors is currently only supported for the last dimension."
        )
    lengths = list(split_sizes)
    if sum(lengths) != input.size(-1):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.size(-1)} (input tensor's size at "
            f"dimension {input.dim() - 1}), but got split_sizes={lengths}"
        )
    return _cut(input, lengths)


def _shaped(input: StridedNestedTensor, size: list[int], name: str) -> list[tuple[int, ...]]:
    """The sizes of the parts in a view; -1 stands for what a part has there."""
    if not size:
        raise RuntimeError("shape '[]' is invalid for a nested tensor")
    if size[0] != len(input._parts):
        raise RuntimeError(
            f"{name}: For now nested {name} cannot change or infer the implicit batch dimension"
        )
    old = input.dim()
    made = []
    for p in input._parts:
        given = []
        for d, s in enumerate(size[1:]):
            if s == -1 and d >= old - 1:
                raise RuntimeError("nested tensor does not infer shape")
            given.append(p.size[d] if s == -1 else s)
        made.append(tuple(given))
    return made


def _reshaped(input: StridedNestedTensor, size: list[int], copy: bool) -> StridedNestedTensor:
    wanted = _shaped(input, size, "reshape" if copy else "view")
    parts = []
    for p, shape in zip(input._parts, wanted, strict=True):
        strides = _view_strides(p, shape)
        if math.prod(shape) != p.numel or (strides is None and not copy):
            raise RuntimeError(f"shape '{size}' is invalid for input of size {p.numel}")
        parts.append(None if strides is None else Part(shape, strides, p.offset))
    if None not in parts:
        return input._with(parts)  # type: ignore[arg-type]
    whole = [p.reshape(shape) for p, shape in zip(input.unbind(), wanted, strict=True)]
    return of_parts(whole, input)


def _view_strides(p: Part, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a view of a part, or None if it would have to be copied."""
    if math.prod(shape) != p.numel:
        return None
    if shape == p.size:
        return p.stride
    # Dimensions that lie one behind the other are one, and sizes are taken off it from the last.
    runs: list[list[int]] = []
    for size, stride in zip(p.size, p.stride, strict=True):
        if size != 1 and runs and runs[-1][1] == size * stride:
            runs[-1] = [runs[-1][0] * size, stride]
        elif size != 1:
            runs.append([size, stride])
    strides = []
    for size in reversed(shape):
        while runs and runs[-1][0] == 1:
            runs.pop()
        left, step = runs[-1] if runs else [1, 1]
        if left % size:
            return None
        strides.append(step)
        if runs:
            runs[-1] = [left // size, step * size]
    return tuple(reversed(strides))


@answers("view")
def _view(input: StridedNestedTensor, *size: Any) -> StridedNestedTensor:
    if len(size) == 1 and isinstance(size[0], torch.dtype):
        raise input._refused("view.dtype", (input,), {})
    return _reshaped(input, sizes(size), False)


@answers("reshape")
def _reshape(input: StridedNestedTensor, *shape: Any, **kwargs: Any) -> StridedNestedTensor:
    return _reshaped(input, list(kwargs["shape"]) if kwargs else sizes(shape), True)


@answers("reshape_as")
def _reshape_as(input: StridedNestedTensor, other: Any) -> StridedNestedTensor:
    wanted = [p.size for p in other._parts]
    whole = [p.reshape(size) for p, size in zip(input.unbind(), wanted, strict=True)]
    return of_parts(whole, input)
