"""Recurrent networks in the operators that PyTorch makes their steps of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._ops import ops
from torchlike._ops.decompositions import of
from torchlike._ops.decompositions_nn import dropout, linear

if TYPE_CHECKING:
    from collections.abc import Callable

aten: Any = ops.aten
Weights = list[Any]


def _plain_step(name: str, inside: Any, h: Any, w: Weights) -> Any:
    # What the input gives lives as long as the step.
    made, given = linear(h, w[1], w[3]), inside()
    made = aten.add_.Tensor(made, given)
    return aten.tanh(made) if "tanh" in name else aten.relu(made)


def _gru_step(_name: str, inside: Any, h: Any, w: Weights) -> Any:
    given = aten.unsafe_split.Tensor(inside(), w[1].shape[0] // 3, 1)
    reset, update, new = given
    old = aten.unsafe_split.Tensor(linear(h, w[1], w[3]), w[1].shape[0] // 3, 1)
    reset = aten.sigmoid_(aten.add_.Tensor(old[0], reset))
    update = aten.sigmoid_(aten.add_.Tensor(old[1], update))
    new = aten.tanh_(aten.add.Tensor(new, aten.mul_.Tensor(old[2], reset)))
    return aten.add_.Tensor(aten.mul_.Tensor(aten.sub.Tensor(h, new), update), new)


def _lstm_step(_name: str, inside: Any, state: Any, w: Weights) -> Any:
    h, c = state
    gates = aten.add_.Tensor(linear(h, w[1], w[3]), inside())
    parts = aten.unsafe_split.Tensor(gates, gates.shape[1] // 4, 1)
    i, f, g, o = (
        t(part)
        for t, part in zip(
            (aten.sigmoid_, aten.sigmoid_, aten.tanh_, aten.sigmoid_), parts, strict=True
        )
    )
    kept = aten.mul.Tensor(f, c)
    c = aten.add_.Tensor(kept, aten.mul.Tensor(i, g))
    return aten.mul.Tensor(o, aten.tanh(c)), c


def _step(name: str) -> Callable[..., Any]:
    if name.startswith("lstm"):
        return _lstm_step
    return _gru_step if name.startswith("gru") else _plain_step


@of("rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell")
def cell(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, name: str = ""
) -> Any:
    """One step: what the state gives, and what the input gives."""
    last = hx[0] if isinstance(hx, list | tuple) else hx
    fits = input.dim() == 2 and last.dim() == 2 and input.shape[0] == last.shape[0]
    if not fits or (input.shape[1], last.shape[1]) != (w_ih.shape[1], w_hh.shape[1]):
        return NotImplemented
    return _step(name)(name, lambda: linear(input, w_ih, b_ih), hx, [w_ih, w_hh, b_ih, b_hh])


def _layer(name: str, x: Any, state: Any, w: Weights, backwards: bool) -> tuple[Any, Any]:
    """All steps of one layer in one direction; on the host the inputs of all steps are one product."""
    if x.device.type == "cpu":
        steps = aten.unbind.int(linear(x, w[0], w[2]))
    else:
        steps = aten.unbind.int(x)
    made = []
    for given in reversed(steps) if backwards else steps:

        def inside(given: Any = given) -> Any:
            return given if x.device.type == "cpu" else linear(given, w[0], w[2])

        state = _step(name)(name, inside, state, w)
        if w[4] is not None:
            # a projection of what a step gives
            state = linear(state[0], w[4], None), state[1]
        made.append(state[0] if isinstance(state, tuple) else state)
    return aten.stack(made[::-1] if backwards else made, 0), state


@of("rnn_tanh", "rnn_relu", "gru")
def layers(
    input: Any = None,
    hx: Any = None,
    params: Any = (),
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    name: str = "",
    **packed: Any,
) -> Any:
    """Layer after layer, step after step."""
    if packed or input.dim() != 3 or input.shape[0] == 0:
        return NotImplemented
    x = aten.transpose.int(input, 0, 1) if batch_first else input
    states = aten.unbind.int(hx)
    out, left = _stack(name, x, states, params, has_biases, bidirectional, dropout * train)
    h = aten.stack(left, 0)
    return (aten.transpose.int(out, 0, 1) if batch_first else out), h


@of("lstm")
def lstm(
    input: Any = None,
    hx: Any = None,
    params: Any = (),
    has_biases: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    **packed: Any,
) -> Any:
    """Layer after layer, step after step."""
    # Each layer may have a projection after its weights and biases.
    size = (4 if has_biases else 2) * len(hx[0])
    if (
        packed
        or input.dim() != 3
        or not input.shape[0]
        or len(params) - size not in (0, len(hx[0]))
    ):
        return NotImplemented
    x = aten.transpose.int(input, 0, 1) if batch_first else input
    states = list(zip(aten.unbind.int(hx[0]), aten.unbind.int(hx[1]), strict=True))
    out, left = _stack("lstm", x, states, params, has_biases, bidirectional, dropout * train)
    h, c = (aten.stack(list(part), 0) for part in zip(*left, strict=True))
    return (aten.transpose.int(out, 0, 1) if batch_first else out), h, c


def _stack(
    name: str, x: Any, states: Any, params: Any, biases: bool, both: bool, drop: float
) -> tuple[Any, list[Any]]:
    directions = 2 if both else 1
    size, plain = len(params) // len(states), 4 if biases else 2
    none = [None] * (4 - plain)
    sets = [
        [*params[i : i + plain], *none, params[i + plain] if size > plain else None]
        for i in range(0, len(params), size)
    ]
    left: list[Any] = []
    for at in range(0, len(sets), directions):
        if at and drop:
            x = dropout(x, drop, True)
        found = [_layer(name, x, states[i], sets[i], i != at) for i in range(at, at + directions)]
        x = aten.cat([out for out, _ in found], -1) if both else found[0][0]
        left += [state for _, state in found]
    return x, left
