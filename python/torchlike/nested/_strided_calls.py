"""Calls of nested tensors of the strided layout: of the buffer where that is the same, else part by part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import Tensor
from torchlike.nested import _names
from torchlike.nested._calls import sizes
from torchlike.nested._internal.nested_tensor import wrapped
from torchlike.nested._strided import (
    Part,
    StridedNestedTensor,
    from_list,
    layout_tensors,
    of_parts,
)


def answers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function answers these calls."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        StridedNestedTensor._answers.update(dict.fromkeys(names, function))
        return function

    return decorate


def _is(v: Any) -> bool:
    return isinstance(v, StridedNestedTensor)


def _bare(v: Any) -> Any:
    return v._elements if _is(v) else v


def _both(first: Any, second: Any, what: str = "both self and other") -> None:
    """Checks that two operands are nested.

    Raises:
        RuntimeError: if one is not.
    """
    if not (_is(first) and _is(second)):
        words = ["nested" if _is(v) else "non-nested" for v in (first, second)]
        raise RuntimeError(
            f"Expected {what} to be nested, but got a {words[0]} self and {words[1]} other"
        )


def each(cls: Any, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A function of single elements: of the buffers, if all parts lie alike, else of the parts."""
    given: list[Any] = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
    nested = [v for v in given if _is(v)]
    t, *others = nested
    for dense in given:
        if not _is(dense) and dense.dim() != 0:
            _both(given[0], given[1])
    for other in others:
        if not t._matches(other):
            raise RuntimeError(f"{name} does not support broadcasting when given a NestedTensor")
    named = kwargs.items()
    if all(o._parts == t._parts for o in others):
        return t._like(func(*map(_bare, args), **{k: _bare(v) for k, v in named}))
    if name.endswith("_"):
        others_of = [v.unbind() if _is(v) else v for v in args]
        for i, _ in enumerate(t._parts):
            func(*(v[i] if isinstance(v, tuple) else v for v in others_of), **kwargs)
        return t
    parts = {id(v): v.unbind() for v in nested}
    made = []
    for i, _ in enumerate(t._parts):

        def part(v: Any, i: int = i) -> Any:
            return parts[id(v)][i] if _is(v) else v

        made.append(func(*map(part, args), **{k: part(v) for k, v in named}))
    return of_parts(made, t)


StridedNestedTensor._each = classmethod(each)  # type: ignore[assignment]


def _parts(input: StridedNestedTensor, func: Callable[[Tensor], Tensor]) -> StridedNestedTensor:
    """A nested tensor of a function of each part."""
    return of_parts([func(p) for p in input.unbind()], input)


@answers("unbind")
def _unbind(input: StridedNestedTensor, dim: int = 0) -> tuple[Tensor, ...]:
    if wrapped(input.dim(), dim) != 0:
        raise RuntimeError(
            f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead."
        )
    return input._views(input._buffer)


def _layout(at: int) -> Callable[[StridedNestedTensor], Tensor]:
    return lambda input: layout_tensors(input)[at]


_LAYOUT = ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")
for _at, _name in enumerate(_LAYOUT):
    answers(_name)(_layout(_at))


def _conversion(name: str) -> Any:
    method = getattr(Tensor, name, None)

    def convert(input: StridedNestedTensor, *args: Any, **kwargs: Any) -> Any:
        assert method is not None
        kwargs.pop("layout", None)
        bare = [v._elements if _is(v) else v for v in args]
        made = method(input._buffer, *bare, **kwargs)
        if not isinstance(made, Tensor):
            return made
        return input if made is input._buffer else input._like(made)

    return convert


for _name in _names.CONVERSIONS:
    answers(_name)(_conversion(_name))


@answers("clone")
def _clone(input: StridedNestedTensor, *, memory_format: Any = None) -> StridedNestedTensor:
    if memory_format is torch.contiguous_format and not input.is_contiguous():
        return of_parts(input.unbind(), input)
    return input._like(input._buffer.clone())


@answers("contiguous")
def _contiguous(input: StridedNestedTensor, memory_format: Any = None) -> StridedNestedTensor:
    return input if input.is_contiguous() else of_parts(input.unbind(), input)


def _factory(name: str) -> Any:
    function = getattr(torch, name)

    def like(input: StridedNestedTensor, *args: Any, **kwargs: Any) -> StridedNestedTensor:
        kwargs.pop("memory_format", None)
        return input._like(function(input._buffer, *args, **kwargs))

    return like


