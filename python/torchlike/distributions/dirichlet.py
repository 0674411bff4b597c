"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]

_root: Any = torchlike  # the stub of the module has no private names


class _Dirichlet(torchlike.autograd.Function):
    """Samples with the gradient by their parameters."""

    @staticmethod
    def forward(ctx: Any, concentration: Any) -> Any:
        x = _root._sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, True).expand_as(concentration)
        by_parameter = _root._dirichlet_grad(x, concentration, total)
        return by_parameter * (grad - (x * grad).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """Vectors of probabilities."""

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(
            concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Dirichlet, batch_shape, _instance, {"concentration": 1})

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return _Dirichlet.apply(self.concentration.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (
            torchlike.xlogy(self.concentration - 1.0, value).sum(-1)
            + torchlike.lgamma(self.concentration.sum(-1))
            - torchlike.lgamma(self.concentration).sum(-1)
        )

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        flat = (self.concentration < 1).all(dim=-1)
        mode[flat] = torchlike.nn.functional.one_hot(mode[flat].argmax(dim=-1), above.shape[-1]).to(
            mode
        )
        return mode

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        k = self.concentration.size(-1)
        total = self.concentration.sum(-1)
        return (
            torchlike.lgamma(self.concentration).sum(-1)
            - torchlike.lgamma(total)
            - (k - total) * torchlike.digamma(total)
            - ((self.concentration - 1.0) * torchlike.digamma(self.concentration)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - torchlike.lgamma(x.sum(-1))
