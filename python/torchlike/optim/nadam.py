"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

from torchlike import _optim as rows
from torchlike.optim import _common as common
from torchlike.optim._common import Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

__all__ = ["NAdam", "nadam"]


class NAdam(Optimizer):
    """Adam that looks ahead by the momentum of the next step, which grows as ``momentum_decay`` says."""

    _added = {
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
    }
    _counts = ("step", "mu_product")
    _refusal = "NAdam does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        common.check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _begins(self, group: dict[str, Any]) -> common.Begins | None:
        return ("step", 0.0), ("mu_product", 1.0), ("exp_avg", None), ("exp_avg_sq", None)

    @_use_grad_for_differentiable
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            lists = common.gather(self, group, "exp_avg", "exp_avg_sq", "mu_product", "step")
            beta1, beta2 = group["betas"]
            nadam(*lists, beta1=beta1, beta2=beta2, **common.chosen(group, _OPTIONS))
        return loss


_OPTIONS = (
    "lr",
    "weight_decay",
    "momentum_decay",
    "eps",
    "maximize",
    "decoupled_weight_decay",
    "foreach",
    "capturable",
    "differentiable",
)


def _multiply_up(
    products: Tensors,
    steps: Tensors,
    beta1: float,
    momentum_decay: float,
    capturable: bool,
    differentiable: bool,
) -> None:
    """Multiply the products by the momenta of these steps."""
    if not differentiable and common.taken_whole([products]) is not None:
        rows.multiply_up(products, steps, beta1=beta1, momentum_decay=momentum_decay)
        return
    for product, count in zip(products, steps, strict=True):
        step = count if capturable else common._get_value(count)
        product *= beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))


def nadam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    mu_products: Tensors,
    state_steps: Tensors,
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """The update of `NAdam` for lists of tensors."""
    common.check_counts(state_steps)
    common.check_counts(mu_products, "mu_products")
    common.check_foreach(foreach, differentiable)
    if capturable:
        names = f"params, mu_products{',' if foreach else ''} and state_steps"
        common.check_capturable(params, mu_products, state_steps, names=names, xla=not foreach)
    common.count_up(state_steps)
    _multiply_up(mu_products, state_steps, beta1, momentum_decay, capturable, differentiable)
    whole = (params, grads, exp_avgs, exp_avg_sqs)
    numbers = {
        "lr": lr,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "momentum_decay": momentum_decay,
        "decoupled_weight_decay": decoupled_weight_decay,
        "maximize": maximize,
    }
    if common.in_one_call(
        rows.nadam, whole, (mu_products, state_steps), numbers, capturable or differentiable
    ):
        return
    lr = common._to_scalar(lr)
    lists = (params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps)
    for p, grad, mean, square, product, count in common.each(*lists, maximize=maximize):
        step = count if capturable else common._get_value(count)
        if decoupled_weight_decay and weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        else:
            grad = common.decayed(grad, p, weight_decay)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = square.div(1 - beta2**step).sqrt()
        if differentiable or capturable:
            root = root.add(eps)
            p.addcdiv_(grad * (-lr * (1.0 - mu) / (1.0 - product)), root)
            p.addcdiv_(mean * (-lr * mu_next / (1.0 - product * mu_next)), root)
        else:
            so_far = common._get_value(product)
            root.add_(eps)
            p.addcdiv_(grad, root, value=-lr * (1.0 - mu) / (1.0 - so_far))
            p.addcdiv_(mean, root, value=-lr * mu_next / (1.0 - so_far * mu_next))
