"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _functions
from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensor, Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Steps down the gradient; with ``momentum`` down a sum of all gradients so far, older ones counting less."""

    _added = {
        "nesterov": False,
        "maximize": False,
        "foreach": None,
        "differentiable": False,
        "fused": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        common.check_one_element(lr)
        # PyTorch asks this optimizer's options the other way round: what is no number at all passes.
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        common.check_fused(fused, differentiable, foreach)
        if fused:
            self._step_supports_amp_scaling = True

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            if group["fused"]:
                common.check_fused_params(self, params)
            momenta = (
                [self.state[p].get("momentum_buffer") for p in params] if group["momentum"] else []
            )
            sgd(
                params,
                grads,
                momenta,
                has_sparse_grad=any(grad.is_sparse for grad in grads),
                **common.chosen(group, _OPTIONS),
                **common.scaling(self),
            )
            for p, momentum in zip(params, momenta, strict=False):
                self.state[p]["momentum_buffer"] = momentum
        return loss


_OPTIONS = (
    "weight_decay",
    "momentum",
    "lr",
    "dampening",
    "nesterov",
    "maximize",
    "foreach",
    "fused",
)


def sgd(
    params: Tensors,
    d_p_list: Tensors,
    momentum_buffer_list: Tensors,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """The update of `SGD` for lists of tensors; fresh momenta are put into their list."""
    fused = common.fused_here(fused, params, grad_scale, found_inf)
    if fused and has_sparse_grad:
        raise RuntimeError("`_fused_sgd` does not support sparse gradients")
    buffers = momentum_buffer_list if momentum != 0 else []
    first = len(buffers) > 0 and all(buffer is None for buffer in buffers)
    numbers = {
        "weight_decay": weight_decay,
        "momentum": momentum,
        "lr": lr,
        "dampening": dampening,
        "nesterov": nesterov,
        "maximize": maximize,
        "is_first_step": first,
    }
    # Rows of several steps write buffers that are made before; one tensor at a time has them made by its first step.
    if (
        first
        and not has_sparse_grad
        and (fused or common.are_taken((params, d_p_list), numbers.values()))
    ):
        buffers = [torch.empty_like(grad) for grad in d_p_list]
    whole = (params, d_p_list, buffers)
    if fused:
        scaling = {"grad_scale": grad_scale, "found_inf": found_inf}
        common.fused_call(_functions._fused_sgd_, whole, None, numbers, scaling)
    else:
        # Complex numbers are multiplied by real ones as complex numbers here, and rounded so.
        apart = torch.is_grad_enabled() or has_sparse_grad or any(b is None for b in buffers)
        apart = apart or any(p.is_complex() for p in params)
        if not common.in_one_call(rows.sgd, whole, (), numbers, apart):
            return _one_by_one(params, d_p_list, momentum_buffer_list, numbers)
    if first:
        momentum_buffer_list[:] = buffers


def _one_by_one(params: Tensors, grads: Tensors, buffers: Tensors, numbers: dict[str, Any]) -> None:
    momentum, lr = numbers["momentum"], common._to_scalar(numbers["lr"])
    for i, (p, grad) in enumerate(zip(params, grads, strict=True)):
        if numbers["maximize"]:
            grad = -grad
        grad = common.decayed(grad, p, numbers["weight_decay"])
        if momentum != 0:
            buffer = buffers[i]
            if buffer is None:
                buffer = buffers[i] = grad.detach().clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - numbers["dampening"])
            grad = grad.add(buffer, alpha=momentum) if numbers["nesterov"] else buffer
        if isinstance(lr, Tensor) and lr.requires_grad:
            p.addcmul_(grad, lr, value=-1)
        else:
            p.add_(grad, alpha=-lr)
