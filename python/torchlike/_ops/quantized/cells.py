"""Recurrent cells whose weights are quantised and whose inputs are real numbers."""

from __future__ import annotations

from typing import Any

from torchlike._ops.quantized import kernel, packed
from torchlike._ops.quantized.products import linear_dynamic, linear_dynamic_fp16
from torchlike._script_objects import ScriptObject


def _gates(x: Any, hidden: Any, w_ih: Any, w_hh: Any) -> tuple[Any, Any]:
    return linear_dynamic(x, w_ih, True), linear_dynamic(hidden, w_hh, True)


def lstm_step(from_input: Any, from_hidden: Any, cell: Any) -> tuple[Any, Any]:
    """The next hidden and cell state, by the sums of the gates."""
    i, f, g, o = (from_input + from_hidden).chunk(4, 1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(from_input: Any, from_hidden: Any, hidden: Any) -> Any:
    """The next hidden state, by the sums of the gates."""
    ri, zi, ni = from_input.chunk(3, 1)
    rh, zh, nh = from_hidden.chunk(3, 1)
    reset, update = (ri + rh).sigmoid(), (zi + zh).sigmoid()
    new = (ni + nh * reset).tanh()
    return (hidden - new) * update + new


@kernel("quantized_lstm_cell_dynamic")
def quantized_lstm_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any
) -> Any:
    """A step of an LSTM."""
    return lstm_step(*_gates(input, hx[0], w_ih, w_hh), hx[1])


@kernel("quantized_gru_cell_dynamic")
def quantized_gru_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
) -> Any:
    """A step of a GRU."""
    return gru_step(*_gates(input, hx, w_ih, w_hh), hx)


@kernel("quantized_rnn_relu_cell_dynamic")
def quantized_rnn_relu_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
) -> Any:
    """A step of an RNN without negative states."""
    from_input, from_hidden = _gates(input, hx, w_ih, w_hh)
    return (from_input + from_hidden).relu()


@kernel("quantized_rnn_tanh_cell_dynamic")
def quantized_rnn_tanh_cell_dynamic(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any
) -> Any:
    """A step of an RNN."""
    from_input, from_hidden = _gates(input, hx, w_ih, w_hh)
    return (from_input + from_hidden).tanh()


@kernel("make_quantized_cell_params_dynamic")
def make_quantized_cell_params_dynamic(
    w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any, reduce_range: bool = False
) -> ScriptObject:
    """The parameters of a cell, of packed matrices."""
    return packed.cell(packed.DynamicCell(w_ih, w_hh, bias_ih, bias_hh, reduce_range))


@kernel("make_quantized_cell_params_fp16")
def make_quantized_cell_params_fp16(w_ih: Any, w_hh: Any) -> ScriptObject:
    """The parameters of a cell, of matrices in half precision."""
    return packed.cell(packed.HalfCell(w_ih, w_hh))


def sums(cell: Any, x: Any, of_hidden: bool) -> Any:
    """The product of a packed cell's matrix for inputs, or for hidden states, with its bias."""
    held = cell._held
    params = held.w_hh if of_hidden else held.w_ih
    if isinstance(held, packed.HalfCell):
        return linear_dynamic_fp16(x, params)
    return linear_dynamic(x, params, held.reduce_range)
