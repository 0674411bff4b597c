"""Reductions of jagged tensors: of values where sequences stay or all go, of padded sequences along each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torchlike as torch
from torchlike import Tensor
from torchlike.nested import _padded
from torchlike.nested._calls import answers
from torchlike.nested._internal.nested_tensor import NestedTensor, wrapped


def _kinds(t: NestedTensor, dims: list[int]) -> tuple[list[int], bool, bool, bool]:
    """Dimensions of the values, and whether the batch, the ragged and other dimensions are among them."""
    whole = [wrapped(t.dim(), d) for d in dims]
    mine = list(dict.fromkeys(t._ragged_idx - 1 if d == 0 else d - 1 for d in whole))
    others = any(d not in (0, t._ragged_idx) for d in whole)
    return mine, 0 in whole, t._ragged_idx in whole, others


def _mapped(made: Any, f: Callable[[Tensor], Any]) -> Any:
    return type(made)(list(map(f, made))) if isinstance(made, tuple) else f(made)


def to_padded(t: NestedTensor, padding: float) -> Tensor:
    """The sequences padded to the longest."""
    length = t._get_max_seqlen()
    return _padded.padded(t._values, t._offsets, t._ragged_idx, length, padding)


def reduced(
    t: NestedTensor,
    name: str,
    func: Callable[..., Any],
    dim: Any,
    keepdim: bool,
    identity: float,
    **options: Any,
) -> Any:
    """What `func` makes along dimensions; padded places count as `identity`."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        made = func(t._values, **options)
        return _mapped(made, lambda m: m.unsqueeze(t._ragged_idx)) if keepdim else made
    listed = isinstance(dim, list | tuple)
    mine, batch, ragged, others = _kinds(t, list(dim) if listed else [dim])
    where: Any = mine if listed else mine[0]
    if ragged and t._lengths is not None:
        raise RuntimeError(
            f"{name}(): reducing across the ragged dimension is not supported "
            "for non-contiguous nested tensors with holes"
        )
    if ragged and batch:
        made = func(t._values, dim=where, keepdim=keepdim, **options)
        return _mapped(made, lambda m: m.unsqueeze(0)) if keepdim else made
    if ragged and others:
        raise RuntimeError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
        )
    if ragged:
        at: Any = [t._ragged_idx] if listed else t._ragged_idx
        return func(to_padded(t, identity), dim=at, keepdim=keepdim, **options)
    if batch:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported "
            "for nested tensors"
        )
    made = func(t._values, dim=where, keepdim=keepdim, **options)
    gone = 0 if keepdim else sum(d < t._ragged_idx - 1 for d in mine)
    return _mapped(made, lambda m: t._like(m, t._ragged_idx - gone))


def _extreme(t: NestedTensor, largest: bool) -> float:
    """What never is the largest (or smallest) value of a dtype, other than where all are."""
    if t.dtype is torch.bool:
        return not largest
    if t.dtype.is_complex:
        return 0  # which is never read: complex numbers have no order
    info: Any = torch.finfo(t.dtype) if t.dtype.is_floating_point else torch.iinfo(t.dtype)
    return info.min if largest else info.max


def _dtyped(dtype: Any) -> dict[str, Any]:
    return {} if dtype is None else {"dtype": dtype}


@answers("sum")
def _sum(input: NestedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return reduced(input, "sum", torch.sum, dim, keepdim, 0, **_dtyped(dtype))


@answers("prod")
def _prod(input: NestedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return reduced(input, "prod", torch.prod, dim, keepdim, 1, **_dtyped(dtype))


@answers("mean")
def _mean(input: NestedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    options = _dtyped(dtype)
    if dim is not None:
        listed = list(dim) if isinstance(dim, list | tuple) else [dim]
        _, batch, ragged, others = _kinds(input, listed)
        if ragged and not batch:
            if others:
                raise AssertionError(
                    "Cannot reduce on both ragged and non-batch dimensions without also reducing on batch"
                )
            total = reduced(input, "mean", torch.sum, listed, True, 0, **options)
            lengths = input._lengths if input._lengths is not None else input._offsets.diff()
            made = total / lengths.view(-1, *[1] * (total.dim() - 1))
            return made if keepdim else made.squeeze(input._ragged_idx)
        dim = listed
    return reduced(input, "mean", torch.mean, dim, keepdim, 0, **options)


@answers("any")
def _any(input: NestedTensor, dim: Any = None, keepdim: bool = False) -> Any:
    return reduced(input, "any", torch.any, dim, keepdim, False)


@answers("all")
def _all(input: NestedTensor, dim: Any = None, keepdim: bool = False) -> Any:
    return reduced(input, "all", torch.all, dim, keepdim, True)


def _along(name: str, largest: bool) -> None:
    func = getattr(torch, name)

    def extreme(input: NestedTensor, dim: Any = None, keepdim: bool = False) -> Any:
        return reduced(input, name, func, dim, keepdim, _extreme(input, largest))

    answers(name)(extreme)


for _name in ("amax", "amin", "argmax", "argmin"):
    _along(_name, _name.endswith("max"))


def _with_indices(name: str, largest: bool, each: Callable[..., Any]) -> None:
    func = getattr(torch, name)

    def extreme(
        input: NestedTensor, dim: Any = None, keepdim: bool = False, *, other: Any = None
    ) -> Any:
        other = dim if isinstance(dim, Tensor) else other
        if other is not None:
            return each(input, other)
        return reduced(input, name, func, dim, keepdim, _extreme(input, largest))

    answers(name)(extreme)


_with_indices("max", True, torch.maximum)
_with_indices("min", False, torch.minimum)


@answers("softmax", "_softmax")
def _softmax(
    input: NestedTensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None, **_: Any
) -> NestedTensor:
    if isinstance(dim, list | tuple):
        kind = type(dim).__name__
        raise TypeError(f"softmax(): argument 'dim' (position 1) must be int, not {kind}")
    (at,), batch, ragged, _others = _kinds(input, [0 if dim is None else dim])
    if batch:
        raise RuntimeError(
            "softmax(): not supported when reducing across the batch dimension for NestedTensor"
        )
    values = input._values if dtype is None else input._values.to(dtype)
    if not ragged:
        return input._like(torch.softmax(values, at))
    if input._ragged_idx > 1:
        raise RuntimeError(
            "softmax(): not supported when reducing along the ragged dimension for ragged_idx > 1 for NestedTensor"
        )
    if input._lengths is not None:
        raise RuntimeError(
            "softmax(): not supported where lengths is not None if reducing across the ragged dimension "
            "for NestedTensor"
        )
    padded = torch.softmax(to_padded(input._like(values), float("-inf")), 1)
    return input._like(_padded.packed(padded, input._offsets, 1, values.shape[0]))


@answers("log_softmax", "_log_softmax")
def _log_softmax(
    input: NestedTensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None, **_: Any
) -> NestedTensor:
    (at,), batch, ragged, _others = _kinds(input, [0 if dim is None else dim])
    if batch or ragged:
        which = "across the batch" if batch else "along the ragged"
        raise RuntimeError(
            f"log_softmax(): not supported when reducing {which} dimension for NestedTensor"
        )
    return input._like(torch.log_softmax(input._values, at, **_dtyped(dtype)))


@answers("softmin")
def _softmin(
    input: NestedTensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None
) -> NestedTensor:
    return _softmax(input._like(-input._values), dim, _stacklevel, dtype)
