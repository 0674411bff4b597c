"""Adadelta: steps whose size follows from the sizes of earlier ones."""

from __future__ import annotations

from typing import Any

from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    """Scales the gradient by the ratio of two running averages: of squared steps, and of its own square."""

    _counts = ("step",)
    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    _refusal = "Adadelta does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        common.check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        common.check_not_negative(epsilon=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        return ("step", 0.0), ("square_avg", None), ("acc_delta", None)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "square_avg", "acc_delta", "step")
            adadelta(*lists, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = (
    "lr",
    "rho",
    "eps",
    "weight_decay",
    "foreach",
    "maximize",
    "differentiable",
    "capturable",
)


def adadelta(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    acc_deltas: Tensors,
    state_steps: Tensors,
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """The update of `Adadelta` for lists of tensors."""
    common.begin(params, state_steps, foreach, differentiable, capturable, xla=False)
    whole = (params, grads, square_avgs, acc_deltas)
    numbers = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    if common.in_one_call(rows.adadelta, whole, (), numbers, capturable or differentiable):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, square_avgs, acc_deltas)
    for p, grad, square, deltas in common.each(*lists, maximize=maximize):
        grad = common.decayed(grad, p, weight_decay)
        square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = deltas.add(eps).sqrt_()
        if differentiable:
            delta = delta.clone()
        delta.div_(square.add(eps).sqrt_()).mul_(grad)
        deltas.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        p.add_(delta, alpha=-lr)
