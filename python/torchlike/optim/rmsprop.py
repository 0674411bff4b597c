"""RMSprop: the gradient divided by the root of a running average of its square."""

from __future__ import annotations

from typing import Any

from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    """Scales the gradient by its recent size; ``centered`` by its recent deviation from the average."""

    _counts = ("step",)
    _added = {
        "momentum": 0,
        "centered": False,
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }
    _refusal = "RMSprop does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        common.check_lr(lr)
        common.check_not_negative(
            epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha
        )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        more = (("momentum_buffer", group["momentum"] > 0), ("grad_avg", group["centered"]))
        return ("step", 0.0), ("square_avg", None), *((name, None) for name, has in more if has)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            names = ["step", "square_avg"]
            names += ["grad_avg"] if group["centered"] else []
            names += ["momentum_buffer"] if group["momentum"] > 0 else []
            params, grads, *states = common.gather(self, group, *names)
            state = dict(zip(names, states, strict=True))
            rmsprop(
                params,
                grads,
                state["square_avg"],
                state.get("grad_avg", []),
                state.get("momentum_buffer", []),
                state["step"],
                **common.chosen(group, _OPTIONS),
            )
        return loss


_OPTIONS = (
    "lr",
    "alpha",
    "eps",
    "weight_decay",
    "momentum",
    "centered",
    "foreach",
    "maximize",
    "differentiable",
    "capturable",
)


def rmsprop(
    params: Tensors,
    grads: Tensors,
    square_avgs: Tensors,
    grad_avgs: Tensors,
    momentum_buffer_list: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: Any,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """The update of `RMSprop` for lists of tensors."""
    common.begin(params, state_steps, foreach, differentiable, capturable, xla=True)
    whole = (params, grads, square_avgs, grad_avgs, momentum_buffer_list)
    numbers = {
        "lr": lr,
        "alpha": alpha,
        "eps": eps,
        "weight_decay": weight_decay,
        "momentum": momentum,
        "centered": centered,
        "maximize": maximize,
    }
    if common.in_one_call(rows.rmsprop, whole, (), numbers, capturable or differentiable):
        return
    lr = common._to_scalar(lr)
    none = [None] * len(params)
    averages = grad_avgs if centered else none
    momenta = momentum_buffer_list if momentum > 0 else none
    lists = (params, grads, square_avgs, averages, momenta)
    for p, grad, square, average, buffer in common.each(*lists, maximize=maximize):
        grad = common.decayed(grad, p, weight_decay)
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if average is None:
            root = square.sqrt()
        else:
            average.lerp_(grad, 1 - alpha)
            root = square.addcmul(average, average, value=-1).sqrt_()
        root = root.add(eps) if differentiable else root.add_(eps)
        if buffer is None:
            p.addcdiv_(grad, root, value=-lr)
        else:
            buffer.mul_(momentum).addcdiv_(grad, root)
            p.add_(buffer, alpha=-lr)
