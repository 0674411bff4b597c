"""L-BFGS: Newton's method with a Hessian guessed from the last steps."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.optim import _common as common
from torchlike.optim._line_search import Point, WolfeSearch
from torchlike.optim.optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]


# What is kept between calls of `step`, beside the counters.
def _value(loss: Any) -> float:
    """A loss as a number."""
    return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)


_KEPT = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """Several updates a step, each along a direction that the last ``history_size`` changes of the gradient suggest.

    It has one group. ``line_search_fn`` may be ``"strong_wolfe"``; without one each update goes ``lr`` far.
    """

    _counts = ()

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        common.check_lr(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Any]:
        return self.param_groups[0]["params"]

    def _gather_flat_grad(self) -> Any:
        """All gradients as one vector of real numbers."""
        flat = []
        for p in self._params:
            if p.grad is None:
                grad = p.detach().new_zeros(p.numel())
            else:
                grad = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            flat.append(torch.view_as_real(grad).reshape(-1) if grad.is_complex() else grad)
        return torch.cat(flat)

    def _add_grad(self, step_size: Any, update: Any) -> None:
        """Move the parameters along a vector."""
        offset = 0
        for p in self._params:
            real = torch.view_as_real(p) if p.is_complex() else p
            part = update[offset : offset + real.numel()]
            real.add_(part.view_as(real), alpha=step_size)
            offset += real.numel()

    def _clone_param(self) -> list[Any]:
        return [p.clone(memory_format=torch.contiguous_format) for p in self._params]

    def _set_param(self, values: list[Any]) -> None:
        for p, value in zip(self._params, values, strict=True):
            p.copy_(value)

    def _directional_evaluate(self, closure: Any, x: list[Any], t: Any, d: Any) -> tuple[Any, Any]:
        """The loss and gradient at a distance along a direction; the parameters stay where they are."""
        self._add_grad(t, d)
        loss = _value(closure())
        flat_grad = self._gather_flat_grad()
        self._set_param(x)
        return loss, flat_grad

    @common.never_recorded
    def step(self, closure: Any) -> Any:
        """Updates until nothing changes, or as many as the options allow; the closure computes loss and gradients."""
        if len(self.param_groups) != 1:
            raise AssertionError(
                f"Expected exactly one param_group, but got {len(self.param_groups)}"
            )
        closure = torch.enable_grad()(closure)
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        evaluations = 1
        state["func_evals"] += 1
        loss, grad = _value(first_loss), self._gather_flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first_loss
        kept = {name: state.get(name) for name in _KEPT}
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            slope = self._turn(state, kept, loss, grad, group)
            if slope > -group["tolerance_change"]:
                break
            allowed = group["max_eval"] - evaluations
            last = n == group["max_iter"]
            loss, grad, tried = self._move(closure, kept, loss, grad, slope, group, allowed, last)
            evaluations += tried
            state["func_evals"] += tried
            if last or evaluations >= group["max_eval"] or _settled(kept, loss, grad, group):
                break
        state.update(kept)
        return first_loss

    def _turn(
        self, state: dict[str, Any], kept: dict[str, Any], loss: Any, grad: Any, group: Any
    ) -> Any:
        """Choose the next direction and how far to go; the slope along it."""
        lr = common._to_scalar(group["lr"])
        if state["n_iter"] == 1:
            kept.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            kept["t"] = min(1.0, 1.0 / grad.abs().sum()) * lr
        else:
            _remember(kept, grad, group["history_size"])
            al = state.setdefault("al", [None] * group["history_size"])
            kept["d"], kept["t"] = _direction(kept, al, grad), lr
        if kept["prev_flat_grad"] is None:
            kept["prev_flat_grad"] = grad.clone(memory_format=torch.contiguous_format)
        else:
            kept["prev_flat_grad"].copy_(grad)
        kept["prev_loss"] = loss
        return grad.dot(kept["d"])

    def _move(
        self,
        closure: Any,
        kept: dict[str, Any],
        loss: Any,
        grad: Any,
        slope: Any,
        group: Any,
        allowed: int,
        last: bool,
    ) -> tuple[Any, Any, int]:
        """One update: the loss and the gradient there, and how often the closure was called."""
        d = kept["d"]
        if group["line_search_fn"] is None:
            self._add_grad(kept["t"], d)
            if last:
                return loss, grad, 0
            return _value(closure()), self._gather_flat_grad(), 1
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        x = self._clone_param()
        search = WolfeSearch(
            lambda t: self._directional_evaluate(closure, x, t, d), d, Point(0, loss, grad, slope)
        )
        best = search.run(kept["t"], max_ls=allowed)
        kept["t"] = best.t
        self._add_grad(best.t, d)
        return best.loss, best.grad, search.evaluations


def _remember(kept: dict[str, Any], grad: Any, history_size: int) -> None:
    """Note how the gradient changed with the last step, if that says something of the curvature."""
    y = grad.sub(kept["prev_flat_grad"])
    s = kept["d"].mul(kept["t"])
    ys = y.dot(s)
    if not ys > 1e-10:
        return
    history = (kept["old_dirs"], kept["old_stps"], kept["ro"])
    for entries, entry in zip(history, (y, s, 1.0 / ys), strict=True):
        if len(entries) == history_size:
            entries.pop(0)
        entries.append(entry)
    kept["H_diag"] = ys / y.dot(y)


def _direction(kept: dict[str, Any], al: list[Any], grad: Any) -> Any:
    """The guessed inverse Hessian times the gradient, downwards: two loops over the history."""
    old_dirs, old_stps, ro = kept["old_dirs"], kept["old_stps"], kept["ro"]
    q = grad.neg()
    for i in reversed(range(len(old_dirs))):
        al[i] = old_stps[i].dot(q) * ro[i]
        q.add_(old_dirs[i], alpha=-al[i])
    r = torch.mul(q, kept["H_diag"])
    for i, (y, s) in enumerate(zip(old_dirs, old_stps, strict=True)):
        r.add_(s, alpha=al[i] - y.dot(r) * ro[i])
    return r


def _settled(kept: dict[str, Any], loss: Any, grad: Any, group: Any) -> bool:
    """The gradient is small, or neither the parameters nor the loss changed."""
    return bool(
        grad.abs().max() <= group["tolerance_grad"]
        or kept["d"].mul(kept["t"]).abs().max() <= group["tolerance_change"]
        or abs(loss - kept["prev_loss"]) < group["tolerance_change"]
    )
