"""Adamax: Adam by the largest gradient seen, instead of the average of squares."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    """Divides a running average of the gradient by a decaying maximum of its size."""

    _counts = ("step",)
    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    _refusal = "Adamax does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        common.check_lr(lr)
        common.check_not_negative(epsilon=eps)
        common.check_betas(betas)
        common.check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        return ("step", 0.0), ("exp_avg", None), ("exp_inf", None)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "exp_avg", "exp_inf", "step")
            beta1, beta2 = group["betas"]
            adamax(*lists, beta1=beta1, beta2=beta2, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = ("eps", "lr", "weight_decay", "foreach", "maximize", "differentiable", "capturable")


def adamax(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_infs: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
) -> None:
    """The update of `Adamax` for lists of tensors."""
    common.begin(params, state_steps, foreach, differentiable, capturable)
    whole = (params, grads, exp_avgs, exp_infs)
    numbers = {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "maximize": maximize,
    }
    if common.in_one_call(
        rows.adamax, whole, (state_steps,), numbers, capturable or differentiable
    ):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, exp_avgs, exp_infs, state_steps)
    for p, grad, mean, largest, count in common.each(*lists, maximize=maximize):
        grad = common.decayed(grad, p, weight_decay)
        mean.lerp_(grad, 1 - beta1)
        faded = largest.mul_(beta2)
        faded = faded.clone() if differentiable else faded
        largest.copy_(torch.maximum(faded, grad.abs().add_(eps)))
        if capturable:
            p.addcdiv_(mean, largest * (beta1**count - 1).div_(lr))
        else:
            correction = 1 - beta1 ** common._get_value(count)
            p.addcdiv_(mean, largest, value=-(lr / correction))
