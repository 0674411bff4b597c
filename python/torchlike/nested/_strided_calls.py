"""Calls of nested tensors of the strided layout: of the buffer where that is the same, else part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import Tensor
from torchlike.nested import _names
from torchlike.nested._internal.nested_tensor import wrapped
from torchlike.nested._strided import (
    StridedNestedTensor,
    dense_parts,
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


_FORMATS = {torch.channels_last: "ChannelsLast", torch.channels_last_3d: "ChannelsLast3d"}


@answers("clone")
def _clone(input: StridedNestedTensor, *, memory_format: Any = None) -> StridedNestedTensor:
    if memory_format in _FORMATS:
        raise RuntimeError(
            "Nested tensor clone supports Preserve and Contiguous memory formats, called clone with memory format: "
            + _FORMATS[memory_format]
        )
    if memory_format is torch.contiguous_format and not input.is_contiguous():
        return of_parts(input.unbind(), input)
    return input._like(input._buffer.clone())


@answers("contiguous")
def _contiguous(
    input: StridedNestedTensor, memory_format: Any = torch.contiguous_format
) -> StridedNestedTensor:
    if memory_format is torch.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    plain = memory_format is torch.contiguous_format and input.is_contiguous()
    return input if plain else _clone(input, memory_format=memory_format)


def _factory(name: str) -> Any:
    function = getattr(torch, name)

    def like(
        input: StridedNestedTensor, *args: Any, memory_format: Any = None, **kwargs: Any
    ) -> StridedNestedTensor:
        if memory_format in _FORMATS:
            raise RuntimeError(
                "empty_like_nested only supports memory format Preserve or Contiguous, but got "
                f"{_FORMATS[memory_format]} instead."
            )
        if memory_format is torch.contiguous_format and not input.is_contiguous():
            parts = dense_parts(input._sizes())
            room = input._buffer.new_empty(sum(p.numel for p in parts))
            return type(input)(function(room, *args, **kwargs), parts, input.dim())
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
def _is_same_size(input: Any, other: Any) -> bool:
    if not (_is(input) and _is(other)):
        raise RuntimeError("Expected both self and other to be nested tensors.")
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
    apart = {tuple(p.size[: dim - 1] + p.size[dim:] for p in t._parts) for t in tensors}
    if len(apart) > 1:
        raise RuntimeError(
            "cat(): expected all nested tensors to have matching ragged structures outside of the concatenated dim"
        )
    rows = zip(*(t.unbind() for t in tensors), strict=True)
    return from_list([torch.cat(row, dim - 1) for row in rows])


# Layers call these with nested tensors.
from torchlike.nested import _strided_layers as _strided_layers  # noqa: E402
from torchlike.nested import _strided_views as _strided_views  # noqa: E402
