"""Muon: momentum made orthogonal, for matrices."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike.optim import _common as common
from torchlike.optim._common import Tensor, Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT

__all__ = ["Muon"]

EPS = 1e-7
DEFAULT_A, DEFAULT_B, DEFAULT_C = 3.4445, -4.7750, 2.0315
DEFAULT_NS_STEPS = 5


class Muon(Optimizer):
    """Steps by the orthogonal matrix nearest to the momentum, found by a few steps of Newton and Schulz in bfloat16."""

    _counts = ()
    _refusal = "Muon does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (DEFAULT_A, DEFAULT_B, DEFAULT_C),
        eps: float = EPS,
        ns_steps: int = DEFAULT_NS_STEPS,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (
            ("Learning rate", lr),
            ("momentum", momentum),
            ("weight decay", weight_decay),
        ):
            if not 0.0 <= value:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        return {"momentum_buffer": common.zeros(p.grad)}

    @common.never_recorded
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            params, grads, momenta = common.gather(self, group, "momentum_buffer")
            muon(params, grads, momenta, has_complex=False, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = (
    "lr",
    "weight_decay",
    "momentum",
    "nesterov",
    "ns_coefficients",
    "eps",
    "ns_steps",
    "adjust_lr_fn",
)


def muon(
    params: Tensors,
    grads: Tensors,
    muon_momentum_bufs: Tensors,
    *,
    foreach: bool | None = None,
    lr: Any,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool,
) -> None:
    """The update of `Muon` for lists of tensors."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    lr = common._to_scalar(lr)
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    for p, grad, average in zip(params, grads, muon_momentum_bufs, strict=True):
        if grad.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        average.lerp_(grad, 1 - momentum)
        update = grad.lerp(average, momentum) if nesterov else average
        update = _zeropower_via_newtonschulz(update, ns_coefficients, ns_steps, eps)
        p.mul_(1 - lr * weight_decay)
        p.add_(update, alpha=-_adjust_lr(lr, adjust_lr_fn, p.shape))


def _zeropower_via_newtonschulz(
    grad: Any, ns_coefficients: tuple[float, float, float], ns_steps: int, eps: float
) -> Any:
    """A matrix of the same directions whose singular values are all about 1, in bfloat16."""
    if ns_steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if grad.ndim != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(ns_coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = ns_coefficients
    # The products are smaller with the short side first.
    tall = grad.size(0) > grad.size(1)
    x = grad.bfloat16().T if tall else grad.bfloat16()
    x = x.div(x.norm().clamp(min=eps))
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _adjust_lr(lr: Any, adjust_lr_fn: str | None, param_shape: Any) -> Any:
    """The rate at which updates of this shape have the size of others."""
    rows, columns = param_shape[:2]
    if adjust_lr_fn == "match_rms_adamw":
        return lr * (0.2 * math.sqrt(max(rows, columns)))
    return lr * math.sqrt(max(1, rows / columns))
