"""Parameters of quantised layers as PyTorch packs them: a weight, a bias, and how a window moves."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torchlike as torch
from torchlike import _C
from torchlike._script_objects import ScriptObject, holding, registered

_root: Any = torch
_LINEAR = "quantized.LinearPackedParamsBase"
_CONV = "quantized.Conv{}dPackedParamsBase"
_EMBEDDING = "quantized.EmbeddingPackedParamsBase"
_MOVES = "weight bias unpack stride padding output_padding dilation groups transpose"
# The version of the state that convolutions are pickled with.
_VERSION = "2"


def _as_it_is() -> Any:
    """What is kept of a weight is computed of its elements, whatever runs meanwhile."""
    from torchlike._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()


def _reach(weight: Any, over: tuple[int, ...]) -> float:
    """The largest sum of the distances of an output's weights from their zero points."""
    with _as_it_is():
        return _reach_of(weight, over)


def _reach_of(weight: Any, over: tuple[int, ...]) -> float:
    numbers = _C._integers(weight).double()
    if weight.qscheme() == torch.per_tensor_affine:
        numbers -= weight.q_zero_point()
    else:
        across = [1] * weight.dim()
        across[weight.q_per_channel_axis()] = -1
        numbers -= weight.q_per_channel_zero_points().reshape(across)
    return max(numbers.abs().sum(over).max().item(), 1.0) if numbers.numel() else 1.0


@registered(_LINEAR, "bias unpack")
class Linear:
    """A matrix, quantised or of real numbers in half precision, and a bias."""

    def __init__(self, weight: Any, bias: Any) -> None:
        self.weight, self._bias = weight, bias

    @functools.cached_property
    def most(self) -> float:
        """What a sum of distances of weights from zero is at most."""
        return _reach(self.weight, (1,))

    def bias(self) -> Any:
        """The bias."""
        return self._bias

    def unpack(self) -> tuple[Any, Any]:
        """The weight and the bias."""
        return self.weight, self._bias

    def state(self) -> Any:
        """What is pickled."""
        return self.weight, self._bias

    @classmethod
    def of_state(cls, state: Any) -> Linear:
        """From what was pickled."""
        weight, bias = state
        return cls(_tensor(weight), bias)


def _tensor(value: Any) -> Any:
    if not isinstance(value, _C.Tensor):
        raise TypeError("packed parameters without a weight")
    return value


class _Conv:
    """A weight, a bias, and how a window moves."""

    def __init__(self, weight: Any, bias: Any, moves: list[Any], groups: int, transposed: bool):
        self._weight, self._bias = weight, bias
        self._moves, self._groups, self._transposed = [list(m) for m in moves], groups, transposed

    @functools.cached_property
    def most(self) -> float:
        """What a sum of distances of weights from zero is at most."""
        outer = 1 if self._transposed else 0
        return _reach(self._weight, tuple(d for d in range(self._weight.dim()) if d != outer))

    @functools.cached_property
    def packed(self) -> Any:
        """The weight as kernels read it; None where they do not."""
        integers = _C._integers(self._weight)
        if self._transposed or integers.dim() not in (4, 5) or not integers.numel():
            return None
        with _as_it_is():
            made = _root._quantized_packed(integers, *self._moves[:3], self._groups)
        return made if made.numel() else None

    def weight(self) -> Any:
        """The weight."""
        return self._weight

    def bias(self) -> Any:
        """The bias."""
        return self._bias

    def unpack(self) -> tuple[Any, Any]:
        """The weight and the bias."""
        return self._weight, self._bias

    def stride(self) -> list[int]:
        """Steps of the window."""
        return list(self._moves[0])

    def padding(self) -> list[int]:
        """Zeros at both ends."""
        return list(self._moves[1])

    def dilation(self) -> list[int]:
        """Steps within the window."""
        return list(self._moves[2])

    def output_padding(self) -> list[int]:
        """What is added to the size of a transposed convolution."""
        return list(self._moves[3])

    def groups(self) -> int:
        """Groups of channels."""
        return self._groups

    def transpose(self) -> bool:
        """Whether it is transposed."""
        return self._transposed

    def state(self) -> Any:
        """What is pickled."""
        numbers = [len(self._moves[0]), *(n for m in self._moves for n in m)]
        numbers += [self._groups, int(self._transposed)]
        head = torch.tensor(numbers, dtype=torch.int16)
        return _VERSION, [head, self._weight], [self._bias]

    @classmethod
    def of_state(cls, state: Any) -> _Conv:
        """From what was pickled."""
        version, tensors, others = state
        if str(version) != _VERSION:
            raise RuntimeError(f"packed convolutions of version {version} are not read")
        head = tensors[0].tolist()
        n = head[0]
        moves = [head[1 + n * i : 1 + n * (i + 1)] for i in range(4)]
        groups, transposed = head[1 + 4 * n : 3 + 4 * n]
        return cls(_tensor(tensors[1]), others[0], moves, groups, bool(transposed))


