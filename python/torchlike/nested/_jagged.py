"""Calls of jagged tensors: functions of single elements, changes of dtype, views, joins and writes."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike import Tensor
from torchlike.nested import _jagged_layers as _jagged_layers
from torchlike.nested import _jagged_sums as _jagged_sums
from torchlike.nested import _jagged_writes as _jagged_writes
from torchlike.nested import _names, _padded
from torchlike.nested._calls import answers, check, inner, mismatch, same_sequences, sizes
from torchlike.nested._internal.nested_tensor import (
    NestedTensor,
    jagged_from_list,
    moved,
    nested_view_from_values_offsets,
    wrapped,
)


def _nested(values: Any) -> list[NestedTensor]:
    return [v for v in values if isinstance(v, NestedTensor)]


def each(cls: Any, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """A function of single elements: of the values, if all jagged tensors have the same sequences."""
    given = (*args, *kwargs.values())
    t, *others = _nested(given)
    for other in others:
        if not same_sequences(t, other._size) and not same_sequences(other, t._size):
            raise mismatch(name, args, kwargs, args[0]._size, args[1]._size)

    def values(v: Any) -> Any:
        if isinstance(v, NestedTensor):
            return v._values
        if not isinstance(v, Tensor):
            return v
        spread = _spread(t, v, name, args, kwargs)
        return _padded.without_holes(spread, t) if v.requires_grad else spread

    made = func(*map(values, args), **{k: values(v) for k, v in kwargs.items()})
    return _wrap(t, made)


NestedTensor._each = classmethod(each)  # type: ignore[assignment]


def _wrap(t: NestedTensor, made: Any) -> Any:
    """The values with the sequences of a tensor; several in the tuple that they came in."""
    if isinstance(made, tuple):
        wrapped_all = [t._like(m) for m in made]
        return type(made)(wrapped_all) if type(made) is not tuple else tuple(wrapped_all)
    return t._like(made)


def _spread(t: NestedTensor, dense: Tensor, name: str, args: Any, kwargs: Any) -> Tensor:
    """A plain operand as it meets the values."""
    if dense.dim() > t.dim():
        raise NotImplementedError("NYI: broadcasting NT with T with larger dim")
    bare = dense
    while bare.dim() > 0 and bare.shape[0] == 1:
        bare = bare.squeeze(0)
    if t.dim() >= bare.dim() + 2:
        return bare
    if dense.dim() != t.dim() or dense.shape[0] != t._size[0]:
        shapes = [a.shape for a in args if isinstance(a, Tensor)]
        raise mismatch(name, args, kwargs, *(shapes * 2)[:2])
    longest = t._maybe_max_seqlen or t._values.shape[t._ragged_idx - 1]
    size = [longest if d == t._ragged_idx else s for d, s in enumerate(dense.shape)]
    return _padded.packed(
        dense.expand(size), t._offsets, t._ragged_idx, t._values.shape[t._ragged_idx - 1]
    )


@answers("frexp", "view_as_complex")
def _frexp(input: NestedTensor) -> Any:
    return _wrap(input, torch.frexp(input._values))


def _loss(name: str) -> Any:
    function = getattr(torch.nn.functional, name)

    def loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if not (isinstance(input, NestedTensor) and input._matches(target)):
            raise ValueError(
                f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is "
                "deprecated. Please ensure they have the same size."
            )
        made = function(input._values, target._values, *args, **kwargs)
        return input._like(made) if made.dim() == input._values.dim() else made

    return loss


for _name in _names.LOSSES:
    answers(_name)(_loss(_name))


def _conversion(name: str) -> Any:
    method = getattr(Tensor, name, None)

    def convert(input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
        assert method is not None
        if kwargs.pop("layout", torch.jagged) is not torch.jagged:
            raise RuntimeError("to(options) doesn't support converting to a different layout")
        made = method(input._values, *map(_bare, args), **{k: _bare(v) for k, v in kwargs.items()})
        if not isinstance(made, Tensor):
            return made
        return input if made is input._values else moved(input, made)

    return convert


def _bare(v: Any) -> Any:
    return v._elements if isinstance(v, NestedTensor) else v


for _name in _names.CONVERSIONS:
    answers(_name)(_conversion(_name))


@answers("clone")
def _clone(input: NestedTensor, *, memory_format: Any = None) -> NestedTensor:
    if input._lengths is not None and memory_format is torch.contiguous_format:
        if input._ragged_idx != 1:
            raise AssertionError("NJT with ragged_idx != 1 not supported for contiguous clone")
        return jagged_from_list(list(input.unbind()), None)[0]
    return input._like(input._values.clone(memory_format=memory_format or torch.preserve_format))


@answers("contiguous")
def _contiguous(input: NestedTensor, memory_format: Any = torch.contiguous_format) -> NestedTensor:
    return input if input.is_contiguous() else _clone(input, memory_format=memory_format)


def _factory(name: str) -> Any:
    function = getattr(torch, name)

    def like(input: NestedTensor, *args: Any, **kwargs: Any) -> NestedTensor:
        kwargs.pop("layout", None)
        return moved(input, function(input._values, *args, **kwargs))

    return like


for _name in [
    "empty_like",
    "ones_like",
    "zeros_like",
    "rand_like",
    "randn_like",
    "full_like",
    "randint_like",
]:
    answers(_name)(_factory(_name))


def _new(name: str) -> None:
    method = getattr(Tensor, name)

    def new(input: NestedTensor, *size: Any, **kwargs: Any) -> Any:
        if kwargs.pop("size", sizes(size)):
            raise RuntimeError("new_empty() not supported for NJT with shape != ()")
        return method(input._values, (), **kwargs)

    answers(name)(new)


for _name in ("new_empty", "new_zeros", "new_ones"):
    _new(_name)


@answers("unbind")
def _unbind(input: NestedTensor, dim: int = 0) -> tuple[Tensor, ...]:
    if dim != 0:
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    r, lengths = input._ragged_idx - 1, input._known_lengths()
    if input._lengths is None and sum(lengths) == input._values.shape[r]:
        return tuple(torch.split(input.values(), lengths, dim=r))
    values = input.values()
    return tuple(
        values.narrow(r, start, length)
        for start, length in zip(input._starts(), lengths, strict=True)
    )


@answers("select", of="select_int(self: jt_all, dim: any, index: any)")
def _select(input: NestedTensor, dim: int, index: int) -> Tensor:
    at = inner(input, dim, "select", batch=True)
    if wrapped(input.dim(), dim) == 0:
        return input.unbind()[index]
    if input._lengths is not None:
        raise ValueError(
            "select(): not yet supported on dim != 0 for non-contiguous nested tensor with holes"
        )
    return input._like(input._values.select(at, index), input._ragged_idx - int(_before(input, at)))


def _before(t: NestedTensor, at: int) -> bool:
    return at < t._ragged_idx - 1


@answers("__getitem__")
def _item(input: Any, index: Any) -> Any:
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(e, Tensor | list) for e in entries):
        raise NotImplementedError(_names.operator("index", (), {}))
    if ... in entries:
        at = entries.index(...)
        given = sum(e is not None for e in entries) - 1
        fill = (slice(None),) * (input.dim() - given)
        entries = (*entries[:at], *fill, *entries[at + 1 :])
    made, dim = input, 0
    for i, entry in enumerate(entries):
        if not isinstance(made, NestedTensor):
            # What is left counts from the part that the batch gave.
            return made[tuple(entries[i:])]
        if entry is None:
            made, dim = made.unsqueeze(dim), dim + 1
        elif isinstance(entry, slice):
            made, dim = made if entry == slice(None) else _sliced(made, dim, entry), dim + 1
        else:
            made = made.select(dim, entry)
    return made


def _sliced(t: NestedTensor, dim: int, part: slice) -> NestedTensor:
    at = inner(t, dim, "slice")
    index = (slice(None),) * at + (part,)
    return t._like(t._values[index])


@answers("__setitem__")
def _set_item(input: NestedTensor, index: Any, value: Any) -> None:
    made = _item(input, index)
    if isinstance(value, Tensor):
        made.copy_(value)
    else:
        made.fill_(value)


@answers("chunk", of="chunk_default(self: jt, chunks: any, dim: any?)")
def _chunk(input: NestedTensor, chunks: int, dim: int = 0) -> tuple[NestedTensor, ...]:
    at = inner(input, dim, "chunk", batch=True)
    if wrapped(input.dim(), dim) != 0:
        return tuple(input._like(v) for v in input._values.chunk(chunks, at))
    lengths, count = input._known_lengths(), -(-len(input) // chunks)
    groups = [lengths[i : i + count] for i in range(0, len(lengths), count)]
    values = input._values.split([sum(g) for g in groups])
    return tuple(
        _with_lengths(v, g, input._ragged_idx) for v, g in zip(values, groups, strict=True)
    )


def _with_lengths(values: Tensor, lengths: list[int], ragged_idx: int) -> NestedTensor:
    counts = torch.tensor([0, *lengths], dtype=torch.int64, device=values.device)
    return nested_view_from_values_offsets(values, counts.cumsum(0), ragged_idx)


@answers("split", of="split_tensor(self: jt, split_size: any, dim: any?)")
def _split(
    input: NestedTensor, split_size_or_sections: Any, dim: int = 0
) -> tuple[NestedTensor, ...]:
    whole = isinstance(split_size_or_sections, int)
    at = inner(input, dim, "split" if whole else "split_with_sizes")
    parts = input._values.split(split_size_or_sections, at)
    return tuple(input._like(v) for v in parts)


@answers("split_with_sizes", of="split_with_sizes_default(self: jt, split_sizes: any, dim: any?)")
def _split_with_sizes(input: NestedTensor, split_sizes: Any, dim: int = 0) -> Any:
    return _split(input, list(split_sizes), dim)


@answers("tensor_split", "unsafe_chunk", "unsafe_split")
def _tensor_split(input: NestedTensor, indices_or_sections: Any, dim: int = 0) -> Any:
    at = inner(input, dim, "slice")
    return tuple(input._like(v) for v in input._values.tensor_split(indices_or_sections, at))


@answers("narrow", of="narrow(self: jt, dim: any, start: any, length: any)")
def _narrow(input: NestedTensor, dim: int, start: int, length: int) -> NestedTensor:
    return input._like(input._values.narrow(inner(input, dim, "narrow"), start, length))


@answers("diff")
def _diff(input: NestedTensor, n: int = 1, dim: int = -1) -> NestedTensor:
    return input._like(input._values.diff(n, inner(input, dim, "narrow")))


@answers("squeeze")
def _squeeze(input: NestedTensor, dim: int | None = None) -> NestedTensor:
    if dim is None:
        raise NotImplementedError("aten.squeeze.default")
    check("squeeze_dim(self: jt, dim: any)", input, dim)
    return input._like(input._values.squeeze(inner(input, dim, "squeeze")))


@answers("unsqueeze")
def _unsqueeze(input: NestedTensor, dim: int) -> NestedTensor:
    at = inner(input, dim, "unsqueeze", more=1, ragged=True)
    return input._like(
        input._values.unsqueeze(at), input._ragged_idx + int(at <= input._ragged_idx - 1)
    )


@answers("transpose", "swapaxes", "swapdims")
def _transpose(input: NestedTensor, dim0: int, dim1: int) -> NestedTensor:
    both = dim0, dim1 = wrapped(input.dim(), dim0), wrapped(input.dim(), dim1)
    if input._ragged_idx not in both:
        at = [inner(input, d, "transpose") for d in both]
        return input._like(input._values.transpose(*at))
    if 0 in both:
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    to = dim1 if dim0 == input._ragged_idx else dim0
    return input._like(input._values.transpose(dim0 - 1, dim1 - 1), to)


@answers("permute")
def _permute(input: NestedTensor, *dims: Any) -> NestedTensor:
    order, ndim = sizes(dims), input.dim()
    if len(order) != ndim:
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({ndim}) does not match the length of the desired "
            f"ordering of dimensions ({len(order)})."
        )
    order = [wrapped(ndim, d) for d in order]
    if len(set(order)) != ndim:
        raise ValueError("permute(): duplicate dims are not allowed.")
    if input._lengths is not None:
        raise ValueError("permute(): not supported on jagged layout nested tensor with holes")
    if order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    values = input._values.permute([d - 1 for d in order[1:]])
    return input._like(values, order.index(input._ragged_idx))


@answers("movedim", "moveaxis")
def _movedim(input: NestedTensor, source: Any, destination: Any) -> NestedTensor:
    ndim = input.dim()
    listed = [[d] if isinstance(d, int) else list(d) for d in (source, destination)]
    src, dst = ([wrapped(ndim, d) for d in one] for one in listed)
    order: list[Any] = [None] * ndim
    for s, d in zip(src, dst, strict=True):
        order[d] = s
    rest = iter(d for d in range(ndim) if d not in src)
    return _permute(input, [next(rest) if d is None else d for d in order])


def _reshaped(input: NestedTensor, size: list[Any], copy: bool) -> NestedTensor:
    if input._ragged_idx != 1 and tuple(input._size) != tuple(size):
        raise RuntimeError(
            "view(): does not support ragged_idx != 1 except when inp._size == size. "
            f"inp._size is ({input._size}) and size is ({size})."
        )
    if len(size) < 3 or not same_sequences(input, size):
        raise RuntimeError(f"view(): cannot view shape {input._size} as {size}")
    r = input._ragged_idx - 1
    shape = [input._values.shape[r] if d == r else s for d, s in enumerate(size[1:])]
    return input._like(input._values.reshape(shape) if copy else input._values.view(shape))


@answers("view", "_unsafe_view")
def _view(input: NestedTensor, *size: Any) -> NestedTensor:
    if len(size) == 1 and isinstance(size[0], torch.dtype):
        raise NotImplementedError("aten.view.dtype")
    return _reshaped(input, sizes(size), False)


@answers("reshape")
def _reshape(input: NestedTensor, *shape: Any, **kwargs: Any) -> NestedTensor:
    return _reshaped(input, list(kwargs["shape"]) if kwargs else sizes(shape), True)


@answers("view_as", "reshape_as")
def _view_as(input: NestedTensor, other: Any) -> NestedTensor:
    return _reshaped(input, list(other.shape), True)


@answers("flatten")
def _flatten(input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    for dim in (start_dim, end_dim):
        inner(input, dim, "flatten")
    start, end = (wrapped(input.dim(), d) for d in (start_dim, end_dim))
    product = math.prod(input._size[start : end + 1])
    return _reshaped(input, [*input._size[:start], product, *input._size[end + 1 :]], True)


@answers("unflatten")
def _unflatten(input: NestedTensor, dim: int, sizes: Any) -> NestedTensor:
    if dim in (0, -input.dim()):
        wanted = [*sizes, *input._size[1:]]
        raise RuntimeError(f"view(): cannot view shape {input._size} as {wanted}")
    return input._like(input._values.unflatten(inner(input, dim, "unflatten"), tuple(sizes)))


@answers("expand", "broadcast_to")
def _expand(input: NestedTensor, *size: Any) -> NestedTensor:
    target = sizes(size)
    if not same_sequences(input, target):
        raise RuntimeError(f"expand(): cannot expand shape {input._size} -> {target}")
    r = input._ragged_idx
    return input._like(
        input._values.expand([-1 if d == r else s for d, s in enumerate(target)][1:])
    )


@answers("expand_as")
def _expand_as(input: Any, other: NestedTensor) -> NestedTensor:
    if isinstance(input, NestedTensor):
        return _expand(input, list(other._size))
    return other._like(input.expand_as(other._values))


@answers("broadcast_tensors")
def _broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    given = sizes(tensors)
    t = _nested(given)[0]
    whole = [g if isinstance(g, NestedTensor) else None for g in given]
    shape = torch.broadcast_shapes(*(w._values.shape for w in whole if w is not None))
    made = []
    for g in given:
        if isinstance(g, NestedTensor):
            if not same_sequences(t, g._size):
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {g._size[g._ragged_idx]} at "
                    f"{g._ragged_idx - g.dim()}! Mismatching argument had {g.shape}"
                )
            made.append(g._like(g._values.expand(shape)))
        elif g.dim() < t.dim():
            made.append(t._like(g.broadcast_to(shape)))
        else:
            raise ValueError(
                "broadcast_tensors(): broadcasting nested tensors with dense tensors of equal "
                "or higher dim is not currently supported"
            )
    return tuple(made)


@answers("where")
def _where(*args: Any, **kwargs: Any) -> NestedTensor:
    names = ("condition", "input", "other")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    condition, input, other = (given[n] for n in names)
    if not isinstance(condition, Tensor) or condition.dtype is not torch.bool:
        # The method: the tensor comes first, then the condition.
        condition, input = input, condition
    if not isinstance(condition, NestedTensor):
        kind = "expected condition to be a jagged layout NestedTensor"
        raise ValueError(
            f"NestedTensor where_self(condition: jt_all, self: any, other: any): {kind}"
        )
    tensors = [v for v in (condition, input, other) if isinstance(v, Tensor)]
    spread = iter(_broadcast_tensors(*tensors))
    values = [
        next(spread)._values if isinstance(v, Tensor) else v for v in (condition, input, other)
    ]
    return condition._like(torch.where(*values))


@answers("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0) -> NestedTensor:
    t = _nested(tensors)[0]
    joined = [v if isinstance(v, NestedTensor) else _expand_as(v, t) for v in tensors]
    at = inner(t, dim, "cat")
    return joined[0]._like(torch.cat([v._values for v in joined], at))


@answers("hstack")
def _hstack(tensors: Any) -> NestedTensor:
    return _cat(tensors, 1)


@answers("stack")
def _stack(tensors: Any, dim: int = 0) -> NestedTensor:
    for t in tensors:
        if not isinstance(t, NestedTensor):
            raise RuntimeError("stack(): expected all nested tensors inputs")
        if t.dim() != tensors[0].dim():
            raise RuntimeError("stack(): expected all nested tensors to have the same dim")
        if not same_sequences(t, tensors[0]._size):
            raise RuntimeError(
                "stack(): expected all nested tensors to have the same nested structure"
            )
    at = inner(tensors[0], dim, "stack", more=1)
    made: NestedTensor = tensors[0]._like(torch.stack([t._values for t in tensors], at))
    return made


def _methods() -> None:
    """Methods whose sizes may be ragged ones, which the parser of arguments would refuse."""
    for name in ("view", "reshape", "expand", "broadcast_to", "unflatten"):
        setattr(NestedTensor, name, NestedTensor._answers[name])


_methods()
