"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from collections import namedtuple
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torchlike as torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence(
    namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])
):
    """Steps of several sequences one after another, without padding."""

    data: torch.Tensor
    batch_sizes: torch.Tensor
    sorted_indices: torch.Tensor | None
    unsorted_indices: torch.Tensor | None
    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> Any:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type not in ("cpu", "meta"):
            raise ValueError(
                "batch_sizes should always be on CPU. "
                "Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with its data elsewhere or of another dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = {"device": data.device}
        indices = [i if i is None else i.to(**moved) for i in self[2:]]
        return type(self)(data, self.batch_sizes, *indices)

    def _on(self, device: str, args: Any, kwargs: Any) -> PackedSequence:
        """The same on devices of a kind; the arguments of `to` may say which."""
        there = torch.empty(0, dtype=self.data.dtype, device=self.data.device).to(*args, **kwargs)
        if there.device.type != device:
            kwargs["device"] = device
        return self.to(*args, **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on the CPU."""
        return self._on("cpu", args, kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a CUDA device."""
        return self._on("cuda", args, kwargs)

    def pin_memory(self) -> PackedSequence:
        """The same in pinned memory."""
        indices = [i if i is None else i.pin_memory() for i in self[2:]]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *indices)

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self.to(dtype=torch.double)

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self.to(dtype=torch.float)

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self.to(dtype=torch.half)

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self.to(dtype=torch.long)

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self.to(dtype=torch.int)

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self.to(dtype=torch.short)

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self.to(dtype=torch.int8)

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data lies on a CUDA device."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data lies in pinned memory."""
        return self.data.is_pinned()


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes another."""
    if permutation is None:
        return None
    out = torch.empty_like(permutation)
    out.scatter_(0, permutation, torch.arange(0, permutation.numel(), device=permutation.device))
    return out


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that were padded to one length."""
    if not isinstance(lengths, torch.Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = torch.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    sizes = lengths.to(torch.int64).tolist()
    if batch_first:
        input = input.transpose(0, 1)
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={input.size(1)})"
        )
    if any(a < b for a, b in pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence "
            "to sidestep this requirement if you do not need ONNX exportability."
        )
    if not sizes or sizes[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in "
            "'lengths' that is <= 0"
        )
    parts: list[Any] = []
    batches: list[int] = []
    for start, end, n in _runs(sizes):
        parts.append(input[start:end, :n].flatten(0, 1))
        batches += [n] * (end - start)
    data = torch.cat(parts)
    return PackedSequence(data, torch.tensor(batches, device="cpu"), sorted_indices, None)


def _runs(lengths: list[int]) -> Iterable[tuple[int, int, int]]:
    """Steps in which as many sequences go on: first, end, how many. Of lengths that never grow; of numbers of sequences
    by step they are the sequences that end together, how many steps they take."""
    start = 0
    for n in range(len(lengths), 0, -1):
        end = lengths[n - 1]
        if end > start:
            yield start, end, n
            start = end


def pad_packed_sequence(
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """Padded sequences, and their lengths."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length "
            "of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    steps = total_length if total_length is not None else longest
    batches = sequence.batch_sizes.tolist()
    data = sequence.data
    out = data.new_full((steps, batches[0], *data.shape[1:]), padding_value)
    sizes: list[int] = []
    for first, end, n in _runs(batches):
        sizes += [n] * (end - first)
    at = 0
    for start, end, n in _runs(sizes):
        rows = data[at : at + (end - start) * n]
        out[start:end, :n] = rows.unflatten(0, (end - start, n))
        at += (end - start) * n
    lengths = torch.tensor(sizes, device="cpu")
    if batch_first:
        out = out.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices
        out = out.index_select(0 if batch_first else 1, order)
        lengths = lengths[order.cpu()]
    return out, lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Tensors of different lengths in one, filled up at the end (or the start)."""
    if isinstance(sequences, torch.Tensor):
        sequences = sequences.unbind(0)
    elif not hasattr(sequences, "__iter__"):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, "
            f"but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    for i, s in enumerate(sequences):
        if not isinstance(s, torch.Tensor):
            found = type(s).__name__
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {found}")
    longest = max(s.size(0) for s in sequences)
    count = len(sequences)
    first = sequences[0]
    lead = (count, longest) if batch_first else (longest, count)
    out = first.new_full((*lead, *first.shape[1:]), padding_value)
    for i, tensor in enumerate(sequences):
        n = tensor.size(0)
        where = slice(0, n) if padding_side == "right" else slice(longest - n, longest)
        if batch_first:
            out[i, where] = tensor
        else:
            out[where, i] = tensor
    return out


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The tensors that were padded into one."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    places = torch.arange(padded_sequences.size(1), device=padded_sequences.device)
    each = zip(padded_sequences, lengths.tolist(), strict=False)
    return [seq[places[:length]] for seq, length in each]


def pack_sequence(sequences: Iterable[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors of different lengths."""
    sequences = list(sequences)
    lengths = torch.as_tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The tensors that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
