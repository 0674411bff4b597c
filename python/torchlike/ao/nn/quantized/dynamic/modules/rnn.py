"""Recurrent layers of real numbers with quantised weights."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.dynamic.modules import _recurrent
from torchlike.ao.nn.quantized.dynamic.modules._cells import (
    GRUCell,
    LSTMCell,
    RNNCell,
    RNNCellBase,
    pack_weight_bias,
    quantized_weight,
)
from torchlike.ao.nn.quantized.dynamic.modules.linear import weight_observer
from torchlike.ao.nn.quantized.modules.utils import _hide_packed_params_repr
from torchlike.nn.utils.rnn import PackedSequence

layers: Any = nn


__all__ = [
    "GRU",
    "LSTM",
    "GRUCell",
    "LSTMCell",
    "PackedParameter",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
    "apply_permutation",
    "pack_weight_bias",
]

_root: Any = torch


def apply_permutation(tensor: Any, permutation: Any, dim: int = 1) -> Any:
    """Examples in another order."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead",
        FutureWarning,
        stacklevel=2,
    )
    return tensor.index_select(dim, permutation)


def _pack_cell(weights: Any, biases: Any, dtype: Any, reduced: bool) -> Any:
    """The packed parameters of a layer."""
    ih, hh = (pack_weight_bias(w, b, dtype) for w, b in zip(weights, biases, strict=True))
    if dtype == torch.qint8:
        return ops.quantized.make_quantized_cell_params_dynamic(ih, hh, *biases, reduced)
    return ops.quantized.make_quantized_cell_params_fp16(ih, hh)


class PackedParameter(nn.Module):
    """The packed parameters of a layer."""

    def __init__(self, param: Any) -> None:
        super().__init__()
        self.param = param

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.param = state_dict.pop(prefix + "param")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)


