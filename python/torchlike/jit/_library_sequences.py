"""Packed sequences as TorchScript, and recurrent layers that read them."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import Tensor
from torchlike.nn.modules.rnn import GRU, LSTM, RNN
from torchlike.nn.utils.rnn import PackedSequence

aten = torchlike.ops.aten


class _Operator:
    """An operator of PyTorch's that code calls by a name that nothing else here has."""

    def __init__(self, name: str) -> None:
        self._qualified_op_name = f"aten::{name}"

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError(f"{self._qualified_op_name} is for compiled code")


pack = _Operator("_pack_padded_sequence")
pad = _Operator("_pad_packed_sequence")


def pack_padded_sequence(
    input: Tensor, lengths: Tensor, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None
    ordered = lengths
    x = input
    if not enforce_sorted:
        ordered, order = aten.sort(lengths, 0, True)
        x = aten.index_select(input, 0 if batch_first else 1, order)
        sorted_indices = order
        unsorted_indices = aten.argsort(order)
    data, batch_sizes = pack(x, ordered, batch_first)
    return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    steps = sequence.batch_sizes.size(0)
    if total_length is not None:
        assert total_length >= steps, "total_length is shorter than the longest sequence"
        steps = total_length
    padded, lengths = pad(sequence.data, sequence.batch_sizes, batch_first, padding_value, steps)
    back = sequence.unsorted_indices
    if back is None:
        return padded, lengths
    return aten.index_select(padded, 0 if batch_first else 1, back), aten.index_select(
        lengths, 0, back
    )


def _start(hx: Tensor | None, input: PackedSequence, layers: int, size: int) -> Tensor:
    order = input.sorted_indices
    if hx is None:
        batch = int(input.batch_sizes[0])
        return aten.zeros([layers, batch, size], dtype=input.data.dtype, device=input.data.device)
    return hx if order is None else aten.index_select(hx, 1, order)


def _end(hx: Tensor, input: PackedSequence) -> Tensor:
    back = input.unsorted_indices
    return hx if back is None else aten.index_select(hx, 1, back)


def _packed(data: Tensor, like: PackedSequence) -> PackedSequence:
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def _lstm(
    self: Any, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
    layers = self.num_layers * (2 if self.bidirectional else 1)
    size = self.proj_size if self.proj_size > 0 else self.hidden_size
    if hx is None:
        hidden = _start(None, input, layers, size)
        cell = _start(None, input, layers, self.hidden_size)
    else:
        hidden = _start(hx[0], input, layers, size)
        cell = _start(hx[1], input, layers, self.hidden_size)
    out, h, c = aten.lstm(
        input.data, input.batch_sizes, [hidden, cell], [getattr(self, n) for n in self._flat_weights_names],
        self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
    )  # fmt: skip
    return _packed(out, input), (_end(h, input), _end(c, input))


def _gru(
    self: Any, input: PackedSequence, hx: Tensor | None = None
) -> tuple[PackedSequence, Tensor]:
    layers = self.num_layers * (2 if self.bidirectional else 1)
    hidden = _start(hx, input, layers, self.hidden_size)
    out, h = aten.gru(
        input.data, input.batch_sizes, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias,
        self.num_layers, self.dropout, self.training, self.bidirectional,
    )  # fmt: skip
    return _packed(out, input), _end(h, input)


def _rnn(
    self: Any, input: PackedSequence, hx: Tensor | None = None
) -> tuple[PackedSequence, Tensor]:
    layers = self.num_layers * (2 if self.bidirectional else 1)
    hidden = _start(hx, input, layers, self.hidden_size)
    if self.mode == "RNN_TANH":
        out, h = aten.rnn_tanh(
            input.data, input.batch_sizes, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias,
            self.num_layers, self.dropout, self.training, self.bidirectional,
        )  # fmt: skip
    else:
        out, h = aten.rnn_relu(
            input.data, input.batch_sizes, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias,
            self.num_layers, self.dropout, self.training, self.bidirectional,
        )  # fmt: skip
    return _packed(out, input), _end(h, input)


PACKED = {LSTM: _lstm, GRU: _gru, RNN: _rnn}
"""What is compiled for a recurrent layer that reads packed sequences."""
