"""Jagged tensors: sequences of different lengths, one after another in one dimension of a plain tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import torchlike as torch
from torchlike import _C, Size, Tensor
from torchlike.nested import _names
from torchlike.nested._base import Nested
from torchlike.nested._internal.nested_int import ragged_size, share_size, start

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "NestedTensor",
    "buffer_from_jagged",
    "get_tensor_symint",
    "jagged_from_list",
    "jagged_from_tensor_and_lengths",
    "nested_from_padded",
    "nested_view_from_values_offsets",
    "nested_view_from_values_offsets_lengths",
]


def get_tensor_symint(tensor: Tensor, *, coeff: int = 1) -> Any:
    """The ragged size that a tensor of offsets or lengths stands for."""
    size: Any = ragged_size(tensor)
    return size * coeff if coeff != 1 else size


def _check(values: Any, offsets: Any, lengths: Any) -> None:
    if offsets is None:
        raise AssertionError("offsets must not be None")
    if offsets.ndim != 1:
        raise AssertionError(f"offsets must be 1D, but got {offsets.ndim}D")
    if isinstance(values, Nested):
        raise AssertionError("values must not be a NestedTensor")
    if values.device != offsets.device:
        raise AssertionError(
            "values and offsets must be on the same device, but got "
            f"values.device={values.device} and offsets.device={offsets.device}"
        )
    if lengths is not None and offsets.shape[0] - 1 != lengths.shape[0]:
        raise AssertionError(
            "offsets and lengths batch sizes must match: "
            f"offsets.shape[0] - 1 = {offsets.shape[0] - 1}, lengths.shape[0] = {lengths.shape[0]}"
        )


class NestedTensor(Nested):
    """A tensor `[B, j, D, ...]` whose dimension `j` is as long as each sequence is.

    `values` `[sum of lengths, D, ...]` hold all sequences, `offsets` `[B + 1]` say where each begins and the last
    ends. With `lengths` `[B]` there are holes: a sequence then ends before the next begins. Another dimension than the
    first of `values` can be the ragged one (`_ragged_idx`, counted with the batch).

    Raises:
        AssertionError: if the parts do not fit one another.
    """

    _answers: ClassVar[dict[str, Callable[..., Any]]] = {}
    _values: Tensor  # type: ignore[assignment]
    _offsets: Tensor
    _lengths: Tensor | None
    _size: tuple[Any, ...]
    _strides: tuple[Any, ...]
    _ragged_idx: int
    _dynamo_propagated_dynamic_indices: set[int]
    _metadata_cache: dict[str, Any]

    @staticmethod
    def __new__(
        cls: type,
        values: Tensor,
        offsets: Tensor,
        *,
        lengths: Tensor | None = None,
        **kwargs: Any,
    ) -> NestedTensor:
        """As the class says; `_metadata_cache` holds what is known of the shortest and the longest sequence."""
        _check(values, offsets, lengths)
        ragged_idx: int = kwargs.get("_ragged_idx", 1)
        if not 1 <= ragged_idx <= values.dim():
            raise AssertionError(
                f"ragged dimension {ragged_idx} is no dimension of {values.dim() + 1}"
            )
        if kwargs.get("requires_grad", False) and not values.requires_grad:
            values = values.detach().requires_grad_()
        root: Any = Tensor
        shape = (max(offsets.shape[0] - 1, 0), *values.shape)
        made: NestedTensor = root._make_wrapper_subclass(
            cls, shape, strides=(0,) * len(shape), dtype=values.dtype, device=values.device
        )
        r = ragged_idx - 1
        ragged = ragged_size(offsets if lengths is None else lengths)
        made._values, made._offsets, made._lengths = values, offsets, lengths
        made._ragged_idx, made._dynamo_propagated_dynamic_indices = ragged_idx, {ragged_idx}
        made._metadata_cache = kwargs.get("_metadata_cache") or {}
        made._size = (offsets.shape[0] - 1, *values.shape[:r], ragged, *values.shape[r + 1 :])
        stride = values.stride()
        made._strides = (ragged * stride[r], *stride)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    @property
    def _elements(self) -> Tensor:
        return self._values

    @_elements.setter
    def _elements(self, value: Tensor) -> None:
        self._values = value

    def _like(self, elements: Tensor, ragged_idx: int | None = None) -> Self:
        """A tensor of the same sequences with other values."""
        return type(self)(
            elements,
            self._offsets,
            lengths=self._lengths,
            _ragged_idx=self._ragged_idx if ragged_idx is None else ragged_idx,
            _metadata_cache=self._metadata_cache,
        )

    def _matches(self, other: Any) -> bool:
        return isinstance(other, NestedTensor) and self._size == other._size

    layout = property(lambda self: torch.jagged)
    T = property(lambda self: self.permute(*range(self.dim() - 1, -1, -1)))

    def size(self, dim: int | None = None) -> Any:
        """The shape, whose ragged size is no number, or one size of it."""
        return Size(self._size) if dim is None else self._size[wrapped(len(self._size), dim)]

    def stride(self, dim: int | None = None) -> Any:
        """How far elements lie apart in each dimension, or in one; in the first by sequences."""
        return self._strides if dim is None else self._strides[wrapped(len(self._size), dim)]

    def dim(self) -> int:
        """How many dimensions there are, the batch's among them."""
        return len(self._size)

    def storage_offset(self) -> int:
        """Where the values begin in their storage."""
        return self._values.storage_offset()

    def numel(self) -> int:
        """How many elements all sequences have."""
        if self._lengths is None:
            return self._values.numel()
        fixed = [s for d, s in enumerate(self._size) if d not in (0, self._ragged_idx)]
        return sum(self._known_lengths()) * math.prod(fixed)

    def __len__(self) -> int:
        return int(self._size[0])

    def values(self) -> Tensor:
        """A view of all sequences, one after another in the ragged dimension."""
        return self._values.view_as(self._values)

    def offsets(self) -> Tensor:
        """Where each sequence begins, and the last ends."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """The lengths of the sequences if there are holes between them."""
        return self._lengths

    def _known_lengths(self) -> list[int]:
        """The lengths as numbers: read, or remembered where there is nothing to read."""
        source = self._offsets.diff() if self._lengths is None else self._lengths
        if source.is_meta or _C._is_fake(source):
            known = self._size[self._ragged_idx].node.lengths
            if known is not None:
                return list(known)
        return list(source.tolist())

    def _starts(self) -> list[int]:
        """Where each sequence begins, as numbers."""
        if self._lengths is not None:
            return list(self._offsets[:-1].tolist())
        starts, at = [], 0
        for length in self._known_lengths():
            starts.append(at)
            at += length
        return starts

    def _extreme(self, name: str, func: Callable[[list[int]], int]) -> int:
        if self._metadata_cache.get(name) is None:
            self._metadata_cache[name] = stored(func(self._known_lengths()))
        return int(self._metadata_cache[name].shape[0])

    def _get_max_seqlen(self) -> int:
        """The length of the longest sequence, which is remembered."""
        return self._extreme("max_seqlen", max)

    def _get_min_seqlen(self) -> int:
        """The length of the shortest sequence, which is remembered."""
        return self._extreme("min_seqlen", min)

    _max_seqlen = property(_get_max_seqlen)
    _min_seqlen = property(_get_min_seqlen)
    _max_seqlen_tensor = property(lambda self: self._metadata_cache.get("max_seqlen"))
    _min_seqlen_tensor = property(lambda self: self._metadata_cache.get("min_seqlen"))
    _maybe_max_seqlen = property(lambda self: _loaded(self._max_seqlen_tensor))
    _maybe_min_seqlen = property(lambda self: _loaded(self._min_seqlen_tensor))

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether there are no holes and the values lie row-major."""
        if self._lengths is not None:
            return False
        if memory_format is torch.preserve_format:
            return True
        return self._values.is_contiguous(memory_format=memory_format or torch.contiguous_format)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        history = f", requires_grad={self.requires_grad}" if self.requires_grad else ""
        if self.grad_fn is not None:
            history = f", grad_fn={self.grad_fn}"
        contiguous = self.is_contiguous()
        return f"NestedTensor(size={self._size}, offsets={self._offsets}{history}, contiguous={contiguous})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        from torchlike._tensor import _rebuild_from_type_v2

        made_of = {
            "values": self._values.detach().requires_grad_(self.requires_grad),
            "offsets": self._offsets,
            "lengths": self._lengths,
            "_ragged_idx": self._ragged_idx,
            "_metadata_cache": dict(self._metadata_cache),
            "requires_grad": self.requires_grad,
        }
        return _rebuild_from_type_v2, (_rebuild_njt, type(self), (made_of,), {})

    def _plain_parts(self) -> list[Tensor]:
        found = [self._values, self._offsets, self._lengths]
        return [t for t in found if t is not None]

    def _converted(self, convert: Callable[[Tensor], Tensor]) -> NestedTensor:
        """The same sequences of tensors that stand for its parts and need have no elements."""
        ragged = self._size[self._ragged_idx]
        if ragged.node.lengths is None and not self._offsets.is_meta:
            ragged.node.lengths = tuple(self._known_lengths())
        return self._with(convert(self._values), convert)

    def _with(self, values: Tensor, convert: Callable[[Tensor], Tensor]) -> NestedTensor:
        """The same sequences of other values, with converted offsets and lengths that stand for the same size."""
        offsets = convert(self._offsets)
        lengths = None if self._lengths is None else convert(self._lengths)
        share_size(offsets if lengths is None else lengths, self._size[self._ragged_idx])
        cache, idx = self._metadata_cache, self._ragged_idx
        return NestedTensor(
            values, offsets, lengths=lengths, _ragged_idx=idx, _metadata_cache=cache
        )

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        """The names of the tensors it is made of, and what else."""
        names = ["_values", "_offsets"]
        optional = ("_lengths", "_min_seqlen_tensor", "_max_seqlen_tensor")
        names += [n for n in optional if getattr(self, n) is not None]
        return names, {"requires_grad": self.requires_grad, "ragged_idx": self._ragged_idx}

    @staticmethod
    def __tensor_unflatten__(
        inner_tensors: dict[str, Any], meta: Any, outer_size: Any, outer_stride: Any
    ) -> NestedTensor:
        """The tensor that is made of these."""
        if not 2 <= len(inner_tensors) <= 5:
            raise AssertionError(f"Expected 2-5 inner tensors, but got {len(inner_tensors)}")
        known = {n: inner_tensors.get(f"_{n}_tensor") for n in ("min_seqlen", "max_seqlen")}
        return NestedTensor(
            inner_tensors["_values"],
            inner_tensors["_offsets"],
            lengths=inner_tensors.get("_lengths"),
            requires_grad=meta["requires_grad"],
            _ragged_idx=meta["ragged_idx"],
            _metadata_cache={n: t for n, t in known.items() if t is not None},
        )

    @classmethod
    def _refused(cls, name: str, args: Any, kwargs: Any) -> Exception:
        return NotImplementedError(_names.operator(name, args, kwargs))