class RNNBase(nn.Module):
    """Recurrent layers that quantise their inputs and states by their own ranges."""

    _FLOAT_MODULE: ClassVar[Any] = layers.RNNBase
    _version = 2

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
        dtype: Any = torch.qint8,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.dtype = dtype
        self.version: int | None = 2
        self.training = False
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=2,
            )
        gates = {"LSTM": 4, "GRU": 3}.get(mode)
        if gates is None:
            raise ValueError("Unrecognized RNN mode: " + mode)
        rows, directions = gates * hidden_size, 1 + bidirectional
        cells = []
        for layer in range(num_layers):
            columns = input_size if layer == 0 else hidden_size * directions
            for _ in range(directions):
                weights = [torch.randn(rows, n) for n in (columns, hidden_size)]
                biases = [torch.randn(rows) for _ in range(2)]
                if dtype == torch.qint8:
                    weights = [_root.quantize_per_tensor(w, 0.1, 0, dtype) for w in weights]
                cells.append(PackedParameter(_pack_cell(weights, biases, dtype, True)))
        self._all_weight_values = layers.ModuleList(cells)

    def _get_name(self) -> str:
        return "DynamicQuantizedRNN"

    def extra_repr(self) -> str:
        """Sizes, and what is not as usual."""
        shown = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            if (value := getattr(self, name)) != usual:
                shown += f", {name}={value}"
        return shown

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, (PackedParameter, layers.ModuleList))

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Refuses inputs of other sizes.

        Raises:
            RuntimeError: with what was expected.
        """
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The size of a state."""
        if batch_sizes is not None:
            examples = int(batch_sizes[0])
        else:
            examples = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * (1 + self.bidirectional), examples, self.hidden_size

    def check_hidden_size(
        self, hx: Any, expected_hidden_size: Any, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Refuses states of other sizes.

        Raises:
            RuntimeError: with what was expected.
        """
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Refuses inputs and states of other sizes."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        if self.mode == "LSTM":
            for i, part in enumerate(hidden):
                self.check_hidden_size(part, expected, f"Expected hidden[{i}] size {{}}, got {{}}")
        else:
            self.check_hidden_size(hidden, expected)

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """States of examples in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple):
            return tuple(t.index_select(1, permutation) for t in hx)
        return hx.index_select(1, permutation)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The results of all steps, and the last states."""
        packed = isinstance(input, PackedSequence)
        data, batch_sizes, order, back = input if packed else (input, None, None, None)
        if hx is None:
            size = self.get_expected_hidden_size(data, batch_sizes)
            zeros = torch.zeros(size, dtype=data.dtype, device=data.device)
            hx = (zeros, zeros) if self.mode == "LSTM" else zeros
        else:
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        cells = [m.param for m in self._all_weight_values]
        made, hidden = _recurrent.layers(self, data, hx, cells, batch_sizes)
        if packed:
            made = PackedSequence(made, batch_sizes, order, back)
        return made, self.permute_hidden(hidden, back)

    def _names(self) -> list[str]:
        """The ends of the names of parameters, layer by layer."""
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [f"l{layer}{end}" for layer in range(self.num_layers) for end in ends]

    def set_weight_bias(self, weight_bias_dict: Any) -> None:
        """Packs weights and biases by their names."""
        cells = []
        reduced = self.version is not None and self.version >= 2
        for end in self._names():
            weights, biases = (
                [weight_bias_dict[f"{what}_{part}_{end}"] for part in ("ih", "hh")]
                for what in ("weight", "bias")
            )
            dtype = torch.qint8 if weights[0].dtype == torch.qint8 else torch.float16
            cells.append(PackedParameter(_pack_cell(weights, biases, dtype, reduced)))
        self._all_weight_values = layers.ModuleList(cells)

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {"weight": {}, "bias": {}}
        for end, module in zip(self._names(), self._all_weight_values, strict=True):
            held = module.param._held
            for part in ("ih", "hh"):
                weight, bias = getattr(held, f"w_{part}").unpack()
                found["weight"][f"weight_{part}_{end}"] = weight
                found["bias"][f"bias_{part}_{end}"] = bias
        return found

    def get_weight(self) -> dict[str, Any]:
        """The weights by their names."""
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        """The biases by their names."""
        return self._weight_bias()["bias"]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.version = local_metadata.get("version", None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layers of those of real numbers.

        Raises:
            AssertionError: if they are no LSTM or GRU with biases.
            RuntimeError: if they are configured for another type.
        """
        if type(mod) not in (layers.LSTM, layers.GRU):
            raise AssertionError(
                "nn.quantized.dynamic.RNNBase.from_float only works for nn.LSTM and nn.GRU"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        make = weight_observer(mod)
        dtype = make().dtype
        if dtype not in (torch.qint8, torch.float16):
            raise RuntimeError(f"Unsupported dtype for dynamic RNN quantization: {dtype}")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        kind: Any = LSTM if mod.mode == "LSTM" else GRU
        sizes = mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first
        made = kind(*sizes, mod.dropout, mod.bidirectional, dtype)
        values: dict[str, Any] = {}
        for end in made._names():
            for part in ("ih", "hh"):
                weight = getattr(mod, f"weight_{part}_{end}")
                values[f"weight_{part}_{end}"] = quantized_weight(weight, make, dtype)
                values[f"bias_{part}_{end}"] = getattr(mod, f"bias_{part}_{end}")
        made.set_weight_bias(values)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """The layers of reference layers."""
        sizes = ref_mod.input_size, ref_mod.hidden_size, ref_mod.num_layers, ref_mod.bias
        rest = ref_mod.batch_first, ref_mod.dropout, ref_mod.bidirectional
        own: Any = cls
        made = own(*sizes, *rest, ref_mod.weight_ih_l0_dtype)
        made.set_weight_bias(ref_mod.get_quantized_weight_bias_dict())
        return made


class LSTM(RNNBase):
    """An LSTM with quantised weights."""

    _FLOAT_MODULE = layers.LSTM

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def _get_name(self) -> str:
        return "DynamicQuantizedLSTM"


class GRU(RNNBase):
    """A GRU with quantised weights."""

    _FLOAT_MODULE = layers.GRU

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def _get_name(self) -> str:
        return "DynamicQuantizedGRU"


for _cell in (RNNCellBase, RNNCell, LSTMCell, GRUCell):
    _cell.__module__ = __name__  # where PyTorch's files look for them
