"""Adam: steps by running averages of the gradient and of its square."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _functions
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensor, Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["Adam", "adam"]


class Adam(Optimizer):
    """Steps of about ``lr`` in every element, whatever the size of its gradient.

    With ``decoupled_weight_decay`` this is `AdamW`; with ``amsgrad`` the average of squares never falls.
    """

    _counts = ("step",)
    _added = {
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }
    _refusal = "Adam does not support sparse gradients, please consider SparseAdam instead"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check_tensor_option("lr", lr, foreach, capturable)
        common.check_lr(lr)
        common.check_not_negative(epsilon=eps)
        common.check_betas(betas)
        common.check_not_negative(weight_decay=weight_decay)
        if not any(all(isinstance(beta, kind) for beta in betas[:2]) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas[:2]):
            _check_tensor_option(f"betas[{i}]", beta, foreach, capturable)
        defaults = {
            "lr": lr,
            "betas": tuple(map(common._to_scalar, betas)),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        common.check_fused(fused, differentiable, foreach)
        if fused:
            self._step_supports_amp_scaling = True

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        names = _STATE if group["amsgrad"] else _STATE[:2]
        return ("step", 0.0), *((name, None) for name in names)

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        if group["fused"]:
            common._device_dtype_check_for_fused(p)
        return super()._start(p, group)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            names = _STATE if group["amsgrad"] else _STATE[:2]
            params, grads, steps, *averages = common.gather(self, group, "step", *names)
            if group["differentiable"] and any(step.requires_grad for step in steps):
                raise RuntimeError(
                    "`requires_grad` is not supported for `step` in differentiable mode"
                )
            if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
                raise RuntimeError(_NO_TENSOR.format("lr"))
            beta1, beta2 = group["betas"]
            adam(
                params,
                grads,
                averages[0],
                averages[1],
                averages[2] if group["amsgrad"] else [],
                steps,
                beta1=beta1,
                beta2=beta2,
                **common.chosen(group, _OPTIONS),
                **common.scaling(self),
            )
        return loss


_STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_NO_TENSOR = "{} as a Tensor is not supported for capturable=False and foreach=True"
_OPTIONS = (
    "amsgrad",
    "lr",
    "weight_decay",
    "eps",
    "maximize",
    "foreach",
    "capturable",
    "differentiable",
    "fused",
    "decoupled_weight_decay",
)


def _check_tensor_option(name: str, value: Any, foreach: Any, capturable: bool) -> None:
    if not isinstance(value, Tensor):
        return
    if foreach and not capturable:
        raise ValueError(_NO_TENSOR.format(name))
    if value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element")


def adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """The update of `Adam` for lists of tensors."""
    common.check_counts(state_steps)
    common.check_foreach(foreach, differentiable)
    fused = common.fused_here(fused, params, grad_scale, found_inf)
    if capturable:
        common.check_capturable(params, state_steps, xla=not foreach)
    whole = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
    numbers = {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "weight_decay": weight_decay,
        "eps": eps,
        "amsgrad": amsgrad,
        "maximize": maximize,
    }
    if fused:
        row = _functions._fused_adamw_ if decoupled_weight_decay else _functions._fused_adam_
        scaling = {"grad_scale": grad_scale, "found_inf": found_inf}
        return common.fused_call(row, whole, state_steps, numbers, scaling)
    common.count_up(state_steps)
    numbers["decoupled_weight_decay"] = decoupled_weight_decay
    apart = capturable or differentiable
    if common.in_one_call(rows.adam, whole, (state_steps,), numbers, apart):
        return
    lr, beta1, beta2 = map(common._to_scalar, (lr, beta1, beta2))
    largest = max_exp_avg_sqs if amsgrad else [None] * len(params)
    lists = (params, grads, exp_avgs, exp_avg_sqs, largest, state_steps)
    for p, grad, mean, square, top, count in common.each(*lists, maximize=maximize):
        if decoupled_weight_decay and weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        else:
            grad = common.decayed(grad, p, weight_decay)
        mean.lerp_(grad, 1 - _beside(beta1, p))
        _average_square(square, grad, beta2)
        if top is not None:
            old = top.clone() if differentiable else top
            top.copy_(torch.maximum(old, square))
            square = top
        if capturable or differentiable:
            _apply_with_tensors(p, mean, square, count, lr, beta1, beta2, eps, differentiable)
        else:
            step = common._get_value(count)
            denominator = (square.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
            p.addcdiv_(mean, denominator, value=-(lr / (1 - beta1**step)))


def _beside(beta: Any, p: Any) -> Any:
    return beta.to(device=p.device, dtype=p.dtype) if isinstance(beta, Tensor) else beta


def _average_square(square: Any, grad: Any, beta2: Any) -> None:
    if isinstance(beta2, Tensor) and beta2.requires_grad:
        square.lerp_(torch.square(grad), weight=1 - beta2)
    else:
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)


def _apply_with_tensors(
    p: Any,
    mean: Any,
    square: Any,
    count: Any,
    lr: Any,
    beta1: Any,
    beta2: Any,
    eps: float,
    differentiable: bool,
) -> None:
    """The update itself where the count stays a tensor: it is captured, or differentiated."""

    def correction(beta: Any) -> Any:
        kept = isinstance(beta, Tensor) and beta.requires_grad
        return 1 - beta ** (count.clone() if kept else count)

    negative = (lr / correction(beta1)).neg()
    root = square.sqrt() / (correction(beta2).sqrt() * negative)
    p.addcdiv_(mean.clone() if differentiable else mean, root.add_(eps / negative))