def wrapped(ndim: int, dim: int) -> int:
    """A dimension counted from the front.

    Raises:
        IndexError: if there is no such dimension.
    """
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"
        )
    return dim % ndim


def stored(number: int | None) -> Tensor | None:
    """A number as the size of a tensor, which is how files keep it."""
    return None if number is None else torch.zeros(number, 0)


def _loaded(t: Tensor | None) -> int | None:
    return None if t is None else int(t.shape[0])


def _rebuild_njt(constructor_kwargs: Any) -> NestedTensor:
    return NestedTensor(**constructor_kwargs)


def moved(t: NestedTensor, values: Tensor) -> NestedTensor:
    """The same sequences with values on any device."""
    ragged = t._size[t._ragged_idx]
    if values.device.type == "meta" and ragged.node.lengths is None and not t.is_meta:
        ragged.node.lengths = tuple(t._known_lengths())

    def there(index: Tensor) -> Tensor:
        return index.to(device=values.device)

    return t._with(values, there)


def nested_view_from_values_offsets_lengths(
    values: Tensor,
    offsets: Tensor,
    lengths: Tensor | None,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """A jagged view of values, with holes if `lengths` are given."""
    start()
    cache = {"min_seqlen": stored(min_seqlen), "max_seqlen": stored(max_seqlen)}
    return NestedTensor(
        values.view_as(values),
        offsets,
        lengths=lengths,
        _ragged_idx=ragged_idx,
        _metadata_cache={n: t for n, t in cache.items() if t is not None},
    )


def nested_view_from_values_offsets(
    values: Tensor,
    offsets: Tensor,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """A jagged view of values."""
    return nested_view_from_values_offsets_lengths(
        values, offsets, None, ragged_idx, min_seqlen, max_seqlen
    )


def buffer_from_jagged(jagged: NestedTensor) -> Tensor:
    """A view of all sequences of a jagged tensor."""
    return jagged.values()


def _ragged_dimension(sizes: list[Any]) -> int:
    """The dimension of the whole in which the sizes differ; the first if they do not.

    Raises:
        RuntimeError: if they differ in several.
    """
    differ = [d for d in range(len(sizes[0])) if any(s[d] != sizes[0][d] for s in sizes)]
    if len(differ) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. "
            "Note that the jagged layout only allows for a single ragged dimension. "
            "For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    return differ[0] + 1 if differ else 1


def _check_list(tensors: list[Tensor]) -> None:
    if len(tensors) == 0:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    start = "When constructing a nested tensor, all tensors in list must "
    if len({t.dtype for t in tensors}) != 1:
        raise RuntimeError(start + "have the same dtype")
    if len({t.device for t in tensors}) != 1:
        raise RuntimeError(start + "be on the same device")
    if len({t.dim() for t in tensors}) != 1:
        raise RuntimeError(start + "have the same dim")
    if tensors[0].dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")


def jagged_from_list(
    tensors: list[Tensor], offsets: Tensor | None, dtype: Any = None, device: Any = None
) -> tuple[NestedTensor, Tensor]:
    """A jagged tensor of copies of tensors that differ in one size, and its offsets.

    Raises:
        RuntimeError: if they differ in anything else.
    """
    start()
    _check_list(tensors)
    ragged = _ragged_dimension([t.shape for t in tensors])
    values = torch.cat(tensors, dim=ragged - 1).to(device=device, dtype=dtype)
    lengths = tuple(t.shape[ragged - 1] for t in tensors)
    if offsets is None:
        offsets = torch.tensor(
            list(accumulate(lengths, initial=0)), dtype=torch.int64, device=values.device
        )
    ragged_size(offsets, lengths)
    extremes = min(lengths), max(lengths)
    return nested_view_from_values_offsets(values, offsets, ragged, *extremes), offsets


def _of_batch(t: Tensor, batch: int) -> Tensor:
    """One number for each of a batch.

    Raises:
        RuntimeError: if it cannot be that.
    """
    if tuple(t.shape) not in ((batch,), (1,), ()):
        raise RuntimeError(
            "When constructing a jagged nested tensor using narrow(), "
            "your start and length must be Tensors that broadcast to input.shape[0]"
        )
    return t.expand(batch)


def jagged_from_tensor_and_lengths(
    tensor: Tensor, starts: Tensor, lengths: Tensor
) -> tuple[NestedTensor, Tensor, Tensor | None]:
    """A view of a batch `[B, S, ...]` in which each sequence has a start and a length; its offsets and lengths."""
    start()
    batch = tensor.shape[0]
    starts, lengths = _of_batch(starts, batch), _of_batch(lengths, batch)
    if tensor.dim() < 2:
        raise AssertionError("tensor must at least be 2D for the nested narrow op to work")
    whole = tensor.shape[1]
    begins = starts + whole * torch.arange(batch, dtype=torch.int64, device=tensor.device)
    offsets = torch.cat([begins, (begins[-1] + lengths[-1]).unsqueeze(0)])
    values = tensor.view(-1, *tensor.shape[2:])
    shortest, longest = int(lengths.min().item()), int(lengths.max().item())
    joined = (
        bool((lengths[1:-1] == whole).all())
        and bool((offsets[1:-2].diff() == whole).all())
        and bool(offsets[0] + lengths[0] == whole)
    )
    if not joined:
        made = nested_view_from_values_offsets_lengths(
            values, offsets, lengths, min_seqlen=shortest, max_seqlen=longest
        )
        return made, offsets, lengths
    values = values[int(offsets[0]) : int(offsets[-1])]
    made = nested_view_from_values_offsets(
        values, offsets - offsets[0], min_seqlen=shortest, max_seqlen=longest
    )
    return made, offsets, None


def nested_from_padded(
    padded: Tensor,
    offsets: Tensor,
    ragged_idx: int = 1,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
    sum_S: int | None = None,
) -> NestedTensor:
    """A jagged tensor of the beginnings of padded sequences; `sum_S` is the sum of their lengths."""
    start()
    from torchlike.nested import _padded

    total = int(offsets[-1].item()) if sum_S is None else sum_S
    values = _padded.packed(padded, offsets, ragged_idx, total)
    return nested_view_from_values_offsets(values, offsets, ragged_idx, min_seqlen, max_seqlen)


# What the class answers is said where the calls are.
from torchlike.nested import _jagged as _jagged  # noqa: E402
