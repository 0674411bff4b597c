"""Operators of PyTorch that are made of others, and whose arguments are not those of the public function."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._ops.by_hand import WORDS, F, by_hand, row

public: Any = torch

_DISTANCES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@by_hand
def to(
    self: Any,
    device: Any = None,
    dtype: Any = None,
    other: Any = None,
    layout: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Any:
    how = {"non_blocking": non_blocking, "copy": copy, "memory_format": memory_format}
    if other is not None:
        return self.to(other, **how)
    return self.to(device=device, dtype=dtype, **how)


@by_hand
def tensordot(self: Any, other: Any, dims_self: Any, dims_other: Any) -> Any:
    return public.tensordot(self, other, (list(dims_self), list(dims_other)))


@by_hand
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    return public.cdist(x1, x2, p, _DISTANCES[compute_mode or 0])


@by_hand
def l1_loss(self: Any, target: Any, reduction: int) -> Any:
    apart = (self - target).abs()
    return apart if reduction == 0 else apart.mean() if reduction == 1 else apart.sum()


# The public functions also warn of sizes that differ.
@by_hand
def mse_loss(self: Any, target: Any, reduction: int) -> Any:
    return row("_nn.mse_loss", self, target, reduction)


@by_hand
def smooth_l1_loss(self: Any, target: Any, reduction: int, beta: float) -> Any:
    return row("_nn.smooth_l1_loss", self, target, reduction, beta)


@by_hand
def huber_loss(self: Any, target: Any, reduction: int, delta: float) -> Any:
    return row("_nn.huber_loss", self, target, reduction, delta)


@by_hand
def nll_loss_nd(
    self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Any:
    return F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=WORDS[reduction])


@by_hand
def stft(
    self: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
    center: bool = False,
    pad_mode: str = "reflect",
) -> Any:
    frames = (n_fft, hop_length, win_length, window, center, pad_mode)
    how = (normalized, onesided, return_complex, align_to_window)
    return public.stft(self, *frames, *how)
