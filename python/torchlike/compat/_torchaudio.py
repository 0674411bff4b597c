"""torchaudio's operators under their names, in place of its library in C++, which torchlike cannot load: filters,
alignments, and the loss of transducers. Values are computed by NumPy on the host, a step of time at once."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.library import Library

_SCHEMAS = (
    "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, "
    "Tensor(a!) padded_output_waveform) -> ()",
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, "
    "Tensor(a!) output_waveform) -> ()",
    "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "int blank) -> (Tensor, Tensor)",
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, "
    "float clamp, bool fused_log_softmax) -> (Tensor, Tensor)",
)
_libraries: list[Library] = []


def _lfilter(windows: Any, coefficients: Any, padded: Any) -> None:
    """The recursive part of a filter, written to `padded`, which begins with as many zeros as the filter remembers.

    `windows` `[batch, channels, time]`, `coefficients` `[channels, order]`, the oldest first and 1 last.
    """
    x, a, y = windows.numpy(), coefficients.numpy(), padded.numpy()
    order = a.shape[1]
    for t in range(x.shape[2]):
        past = (y[:, :, t : t + order - 1] * a[None, :, : order - 1]).sum(-1)
        y[:, :, t + order - 1] = (x[:, :, t] - past) / a[None, :, order - 1]


def _overdrive(waveform: Any, temp: Any, last_in: Any, last_out: Any, output: Any) -> None:
    """What an overdriven amplifier gives, written to `output` `[channels, time]`."""
    x, z, y = waveform.numpy(), temp.numpy(), output.numpy()
    before, after = last_in.numpy(), last_out.numpy()
    for t in range(x.shape[-1]):
        after = z[:, t] - before + 0.995 * after
        before = z[:, t]
        y[:, t] = x[:, t] * 0.5 + after * 0.75


def _forced_align(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Any, Any]:
    """The likeliest labels of every step that spell the targets with blanks between, and the log probabilities.

    Raises:
        RuntimeError: for several examples, or fewer steps than the targets need.
    """
    import numpy as np

    torchlike._check(
        log_probs.size(0) == 1,
        lambda: "The batch dimension for log_probs must be 1 at the current version.",
    )
    steps, count = int(input_lengths[0]), int(target_lengths[0])
    scores, labels = log_probs[0].double().numpy(), targets[0].numpy()[:count]
    repeats = int((labels[1:] == labels[:-1]).sum())
    torchlike._check(
        steps >= count + repeats,
        lambda: (
            f"targets length is too long for CTC. Found targets length: {count}, log_probs length: {steps}, and "
            f"number of repeats: {repeats}"
        ),
    )
    states = np.full(2 * count + 1, blank, labels.dtype)
    states[1::2] = labels
    # A label may follow another at once where they differ.
    jumps = np.zeros(len(states), bool)
    jumps[3::2] = labels[1:] != labels[:-1]
    best = np.full(len(states), -np.inf)
    best[:2] = scores[0, states[:2]]
    came = np.zeros((steps, len(states)), np.int8)
    for t in range(1, steps):
        ways = np.full((3, len(states)), -np.inf)
        ways[0], ways[1, 1:] = best, best[:-1]
        ways[2, 2:] = np.where(jumps[2:], best[:-2], -np.inf)
        came[t] = ways.argmax(0)
        best = ways.max(0) + scores[t, states]
    at = len(states) - 1
    if count and best[at - 1] >= best[at]:
        at -= 1
    path = np.full((1, log_probs.size(1)), blank, labels.dtype)
    for t in reversed(range(steps)):
        path[0, t] = states[at]
        at -= came[t, at]
    return torchlike.from_numpy(path), log_probs.clone()


def _rnnt_loss(
    logits: Any,
    targets: Any,
    logit_lengths: Any,
    target_lengths: Any,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Any, Any]:
    """The transducer loss of each example and its gradient, by the forward and backward variables of Graves (2012).

    `logits` `[batch, time, labels + 1, classes]`.
    """
    import numpy as np

    blank = blank % logits.size(-1)
    scores = (logits.double().log_softmax(-1) if fused_log_softmax else logits.double()).numpy()
    costs, grads = np.zeros(len(scores)), np.zeros_like(scores)
    for b, score in enumerate(scores):
        steps, count = int(logit_lengths[b]), int(target_lengths[b])
        labels = targets[b].numpy()[:count]
        score = score[:steps, : count + 1]
        stays = score[:, :, blank]
        moves = score[:, np.arange(count), labels]
        ahead = np.full((steps + 1, count + 2), -np.inf)
        ahead[steps, count] = 0.0
        after = np.full((steps, count + 1), -np.inf)
        for t in reversed(range(steps)):
            for u in reversed(range(count + 1)):
                moved = moves[t, u] + after[t, u + 1] if u < count else -np.inf
                after[t, u] = ahead[t, u] = np.logaddexp(stays[t, u] + ahead[t + 1, u], moved)
        before = np.full((steps, count + 1), -np.inf)
        before[0, 0] = 0.0
        for t in range(steps):
            for u in range(count + 1):
                ways = [before[t, u]]
                ways += [before[t - 1, u] + stays[t - 1, u]] if t else []
                ways += [before[t, u - 1] + moves[t, u - 1]] if u else []
                before[t, u] = np.logaddexp.reduce(ways)
        total = after[0, 0]
        costs[b] = -total
        grad = grads[b, :steps, : count + 1]
        if fused_log_softmax:
            grad += np.exp(score + (before + after - total)[:, :, None])
        grad[:, :, blank] -= np.exp(before + stays + ahead[1:, : count + 1] - total)
        at = np.arange(count)
        grad[:, at, labels] -= np.exp(before[:, :count] + moves + after[:, 1:] - total)
    if clamp > 0:
        np.clip(grads, -clamp, clamp, out=grads)
    return tuple(torchlike.from_numpy(x).to(logits.dtype) for x in (costs, grads))  # type: ignore[return-value]


def register() -> None:
    """Makes the operators, once."""
    if _libraries:
        return
    own, private = Library("torchaudio", "FRAGMENT"), Library("_torchaudio", "FRAGMENT")
    _libraries.extend((own, private))
    kernels = (_lfilter, _overdrive, _forced_align, _rnnt_loss)
    for schema, kernel in zip(_SCHEMAS, kernels, strict=True):
        own.define(schema)
        own.impl(schema.partition("(")[0], kernel, "CPU")
    for schema, value in (("cuda_version() -> int?", None), ("is_align_available() -> bool", True)):
        private.define(schema)
        private.impl(
            schema.partition("(")[0], lambda value=value: value, "CompositeExplicitAutograd"
        )
