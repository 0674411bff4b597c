"""Steps of recurrent layers with quantised weights."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.dynamic.modules.linear import weight_observer
from torchlike.ao.nn.quantized.modules.utils import _quantize_weight

layers: Any = nn
_root: Any = torch


def pack_weight_bias(qweight: Any, bias: Any, dtype: Any) -> Any:
    """A packed weight and bias."""
    if dtype == torch.qint8:
        return ops.quantized.linear_prepack(qweight, bias)
    return ops.quantized.linear_prepack_fp16(qweight, bias)


def quantized_weight(weight: Any, make: Any, dtype: Any) -> Any:
    """A weight, quantised by an observer of its own if it is to be."""
    if dtype != torch.qint8:
        return weight.detach().float()
    observer = make()
    observer(weight)
    return _quantize_weight(weight.float(), observer)


class RNNCellBase(nn.Module):
    """A step of a recurrent layer with quantised weights."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        num_chunks: int = 4,
        dtype: Any = torch.qint8,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.weight_dtype = dtype
        rows = num_chunks * hidden_size
        self.bias_ih = torch.randn(rows) if bias else None
        self.bias_hh = torch.randn(rows) if bias else None
        weights = [torch.randn(rows, n) for n in (input_size, hidden_size)]
        if dtype == torch.qint8:
            weights = [_root.quantize_per_tensor(w, 1.0, 0, dtype) for w in weights]
        self._packed_weight_ih = pack_weight_bias(weights[0], self.bias_ih, dtype)
        self._packed_weight_hh = pack_weight_bias(weights[1], self.bias_hh, dtype)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__.replace('CellBase', 'Base')}"

    def extra_repr(self) -> str:
        """Sizes, and what is not as usual."""
        shown = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            shown += f", bias={self.bias}"
        kind = getattr(self, "nonlinearity", "tanh")
        return shown if kind == "tanh" else f"{shown}, nonlinearity={kind}"

    def check_forward_input(self, input: Any) -> None:
        """Refuses inputs of other sizes.

        Raises:
            RuntimeError: with what was expected.
        """
        if input.size(1) != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.size(1)}, expected {self.input_size}"
            )

    def check_forward_hidden(self, input: Any, hx: Any, hidden_label: str = "") -> None:
        """Refuses states of other sizes.

        Raises:
            RuntimeError: with what was expected.
        """
        if input.size(0) != hx.size(0):
            raise RuntimeError(
                f"Input batch size {input.size(0)} doesn't match hidden{hidden_label} batch size {hx.size(0)}"
            )
        if hx.size(1) != self.hidden_size:
            raise RuntimeError(
                f"hidden{hidden_label} has inconsistent hidden_size: got {hx.size(1)}, expected {self.hidden_size}"
            )

    def _state(self, input: Any, hx: Any) -> Any:
        """The state, or zeros, after the sizes were checked."""
        self.check_forward_input(input)
        if hx is None:
            hx = torch.zeros(
                input.size(0), self.hidden_size, dtype=input.dtype, device=input.device
            )
        self.check_forward_hidden(input, hx, "")
        return hx

    def _step(self, operator: Any, input: Any, hx: Any) -> Any:
        packed = self._packed_weight_ih, self._packed_weight_hh
        return operator(input, hx, *packed, self.bias_ih, self.bias_hh)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The step of one of real numbers.

        Raises:
            AssertionError: if it is no cell with biases.
            RuntimeError: if it is configured for another type.
        """
        kinds: dict[Any, Any] = {
            layers.LSTMCell: LSTMCell,
            layers.GRUCell: GRUCell,
            layers.RNNCell: RNNCell,
        }
        if type(mod) not in kinds:
            raise AssertionError(
                "nn.quantized.dynamic.RNNCellBase.from_float only works for nn.LSTMCell, nn.GRUCell and nn.RNNCell"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        make = weight_observer(mod)
        dtype = make().dtype
        if dtype not in (torch.qint8, torch.float16):
            raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        options: dict[str, Any] = {"bias": mod.bias, "dtype": dtype}
        if type(mod) is layers.RNNCell:
            options["nonlinearity"] = mod.nonlinearity
        made = kinds[type(mod)](mod.input_size, mod.hidden_size, **options)
        values = {}
        for part in ("ih", "hh"):
            values[f"weight_{part}"] = quantized_weight(getattr(mod, f"weight_{part}"), make, dtype)
            values[f"bias_{part}"] = getattr(mod, f"bias_{part}")
        made.set_weight_bias(values)
        made.bias_ih, made.bias_hh = mod.bias_ih, mod.bias_hh
        return made

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        ih, hh = self._packed_weight_ih.unpack(), self._packed_weight_hh.unpack()
        return {
            "weight": {"weight_ih": ih[0], "weight_hh": hh[0]},
            "bias": {"bias_ih": ih[1], "bias_hh": hh[1]},
        }

    def get_weight(self) -> dict[str, Any]:
        """The weights by their names."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """The biases by their names."""
        return self._weight_bias()["bias"]

    def set_weight_bias(self, weight_bias_dict: Any) -> None:
        """Packs weights and biases by their names."""
        for part in ("ih", "hh"):
            weight, bias = weight_bias_dict[f"weight_{part}"], weight_bias_dict[f"bias_{part}"]
            setattr(
                self, f"_packed_weight_{part}", pack_weight_bias(weight, bias, self.weight_dtype)
            )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "_packed_weight_ih"] = self._packed_weight_ih
        destination[prefix + "_packed_weight_hh"] = self._packed_weight_hh

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self._packed_weight_ih = state_dict.pop(prefix + "_packed_weight_ih")
        self._packed_weight_hh = state_dict.pop(prefix + "_packed_weight_hh")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)


class RNNCell(RNNCellBase):
    """A step of an RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = torch.qint8,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next state.

        Raises:
            RuntimeError: if its function is neither tanh nor ReLU.
        """
        hx = self._state(input, hx)
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        operator = getattr(ops.quantized, f"quantized_rnn_{self.nonlinearity}_cell_dynamic")
        return self._step(operator, input, hx)


class LSTMCell(RNNCellBase):
    """A step of an LSTM."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next hidden and cell state."""
        hidden, cell = (None, None) if hx is None else hx
        states = [self._state(input, hidden), self._state(input, cell)]
        return self._step(ops.quantized.quantized_lstm_cell_dynamic, input, states)


class GRUCell(RNNCellBase):
    """A step of a GRU."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next state."""
        operator = ops.quantized.quantized_gru_cell_dynamic
        return self._step(operator, input, self._state(input, hx))
