"""Recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike.nn import init
from torchlike.nn.modules.module import Module
from torchlike.nn.parameter import Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _zeros_with(input: Any, *size: int) -> Any:
    """Zeros of the input's type where it is; a recorded input's are recorded, too."""
    if input.is_meta:
        return input.new_zeros(size)
    return torch.zeros(*size, dtype=input.dtype, device=input.device)


def _is_packed(input: Any) -> bool:
    from torchlike.nn.utils.rnn import PackedSequence

    return isinstance(input, PackedSequence)


def _permuted(tensor: Any, permutation: Any) -> Any:
    return tensor if permutation is None else tensor.index_select(1, permutation)


class RNNBase(Module):
    """What ``RNN``, ``LSTM`` and ``GRU`` share: weights, checks, packed sequences."""

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
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

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
        return _permuted(hx, permutation)

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
        return _zeros_with(input, layers, batch, size)

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


class RNN(RNNBase):
    """Elman's network."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)

    def _op(self) -> Any:
        return torch.rnn_tanh if self.mode == "RNN_TANH" else torch.rnn_relu


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def _op(self) -> Any:
        return torch.gru

    def _not_2d_or_3d(self, dims: int) -> str:
        return f"GRU: Expected input to be 2D or 3D, got {dims}D instead"


class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _op(self) -> Any:
        return torch.lstm

    def _zeros(self, input: Any, batch: int) -> Any:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        cells = _zeros_with(input, layers, batch, self.hidden_size)
        return super()._zeros(input, batch), cells

    def _not_2d_or_3d(self, dims: int) -> str:
        return f"LSTM: Expected input to be 2D or 3D, got {dims}D instead"

    def _wrong_rank(self, hx: Any, batched: bool) -> str | None:
        dims = 3 if batched else 2
        if hx[0].dim() == dims and hx[1].dim() == dims:
            return None
        word = "batched" if batched else "unbatched"
        return (
            f"For {word} {dims}-D input, hx and cx should also be {dims}-D "
            f"but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
        )

    def _each(self, fn: Any, hx: Any) -> Any:
        return fn(hx[0]), fn(hx[1])

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape that a cell state must have."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0],
            self.get_expected_hidden_size(input, batch_sizes),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            hidden[1],
            self.get_expected_cell_size(input, batch_sizes),
            "Expected hidden[1] size {}, got {}",
        )

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        return _permuted(hx[0], permutation), _permuted(hx[1], permutation)


class RNNCellBase(Module):
    """One step of a recurrent layer: weights and their initialisation."""

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(torch.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(torch.empty((rows, hidden_size), device=device, dtype=dtype))
        if bias:
            self.bias_ih = Parameter(torch.empty(rows, device=device, dtype=dtype))
            self.bias_hh = Parameter(torch.empty(rows, device=device, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self._state_.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            text += f", nonlinearity={nonlinearity}"
        return text

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _checked(self, tensor: Any, what: str) -> Any:
        if tensor.dim() not in (1, 2):
            raise ValueError(
                f"{self._get_name()}: Expected {what} to be 1D or 2D, got {tensor.dim()}D instead"
            )
        return tensor

    def _step(self, op: Any, input: Any, hx: Any) -> Any:
        self._checked(input, "input")
        if hx is not None:
            self._checked(hx, "hidden")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            hx = _zeros_with(input, input.size(0), self.hidden_size)
        elif not batched:
            hx = hx.unsqueeze(0)
        out = op(input, hx, *self._weights())
        return out if batched else out.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an ``RNN``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        op = torch.rnn_tanh_cell if self.nonlinearity == "tanh" else torch.rnn_relu_cell
        return self._step(op, input, hx)


class GRUCell(RNNCellBase):
    """One step of a ``GRU``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step(torch.gru_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of an ``LSTM``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        self._checked(input, "input")
        if hx is not None:
            for i, value in enumerate(hx):
                self._checked(value, f"hx[{i}]")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            zeros = _zeros_with(input, input.size(0), self.hidden_size)
            hx = (zeros, zeros)
        elif not batched:
            hx = (hx[0].unsqueeze(0), hx[1].unsqueeze(0))
        h, c = torch.lstm_cell(input, hx, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
