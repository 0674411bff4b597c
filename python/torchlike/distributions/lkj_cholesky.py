"""Cholesky factors of random correlation matrices.

Source: Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion
method" (2009).
"""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.beta import Beta
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower Cholesky factors of correlation matrices, nearer to the identity the larger `concentration` is."""

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        marginal = self.concentration + 0.5 * (dim - 2)
        options = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        steps = torchlike.arange(dim - 1, **options)
        steps = torchlike.cat([steps.new_zeros((1,)), steps])
        self._beta = Beta(steps + 0.5, marginal.unsqueeze(-1) - 0.5 * steps)
        super().__init__(
            self.concentration.size(), torchlike.Size((dim, dim)), validate_args=validate_args
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = torchlike.Size(batch_shape)
        new = self._get_checked_instance(LKJCholesky, _instance)
        new.dim = self.dim
        new._beta = self._beta.expand((*batch_shape, self.dim))
        return self._expanded(LKJCholesky, batch_shape, new, {"concentration": 0})

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        with torchlike.no_grad():
            # The onion method: a row has a length and a direction.
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            directions = torchlike.randn(shape, dtype=y.dtype, device=y.device).tril(-1)
            directions = directions / directions.norm(dim=-1, keepdim=True)
            directions[..., 0, :].fill_(0.0)
            w = torchlike.sqrt(y) * directions
            least = torchlike.finfo(w.dtype).tiny
            diagonal = torchlike.clamp(1 - torchlike.sum(w**2, dim=-1), min=least).sqrt()
            return w + torchlike.diag_embed(diagonal)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = torchlike.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        found = torchlike.sum(order * diagonal.log(), dim=-1)
        less = self.dim - 1
        alpha = self.concentration + 0.5 * less
        norm = (
            0.5 * less * math.log(math.pi)
            + torchlike.mvlgamma(alpha - 0.5, less)
            - torchlike.lgamma(alpha) * less
        )
        return found - norm
