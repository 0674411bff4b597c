"""Adam for sparse gradients: only the rows that a gradient has are moved."""

from __future__ import annotations

from typing import Any

from torchlike.optim import _common as common
from torchlike.optim import _functional as F
from torchlike.optim.optimizer import Optimizer, ParamsT

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """`Adam` whose averages, too, change only where the sparse gradient has values."""

    _counts = ()

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, common.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        common.check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        every = [
            ([i, j], p)
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
        ]
        sparse = [at for at, p in every if p.is_sparse]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        complexes = [at for at, p in every if p.is_complex()]
        if complexes:
            raise ValueError(
                f"Complex params at indices {complexes}: SparseAdam does not support complex parameters"
            )

    @common.never_recorded
    def step(self, closure: Any = None) -> Any:
        """One update of the parameters."""
        loss = common.losses(closure)
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if not p.grad.is_sparse:
                    raise RuntimeError(
                        "SparseAdam does not support dense gradients, please consider Adam instead"
                    )
                if not self.state[p]:
                    self.state[p].update(
                        step=0, exp_avg=common.zeros(p), exp_avg_sq=common.zeros(p)
                    )
            states = [self.state[p] for p in params]
            for state in states:
                state["step"] += 1
            beta1, beta2 = group["betas"]
            F.sparse_adam(
                params,
                [p.grad for p in params],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [state["step"] for state in states],
                eps=group["eps"],
                beta1=beta1,
                beta2=beta2,
                lr=common._to_scalar(group["lr"]),
                maximize=group["maximize"],
            )
        return loss
