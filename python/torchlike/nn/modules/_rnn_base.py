"""What recurrent layers of all kinds share: the base of ``RNN``, ``LSTM`` and ``GRU``, and what cells take of it."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike.nn import init
from torchlike.nn.modules.module import Module
from torchlike.nn.parameter import Parameter

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def zeros_with(input: Any, *size: int) -> Any:
    """Zeros of the input's type where it is; a recorded input's are recorded, too."""
    if input.is_meta and input.source is not None:
        return input.new_zeros(size)
    return torch.zeros(*size, dtype=input.dtype, device=input.device)


def _is_packed(input: Any) -> bool:
    from torchlike.nn.utils.rnn import PackedSequence

    return isinstance(input, PackedSequence)


def draw_weights(layer: Any) -> None:
    """Fills all weights of a layer with uniform numbers, the smaller the larger its hidden state is."""
    bound = 1.0 / math.sqrt(layer.hidden_size) if layer.hidden_size > 0 else 0
    for weight in layer.parameters():
        init.uniform_(weight, -bound, bound)


def permuted(tensor: Any, permutation: Any) -> Any:
    """A hidden state with its batch in another order."""
    return tensor if permutation is None else tensor.index_select(1, permutation)


class RNNBase(Module):
    """What ``RNN``, ``LSTM`` and ``GRU`` share: weights, checks, packed sequences."""

    __module__ = "torchlike.nn.modules.rnn"  # where PyTorch has it, and its files say it is

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout) if isinstance(dropout, int) else dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_arguments(dropout)
        gates = _GATES[mode] * hidden_size
        out_size = proj_size if proj_size > 0 else hidden_size
        directions = 2 if bidirectional else 1
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            in_size = input_size if layer == 0 else out_size * directions
            shapes: list[tuple[str, tuple[int, ...]]] = [
                ("weight_ih", (gates, in_size)),
                ("weight_hh", (gates, out_size)),
            ]
            if bias:
                shapes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
            if proj_size > 0:
                shapes.append(("weight_hr", (proj_size, hidden_size)))
            for direction in range(directions):
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                names = [name + suffix for name, _ in shapes]
                for name, (_, shape) in zip(names, shapes, strict=True):
                    setattr(self, name, Parameter(torch.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(names)
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def _check_arguments(self, dropout: Any) -> None:
        number = float(dropout)
        if not 0 <= number <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] "
                "representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            import warnings

            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
                stacklevel=3,
            )
        for name, kind in (("bias", bool), ("batch_first", bool), ("input_size", int)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(
                    f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
                )
        if self.input_size <= 0:
            raise ValueError("input_size must be greater than zero")
        if not isinstance(self.hidden_size, int):
            raise TypeError(
                f"hidden_size should be of type int, got: {type(self.hidden_size).__name__}"
            )
        if self.hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if self.num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        draw_weights(self)

    def __getstate__(self) -> dict[str, Any]:
        # PyTorch's recurrent layers keep their weights a second time
        return {**super().__getstate__(), "_flat_weights": self._flat_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({k: v for k, v in state.items() if k != "_flat_weights"})

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: weights need not lie in one piece of memory here."""

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Raise if the input does not fit the weights."""
        weight = getattr(self, self._flat_weights_names[0])
        if input.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape that a hidden state must have."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        layers = self.num_layers * (2 if self.bidirectional else 1)
        return layers, batch, self.proj_size if self.proj_size > 0 else self.hidden_size

    def check_hidden_size(
        self, hx: Any, expected_hidden_size: Any, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raise if a hidden state has another shape."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Raise if input or hidden state do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The hidden state with its batch in another order."""
        return permuted(hx, permutation)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text

    # The parts in which the three kinds differ.

    def _op(self) -> Any:
        raise NotImplementedError

    def _zeros(self, input: Any, batch: int) -> Any:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        size = self.proj_size if self.proj_size > 0 else self.hidden_size
        return zeros_with(input, layers, batch, size)

    def _wrong_rank(self, hx: Any, batched: bool) -> str | None:
        dims = 3 if batched else 2
        if hx.dim() == dims:
            return None
        word = "batched" if batched else "unbatched"
        return f"For {word} {dims}-D input, hx should also be {dims}-D but got {hx.dim()}-D tensor"

    def _each(self, fn: Any, hx: Any) -> Any:
        return fn(hx)

    def _not_2d_or_3d(self, dims: int) -> str:
        return f"{self._get_name()}: Expected input to be 2D or 3D, got {dims}D tensor instead"

    def _run(self, input: Any, hx: Any, batch_sizes: Any) -> Any:
        common = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training)
        if batch_sizes is None:
            args: tuple[Any, ...] = (input, hx, *common, self.bidirectional, self.batch_first)
        else:
            args = (input, batch_sizes, hx, *common, self.bidirectional)
        out, *hidden = self._op()(*args)
        return out, hidden[0] if len(hidden) == 1 else tuple(hidden)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if _is_packed(input):
            data, batch_sizes, sorted_indices, unsorted_indices = input
            if hx is None:
                hx = self._zeros(data, int(batch_sizes[0]))
            else:
                hx = self.permute_hidden(hx, sorted_indices)
            self.check_forward_args(data, hx, batch_sizes)
            out, hidden = self._run(data, hx, batch_sizes)
            packed = type(input)(out, batch_sizes, sorted_indices, unsorted_indices)
            return packed, self.permute_hidden(hidden, unsorted_indices)
        if input.dim() not in (2, 3):
            raise ValueError(self._not_2d_or_3d(input.dim()))
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        if hx is None:
            hx = self._zeros(input, input.size(batch_dim))
        else:
            problem = self._wrong_rank(hx, batched)
            if problem is not None:
                raise RuntimeError(problem)
            if not batched:
                hx = self._each(lambda h: h.unsqueeze(1), hx)
        self.check_forward_args(input, hx, None)
        out, hidden = self._run(input, hx, None)
        if batched:
            return out, hidden
        return out.squeeze(batch_dim), self._each(lambda h: h.squeeze(1), hidden)
