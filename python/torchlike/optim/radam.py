"""RAdam: Adam that waits until its averages can be trusted."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """Adam whose first steps do not divide by the average of squares, and later ones by how well it is known."""

    _counts = ("step",)
    _added = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "capturable": False,
    }
    _refusal = "RAdam does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        return ("step", 0.0), ("exp_avg", None), ("exp_avg_sq", None)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "exp_avg", "exp_avg_sq", "step")
            beta1, beta2 = group["betas"]
            radam(*lists, beta1=beta1, beta2=beta2, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = (
    "lr",
    "weight_decay",
    "eps",
    "maximize",
    "foreach",
    "capturable",
    "differentiable",
    "decoupled_weight_decay",
)


def radam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    state_steps: Tensors,
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
) -> None:
    """The update of `RAdam` for lists of tensors."""
    common.begin(params, state_steps, foreach, differentiable, capturable)
    whole = (params, grads, exp_avgs, exp_avg_sqs)
    numbers = {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "decoupled_weight_decay": decoupled_weight_decay,
        "maximize": maximize,
    }
    if common.in_one_call(rows.radam, whole, (state_steps,), numbers, capturable or differentiable):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, exp_avgs, exp_avg_sqs, state_steps)
    for p, grad, mean, square, count in common.each(*lists, maximize=maximize):
        step = count if capturable else common._get_value(count)
        if decoupled_weight_decay and weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        else:
            grad = common.decayed(grad, p, weight_decay)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        corrected = mean / (1 - beta1**step)
        correction, length, limit = _lengths(beta2, step)
        if capturable:
            scale = _rectified(length, limit) * _adaptive(square, correction, eps)
            p.add_(corrected * lr * torch.where(length > 5.0, scale, 1.0), alpha=-1.0)
        elif length > 5.0:
            scale = _adaptive(square, correction, eps)
            p.add_(corrected * lr * scale * _rectified(length, limit), alpha=-1.0)
        else:
            p.add_(corrected * lr, alpha=-1.0)


def _lengths(beta2: float, step: Any) -> tuple[Any, Any, float]:
    """The correction of the average of squares; over how many steps it reaches, now and in the end."""
    correction = 1 - beta2**step
    limit = 2 / (1 - beta2) - 1
    return correction, limit - 2 * step * beta2**step / correction, limit


def _rectified(length: Any, limit: float) -> Any:
    return ((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)) ** 0.5


def _adaptive(square: Any, correction: Any, eps: float) -> Any:
    return correction**0.5 / square.sqrt().add(eps)