for _name in ["empty_like", "ones_like", "zeros_like", "full_like", "rand_like", "randn_like"]:
    answers(_name)(_factory(_name))


def _writer(name: str) -> None:
    method = getattr(Tensor, name)

    def write(input: StridedNestedTensor, *args: Any, **kwargs: Any) -> StridedNestedTensor:
        method(input._buffer, *args, **kwargs)
        return input

    answers(name)(write)


for _name in ["fill_", "zero_", "normal_", "uniform_", "share_memory_"]:
    _writer(_name)


@answers("is_shared")
def _is_shared(input: StridedNestedTensor) -> bool:
    return input._buffer.is_shared()


@answers("pin_memory")
def _pin_memory(input: StridedNestedTensor, device: Any = None) -> StridedNestedTensor:
    return input._like(input._buffer.pin_memory())


@answers("copy_")
def _copy(input: StridedNestedTensor, src: Any, non_blocking: bool = False) -> StridedNestedTensor:
    if not _is(src):
        raise RuntimeError("get_nested_tensor_impl requires a NestedTensor.")
    if not input._matches(src):
        raise RuntimeError(
            "copy_ only supports tensors that are the same size for Nested implementations"
        )
    for mine, other in zip(input.unbind(), src.unbind(), strict=True):
        mine.copy_(other)
    return input


@answers("is_same_size")
def _is_same_size(input: StridedNestedTensor, other: Any) -> bool:
    return input._matches(other)


@answers("equal")
def _equal(input: StridedNestedTensor, other: Any) -> bool:
    pairs = zip(input.unbind(), other.unbind(), strict=False)
    return input._matches(other) and all(torch.equal(a, b) for a, b in pairs)


@answers("allclose")
def _allclose(input: StridedNestedTensor, other: Any, *args: Any, **kwargs: Any) -> bool:
    pairs = zip(input.unbind(), other.unbind(), strict=False)
    return input._matches(other) and all(torch.allclose(a, b, *args, **kwargs) for a, b in pairs)


@answers("to_padded_tensor", "nested_to_padded_tensor")
def _to_padded_tensor(
    input: StridedNestedTensor, padding: float, output_size: Any = None
) -> Tensor:
    if not input.is_contiguous():
        raise RuntimeError("for now to_padded_tensor only supports contiguous nested tensor")
    ndim, parts = input.dim() - 1, input.unbind()
    size = [max((p.size[d] for p in input._parts), default=0) for d in range(ndim)]
    count = len(parts)
    if output_size is not None:
        if len(output_size) != input.dim():
            raise RuntimeError(
                "Length of output_size does not match NestedTensor dims. Broadcasting is not supported."
            )
        if any(o < s for o, s in zip(output_size, (count, *size), strict=True)):
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not supported."
            )
        size = [int(s) for s in output_size[1:]]
    filled = []
    for part in parts:
        pads = [n for d in reversed(range(ndim)) for n in (0, size[d] - part.shape[d])]
        filled.append(F.pad(part, pads, value=padding))
    more = (output_size[0] if output_size is not None else count) - count
    filled += [input._buffer.new_full(size, padding)] * more
    return torch.stack(filled) if filled else input._buffer.new_empty([0, *size])


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


def _shaped(input: StridedNestedTensor, size: list[int]) -> list[tuple[int, ...]]:
    """The sizes of the parts in a view; -1 stands for what a part has there."""
    if len(size) < 2:
        raise RuntimeError("view: For now nested view requires at least 2 dimensions")
    if size[0] != len(input._parts):
        raise RuntimeError(
            "view: For now nested view cannot change or infer the implicit batch dimension"
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
    wanted = _shaped(input, size)
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


@answers("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0) -> StridedNestedTensor:
    for t in tensors:
        if not _is(t):
            raise RuntimeError("cat(): expected each tensor in given list to be nested")
        if not t.is_contiguous():
            raise RuntimeError("cat(): only contiguous nested tensors are supported")
    first = tensors[0]
    dim = wrapped(first.dim(), dim)
    if dim == 0:
        return from_list([p for t in tensors for p in t.unbind()])
    rows = zip(*(t.unbind() for t in tensors), strict=True)
    return from_list([torch.cat(row, dim - 1) for row in rows])


# Layers call these with nested tensors.
from torchlike.nested import _strided_layers as _strided_layers  # noqa: E402
