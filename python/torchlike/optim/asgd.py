"""Averaged stochastic gradient descent."""

from __future__ import annotations

from functools import partial
from typing import Any

import torchlike as torch
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    """Gradient descent with falling rates that keeps the average of the parameters since step ``t0`` in its state."""

    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    _counts = ("step", "eta", "mu")
    _refusal = "ASGD does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        common.check_lr(lr)
        common.check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    # Numbers of the state are always beside their parameter.
    _count = staticmethod(partial(common.step_count, beside=True))

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": self._count(p, group),
            "eta": self._count(p, group, common._get_value(group["lr"])),
            "mu": self._count(p, group, 1.0),
            "ax": common.zeros(p),
        }

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "ax", "mu", "eta", "step")
            asgd(*lists, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = (
    "lambd",
    "lr",
    "t0",
    "alpha",
    "weight_decay",
    "foreach",
    "maximize",
    "differentiable",
    "capturable",
)


def asgd(
    params: Tensors,
    grads: Tensors,
    axs: Tensors,
    mus: Tensors,
    etas: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: Any,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """The update of `ASGD` for lists of tensors."""
    common.check_foreach(foreach, differentiable)
    if capturable:
        names = "params, mus, etas, and state_steps"
        common.check_capturable(params, mus, etas, state_steps, names=names, xla=not foreach)
    common.count_up(state_steps)
    whole = (params, grads, axs)
    numbers = {
        "lr": lr,
        "lambd": lambd,
        "alpha": alpha,
        "t0": t0,
        "weight_decay": weight_decay,
        "maximize": maximize,
    }
    if common.in_one_call(
        rows.asgd, whole, (mus, etas, state_steps), numbers, capturable or differentiable
    ):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, axs, mus, etas, state_steps)
    for p, grad, average, mu, eta, count in common.each(*lists, maximize=maximize):
        grad = common.decayed(grad, p, weight_decay)
        if capturable:
            p.mul_(1 - lambd * eta)
            p.addcmul_(grad, eta, value=-1)
        else:
            rate = common._get_value(eta)
            p.mul_(1 - lambd * rate)
            p.add_(grad, alpha=-rate)
        if capturable or mu.item() != 1:
            average.add_(p.sub(average).mul_(mu))
        else:
            average.copy_(p)
        if capturable:
            eta.copy_(lr / (1 + lambd * lr * count) ** alpha)
            mu.copy_(1 / torch.maximum(count - t0, torch.ones_like(count)))
        else:
            step = common._get_value(count)
            eta.copy_(torch.as_tensor(lr / (1 + lambd * lr * step) ** alpha))
            mu.fill_(1 / max(1, step - t0))
