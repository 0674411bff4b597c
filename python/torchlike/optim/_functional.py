"""Optimizers as functions of lists of tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torchlike.optim.adadelta import adadelta as adadelta
from torchlike.optim.adagrad import adagrad as adagrad
from torchlike.optim.adam import adam as adam
from torchlike.optim.adamax import adamax as adamax
from torchlike.optim.adamw import adamw as adamw
from torchlike.optim.asgd import asgd as asgd
from torchlike.optim.nadam import nadam as nadam
from torchlike.optim.radam import radam as radam
from torchlike.optim.rmsprop import rmsprop as rmsprop
from torchlike.optim.rprop import rprop as rprop
from torchlike.optim.sgd import sgd as sgd

if TYPE_CHECKING:
    from torchlike.optim._common import Tensors


def sparse_adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    state_steps: list[int],
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: Any,
    maximize: bool,
) -> None:
    """The update of `SparseAdam` for lists of tensors."""
    lists = (params, grads, exp_avgs, exp_avg_sqs, state_steps)
    for p, grad, mean, square, step in zip(*lists, strict=True):
        grad = grad.coalesce()
        values = -grad._values() if maximize else grad._values()
        if values.numel() == 0:
            continue
        at = tuple(grad._indices())
        old_mean, old_square = mean[at], square[at]
        mean_change = values.sub(old_mean).mul_(1 - beta1)
        mean.index_put_(at, mean_change, accumulate=True)
        square_change = values.pow(2).sub_(old_square).mul_(1 - beta2)
        square.index_put_(at, square_change, accumulate=True)
        root = square_change.add_(old_square).sqrt_().add_(eps)
        size = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        p.index_put_(at, -size * mean_change.add_(old_mean).div_(root), accumulate=True)
