"""Adagrad: steps that get smaller with the sum of all squared gradients."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _functions
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Optimizer):
    """Divides the gradient by the root of the sum of its squares so far; sparse gradients change their rows alone."""

    _counts = ("step",)
    _added = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        common.check_lr(lr)
        common.check_not_negative(
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        common.check_fused(fused, differentiable, foreach)
        if fused:
            self._step_supports_amp_scaling = True
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._start(p, group)

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        first = self.defaults["initial_accumulator_value"]
        value = complex(first, first) if p.is_complex() else first
        total = torch.full_like(p, value, memory_format=torch.preserve_format)
        return {"step": common.step_count(p, group), "sum": total}

    def share_memory(self) -> None:
        """Move the state to memory that other processes can see."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            params, grads, sums, steps = common.gather(self, group, "sum", "step")
            if group["fused"]:
                common.check_fused_params(self, params)
            adagrad(
                params,
                grads,
                sums,
                steps,
                has_sparse_grad=any(grad.is_sparse for grad in grads),
                has_complex=any(p.is_complex() for p in params),
                **common.chosen(group, _OPTIONS),
                **common.scaling(self),
            )
        return loss


_OPTIONS = (
    "lr",
    "weight_decay",
    "lr_decay",
    "eps",
    "foreach",
    "maximize",
    "differentiable",
    "fused",
)


def adagrad(
    params: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """The update of `Adagrad` for lists of tensors."""
    common.check_counts(state_steps)
    common.check_foreach(foreach, differentiable)
    fused = common.fused_here(fused, params, grad_scale, found_inf)
    if fused and (has_sparse_grad or has_complex):
        raise RuntimeError("`fused` does not support sparse grad or complex param")
    whole = (params, grads, state_sums)
    numbers = {
        "lr": lr,
        "lr_decay": lr_decay,
        "weight_decay": weight_decay,
        "eps": eps,
        "maximize": maximize,
    }
    if fused:
        scaling = {"grad_scale": grad_scale, "found_inf": found_inf}
        return common.fused_call(_functions._fused_adagrad_, whole, state_steps, numbers, scaling)
    common.count_up(state_steps)
    apart = differentiable or has_sparse_grad
    if common.in_one_call(rows.adagrad, whole, (state_steps,), numbers, apart):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, state_sums, state_steps)
    for p, grad, total, count in common.each(*lists, maximize=maximize):
        rate = lr / (1 + (common._get_value(count) - 1) * lr_decay)
        if grad.is_sparse:
            if weight_decay != 0:
                raise RuntimeError("weight_decay option is not compatible with sparse gradients")
            _sparse(p, grad.coalesce(), total, rate, eps, maximize)
            continue
        grad = common.decayed(grad, p, weight_decay)
        total.addcmul_(grad, grad, value=1)
        root = total.sqrt()
        p.addcdiv_(grad, root + eps if differentiable else root.add_(eps), value=-rate)


def _sparse(p: Any, grad: Any, total: Any, rate: Any, eps: float, maximize: bool) -> None:
    """The update of the rows that a sparse gradient has."""
    at = tuple(grad._indices())
    values = -grad._values() if maximize else grad._values()
    total.index_put_(at, values.pow(2), accumulate=True)
    p.index_put_(at, values / total[at].sqrt_().add_(eps) * -rate, accumulate=True)
