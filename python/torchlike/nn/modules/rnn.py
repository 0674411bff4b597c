"""Recurrent layers and their cells."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn.modules._own import own
from torchlike.nn.modules._rnn_base import RNNBase, draw_weights, permuted, zeros_with
from torchlike.nn.modules.module import Module
from torchlike.nn.parameter import Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


@own("forward")
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


@own("forward")
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


@own("forward")
class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _op(self) -> Any:
        return torch.lstm

    def _zeros(self, input: Any, batch: int) -> Any:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        cells = zeros_with(input, layers, batch, self.hidden_size)
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
        return permuted(hx[0], permutation), permuted(hx[1], permutation)


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
        draw_weights(self)

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
            hx = zeros_with(input, input.size(0), self.hidden_size)
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
            zeros = zeros_with(input, input.size(0), self.hidden_size)
            hx = (zeros, zeros)
        elif not batched:
            hx = (hx[0].unsqueeze(0), hx[1].unsqueeze(0))
        h, c = torch.lstm_cell(input, hx, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
