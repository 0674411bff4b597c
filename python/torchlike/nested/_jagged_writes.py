"""Writes into jagged tensors, and what takes them apart: padding, selecting, sharing memory."""

from __future__ import annotations

from typing import Any

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import Tensor
from torchlike.nested import _padded
from torchlike.nested._calls import answers, sizes
from torchlike.nested._internal.nested_tensor import NestedTensor


@answers("to_padded_tensor", "nested_to_padded_tensor")
def _to_padded_tensor(input: NestedTensor, padding: float, output_size: Any = None) -> Tensor:
    if input._lengths is not None:
        raise RuntimeError("to_padded_tensor(): not supported for nested tensors with holes")
    r = input._ragged_idx
    if output_size is not None:
        length = int(output_size[r])
    else:
        length = input._maybe_max_seqlen
        length = input._values.shape[0] if length is None else length
    return _padded.padded(input._values, input._offsets, r, length, padding)


@answers("copy_", of="copy_default(self: jt_all, src: jt_all, non_blocking: any?)")
def _copy(input: NestedTensor, src: NestedTensor, non_blocking: bool = False) -> NestedTensor:
    if input._matches(src) and input._lengths is None:
        input._values.copy_(src._values)
        return input
    mine, theirs = input.unbind(), src.unbind()
    if [t.shape for t in mine] != [t.shape for t in theirs]:
        raise RuntimeError(
            f"copy_(): expected compatible input and src shapes, but got: {input.shape} and {src.shape}"
        )
    for a, b in zip(mine, theirs, strict=True):
        a.copy_(b)
    return input


@answers("fill")
def _filled(input: NestedTensor, value: Any) -> NestedTensor:
    return input._like(torch.fill(input._values, value))


def _writer(name: str) -> None:
    method = getattr(Tensor, name)

    def write(input: NestedTensor, *args: Any, **kwargs: Any) -> NestedTensor:
        method(input._values, *args, **kwargs)
        return input

    answers(name)(write)


for _name in ["fill_", "zero_", "normal_", "uniform_", "apply_", "share_memory_"]:
    _writer(_name)


@answers("is_shared")
def _is_shared(input: NestedTensor) -> bool:
    return input._values.is_shared()


@answers("map_")
def _map(input: NestedTensor, *_: Any) -> Any:
    raise RuntimeError(".map_ is not supported for tensor subclasses.")


@answers("tolist")
def _tolist(input: NestedTensor) -> Any:
    raise RuntimeError(".tolist() is not supported for tensor subclasses, got NestedTensor")


@answers("numpy", "__array__")
def _numpy(input: NestedTensor, *_: Any, **__: Any) -> Any:
    raise RuntimeError(".numpy() is not supported for tensor subclasses.")


@answers("pin_memory", of="_pin_memory_default(self: jt, device: any?)")
def _pin_memory(input: NestedTensor, device: Any = None) -> NestedTensor:
    return input._like(input._values.pin_memory())


@answers("is_same_size", of="is_same_size_default(self: jt_all, other: jt_all)")
def _is_same_size(input: NestedTensor, other: NestedTensor) -> bool:
    return bool(input._size == other._size)


@answers("equal")
def _equal(input: NestedTensor, other: Any) -> bool:
    return input._matches(other) and torch.equal(input._values, other._values)


@answers("allclose")
def _allclose(input: NestedTensor, other: Any, *args: Any, **kwargs: Any) -> bool:
    return input._matches(other) and torch.allclose(input._values, other._values, *args, **kwargs)


@answers("masked_select", of="masked_select_default(self: jt, mask: any)")
def _masked_select(input: NestedTensor, mask: Any) -> NestedTensor:
    if input.dim() > 2:
        raise RuntimeError("masked_select only support 2-D selections currently")
    if input.shape != mask.shape:
        raise RuntimeError(
            f"Mask with shape {mask.shape} is not compatible with input's shape {input.shape}"
        )
    counts = F.pad(mask._values.cumsum(0), (1, 0))
    return NestedTensor(input._values.masked_select(mask._values), counts[input._offsets])


def _indices(input: NestedTensor, indices: Any) -> list[Tensor]:
    """Indices of values, where those of the batch and of the ragged dimension make one."""
    r, given = input._ragged_idx, list(indices)
    lengths = input._offsets.diff() if input._lengths is None else input._lengths
    if not input.is_meta and not bool((given[r] < lengths[given[0]]).all()):
        raise RuntimeError("Some indices in the ragged dimension are out of bounds!")
    return [*given[1:r], input._offsets[given[0]] + given[r], *given[r + 1 :]]


@answers("index_put")
def _index_put(
    input: NestedTensor, indices: Any, values: Tensor, accumulate: bool = False
) -> NestedTensor:
    given = sizes((indices,))
    if len(given) > input.dim():
        raise AssertionError(
            f"Too many indices: got {len(given)} but tensor has {input.dim()} dimensions"
        )
    if len(given) > input._ragged_idx:
        made = input._values.index_put(tuple(_indices(input, given)), values, accumulate)
        return input._like(made)
    if not input.is_contiguous():
        raise RuntimeError(
            "index_put(): If ragged dimension is not part of indices, this only works on contiguous NJTs"
        )
    r, length = input._ragged_idx, input._get_max_seqlen()
    padded = _padded.padded(input._values, input._offsets, r, length, 0.0)
    padded = padded.index_put(tuple(given), values, accumulate)
    return input._like(_padded.packed(padded, input._offsets, r, input._values.shape[r - 1]))


@answers("index_put_")
def _index_put_(
    input: NestedTensor, indices: Any, values: Tensor, accumulate: bool = False
) -> NestedTensor:
    input._values.copy_(_index_put(input, indices, values, accumulate)._values)
    return input
