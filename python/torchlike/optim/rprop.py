"""Rprop: steps by the sign of the gradient alone."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    """Each element has a step of its own, which grows while the gradient keeps its sign and shrinks when it changes."""

    _counts = ("step",)
    _added = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    _refusal = "Rprop does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        common.check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        lr = common._to_scalar(group["lr"])
        first = complex(lr, lr) if p.is_complex() else common._get_value(lr)
        return {
            "step": common.step_count(p, group),
            "prev": common.zeros(p),
            "step_size": torch.full_like(p.grad, first),
        }

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "prev", "step_size", "step")
            down, up = group["etas"]
            least, most = group["step_sizes"]
            rprop(
                *lists,
                step_size_min=least,
                step_size_max=most,
                etaminus=down,
                etaplus=up,
                **common.chosen(group, _OPTIONS),
            )
        return loss


_OPTIONS = ("foreach", "maximize", "differentiable", "capturable")


def rprop(
    params: Tensors,
    grads: Tensors,
    prevs: Tensors,
    step_sizes: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """The update of `Rprop` for lists of tensors."""
    common.begin(params, state_steps, foreach, differentiable, capturable, xla=True)
    whole = (params, grads, prevs, step_sizes)
    numbers = {
        "etaminus": etaminus,
        "etaplus": etaplus,
        "step_size_min": step_size_min,
        "step_size_max": step_size_max,
        "maximize": maximize,
    }
    if common.in_one_call(rows.rprop, whole, (), numbers, capturable or differentiable):
        return
    lists = (params, grads, prevs, step_sizes)
    for p, grad, previous, size in common.each(*lists, maximize=maximize):
        sign = grad.mul(previous.clone() if differentiable else previous).sign()
        falls = sign.lt(0)
        factor = torch.where(sign.gt(0), etaplus, torch.where(falls, etaminus, sign + 1))
        size.mul_(factor).clamp_(step_size_min, step_size_max)
        # Where the sign changed, the step went too far: none is made, and none is compared with it.
        grad = grad.masked_fill(falls, 0)
        p.addcmul_(grad.sign(), size, value=-1)
        previous.copy_(grad)
