"""What recurrent layers with packed weights compute: sums of inputs for all steps at once, then step by step."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._ops.quantized.cells import gru_step, lstm_step, sums


def _step(mode: str, cell: Any, from_input: Any, state: Any) -> Any:
    """The next state: hidden and cell state of an LSTM."""
    if mode == "LSTM":
        return lstm_step(from_input, sums(cell, state[0], True), state[1])
    return (gru_step(from_input, sums(cell, state[0], True), state[0]),)


def _whole(mode: str, cell: Any, x: Any, state: Any, backwards: bool) -> tuple[Any, Any]:
    """A direction of a layer over sequences of one length `[steps, examples, features]`."""
    from_inputs = list(sums(cell, x, False).unbind(0))
    if backwards:
        from_inputs.reverse()
    made = []
    for from_input in from_inputs:
        state = _step(mode, cell, from_input, state)
        made.append(state[0])
    if backwards:
        made.reverse()
    return torch.stack(made), state


def _packed(
    mode: str, cell: Any, x: Any, state: Any, batch_sizes: list[int], backwards: bool
) -> tuple[Any, Any]:
    """The same over packed sequences, longest first."""
    steps = list(sums(cell, x, False).split(batch_sizes))
    if backwards:
        return _packed_back(mode, cell, steps, state)
    made, ended = [], []
    for from_input in steps:
        count = from_input.size(0)
        if count < state[0].size(0):
            ended.append(tuple(t[count:] for t in state))
            state = tuple(t[:count] for t in state)
        state = _step(mode, cell, from_input, state)
        made.append(state[0])
    ended.append(state)
    last = tuple(torch.cat(parts) for parts in zip(*reversed(ended), strict=True))
    return torch.cat(made), last


def _packed_back(mode: str, cell: Any, steps: list[Any], given: Any) -> tuple[Any, Any]:
    """From the last step to the first: sequences join where they end."""
    made = []
    state = tuple(t[:0] for t in given)
    for from_input in reversed(steps):
        had, count = state[0].size(0), from_input.size(0)
        if count > had:
            pairs = zip(state, given, strict=True)
            state = tuple(torch.cat([t, first[had:count]]) for t, first in pairs)
        state = _step(mode, cell, from_input, state)
        made.append(state[0])
    made.reverse()
    return torch.cat(made), state


def layers(rnn: Any, x: Any, hx: Any, cells: list[Any], batch_sizes: Any) -> tuple[Any, Any]:
    """The results of all layers of a module, and the last states."""
    states = hx if isinstance(hx, tuple) else (hx,)
    directions = 1 + rnn.bidirectional
    counts = None if batch_sizes is None else batch_sizes.tolist()
    if counts is None and rnn.batch_first:
        x = x.transpose(0, 1)
    last: list[Any] = []
    for layer in range(rnn.num_layers):
        made = []
        for way in range(directions):
            i = layer * directions + way
            state = tuple(t[i] for t in states)
            if counts is None:
                result, end = _whole(rnn.mode, cells[i], x, state, way == 1)
            else:
                result, end = _packed(rnn.mode, cells[i], x, state, counts, way == 1)
            made.append(result)
            last.append(end)
        x = made[0] if directions == 1 else torch.cat(made, -1)
        if rnn.dropout and rnn.training and layer + 1 < rnn.num_layers:
            x = torch.dropout(x, rnn.dropout, True)
    if counts is None and rnn.batch_first:
        x = x.transpose(0, 1)
    ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    return x, ends if rnn.mode == "LSTM" else ends[0]