@registered(_CONV.format(2), _MOVES)
class Conv2d(_Conv):
    """A convolution over images, or over sequences as images of one line."""


@registered(_CONV.format(3), _MOVES)
class Conv3d(_Conv):
    """A convolution over volumes."""


@registered(_EMBEDDING, "bit_rate unpack version")
class Embedding(NamedTuple):
    """A table, each row of which has a scale and a zero point that is a real number."""

    table: Any

    def bit_rate(self) -> int:
        """Bits of a number."""
        return 4 if self.table.dtype == torch.quint4x2 else 8

    def unpack(self) -> Any:
        """The table."""
        return self.table

    def version(self) -> int:
        """The version of its state."""
        return 1

    def state(self) -> Any:
        """What is pickled."""
        return 1, [self.table], [], [self.bit_rate()]

    @classmethod
    def of_state(cls, state: Any) -> Embedding:
        """From what was pickled."""
        return cls(_tensor(state[1][0]))


def linear(weight: Any, bias: Any) -> ScriptObject:
    """A packed matrix and bias."""
    return holding(_LINEAR, Linear(weight, bias))


def conv(weight: Any, bias: Any, moves: list[Any], groups: int, transposed: bool) -> ScriptObject:
    """A packed convolution; `moves` are stride, padding, dilation and output padding."""
    n = len(moves[0])
    cls = Conv2d if n == 2 else Conv3d
    return holding(_CONV.format(n), cls(weight, bias, moves, groups, transposed))


def embedding(table: Any) -> ScriptObject:
    """A packed table."""
    return holding(_EMBEDDING, Embedding(table))


_CELL = "rnn.CellParamsBase"


class DynamicCell(NamedTuple):
    """Two packed matrices of bytes and the biases of a recurrent layer."""

    w_ih: Any
    w_hh: Any
    bias_ih: Any
    bias_hh: Any
    reduce_range: bool

    def state(self) -> Any:
        """What is pickled."""
        biases = [self.bias_ih, self.bias_hh]
        return "quantized_dynamic", biases, [], [int(self.reduce_range)], [self.w_ih, self.w_hh]


class HalfCell(NamedTuple):
    """Two packed matrices in half precision, with their biases."""

    w_ih: Any
    w_hh: Any

    def state(self) -> Any:
        """What is pickled."""
        return "quantized_fp16", [], [], [], [self.w_ih, self.w_hh]


@registered(_CELL, "")
class Cell:
    """The parameters of a recurrent layer, of one of two kinds."""

    @staticmethod
    def of_state(state: Any) -> Any:
        """From what was pickled."""
        name, biases, _, numbers, matrices = state
        if name == "quantized_dynamic":
            ih, hh = matrices
            bias_ih, bias_hh = biases
            return DynamicCell(ih, hh, bias_ih, bias_hh, bool(numbers[0]))
        if name == "quantized_fp16":
            return HalfCell(*matrices)
        raise RuntimeError(f"recurrent layers with parameters of the kind {name} are not read")


def cell(held: DynamicCell | HalfCell) -> ScriptObject:
    """The packed parameters of a recurrent layer."""
    return holding(_CELL, held)
