"""Adafactor: Adam's average of squares, kept as one row and one column a matrix."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _optim
from torchlike.optim import _common as common
from torchlike.optim._common import Tensor, Tensors
from torchlike.optim.optimizer import Optimizer, ParamsT

__all__ = ["Adafactor", "adafactor"]


class Adafactor(Optimizer):
    """Steps relative to the size of the parameters, by squared gradients of which only sums are remembered."""

    _counts = ("step",)
    _added = {"foreach": None}
    _refusal = "Adafactor does not support sparse gradients"

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        grad, count = p.grad, common.step_count(p, group)
        if grad.dim() < 2:
            return {"step": count, "variance": common.zeros(grad)}
        *outer, rows, columns = grad.shape
        return {
            "step": count,
            "row_var": grad.new_zeros((*outer, rows, 1)),
            "col_var": grad.new_zeros((*outer, 1, columns)),
        }

    @common.never_recorded
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            params, grads, steps = common.gather(self, group, "step")
            states = [self.state[p] for p in params]
            eps1, eps2 = group["eps"]
            adafactor(
                params,
                grads,
                [state.get("row_var") for state in states],
                [state.get("col_var") for state in states],
                [state.get("variance") for state in states],
                steps,
                eps1=eps1,
                eps2=eps2,
                **common.chosen(group, _OPTIONS),
                **common.scaling(self),
            )
        return loss


_OPTIONS = ("d", "lr", "beta2_decay", "weight_decay", "foreach", "maximize")


def adafactor(
    params: Tensors,
    grads: Tensors,
    row_vars: Tensors,
    col_vars: Tensors,
    variances: Tensors,
    state_steps: Tensors,
    foreach: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """The update of `Adafactor` for lists of tensors."""
    if not all(isinstance(t, Tensor) for t in state_steps):
        raise RuntimeError("`state_steps` argument must contain a list of singleton tensors")
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    lr = common._to_scalar(lr)
    common.count_up(state_steps)
    directions = _directions(
        (params, grads, row_vars, col_vars, variances, state_steps), beta2_decay, eps1, maximize
    )
    for p, update, count in zip(params, directions, state_steps, strict=True):
        rate = max(eps2, _number(p.norm(2)) / p.numel() ** 0.5) * min(lr, 1 / count.item() ** 0.5)
        if weight_decay != 0:
            p.mul_(1 - lr * weight_decay)
        size = _number(update.norm(2)) / (update.numel() ** 0.5 * d)
        p.add_(update, alpha=-rate / max(1.0, size))


def _number(norm: Any) -> float:
    """The value of a norm; of a fake one any will do, as results lie the same."""
    return 1.0 if torch._C._is_fake(norm) else norm.item()


def _directions(
    lists: tuple[Tensors, ...], beta2_decay: float, eps1: float | None, maximize: bool
) -> Tensors:
    """The gradients over the roots of their average squares, which change."""
    found: Tensors = []
    kinds: dict[Any, list[int]] = {}
    for i, (p, grad, rows, columns, square, count) in enumerate(zip(*lists, strict=True)):
        least = torch.finfo(p.dtype).eps if eps1 is None else eps1
        kinds.setdefault((least, square is None), []).append(i)
        if square is None:
            found.append(_factored(grad, rows, columns, count.item() ** beta2_decay, least))
        else:
            found.append(torch.empty_like(square))
    _, grads, _, _, variances, counts = lists
    for (least, factored), which in kinds.items():
        own = [[several[i] for i in which] for several in (found, grads, variances, counts)]
        if factored:
            own[2] = []
        numbers = {"beta2_decay": beta2_decay, "least": least * least, "maximize": maximize}
        if not common.in_one_call(_optim.adafactor, tuple(own[:3]), (own[3],), numbers):
            for i in which:
                found[i] = _direction(found[i], grads[i], variances[i], counts[i], **numbers)
    return found


def _direction(
    estimate: Any,
    grad: Any,
    square: Any,
    count: Any,
    beta2_decay: float,
    least: float,
    maximize: bool,
) -> Any:
    """The direction of one parameter, operation by operation."""
    if square is not None:
        estimate = square.lerp_(grad * grad, count.item() ** beta2_decay).clone()
    return estimate.clamp_(min=least).rsqrt_().mul_(-grad if maximize else grad)


def _factored(grad: Any, rows: Any, columns: Any, weight: float, least: float) -> Any:
    """The average of squares, from those of its rows and columns after this gradient."""
    for average, dim in ((rows, -1), (columns, -2)):
        mean = torch.norm(grad, dim=dim, keepdim=True).square_().div_(grad.size(dim))
        average.lerp_(mean, weight)
    return (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=least))
