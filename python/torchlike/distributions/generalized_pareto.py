"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Values from `loc` on, how far above it by a `scale`; the larger `concentration` is, the heavier the tail."""

    arg_constraints: Any = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        numbers = all(isinstance(v, int | float) for v in (loc, scale, concentration))
        batch = torchlike.Size() if numbers else self.loc.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = {"loc": 0, "scale": 0, "concentration": 0}
        return self._expanded(GeneralizedPareto, batch_shape, _instance, names)

    def _flat(self) -> Any:
        """Where the distribution is an exponential one, and a concentration that can be divided by."""
        flat = torchlike.isclose(self.concentration, self.concentration.new_zeros(()))
        return flat, torchlike.where(
            flat, torchlike.ones_like(self.concentration), self.concentration
        )

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torchlike.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        flat, safe = self._flat()
        steep = (1 / safe + 1) * torchlike.log1p(safe * z)
        return -self.scale.log() - torchlike.where(flat, z, steep)

    def log_survival_function(self, value: Any) -> Any:
        """The logarithm of the probability of more than `value`."""
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        flat, safe = self._flat()
        return -torchlike.where(flat, z, torchlike.log1p(safe * z) / safe)

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of the probability of at most `value`."""
        return torchlike.log1p(-torchlike.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return torchlike.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        flat, safe = self._flat()
        log = torchlike.log1p(-value)
        steep = torchlike.expm1(-safe * log) / safe
        return self.loc + self.scale * torchlike.where(flat, -log, steep)

    @property
    def mean(self) -> Any:
        known = self.concentration < 1
        safe = torchlike.where(known, self.concentration, 0.5)
        return torchlike.where(known, self.loc + self.scale / (1 - safe), math.nan)

    @property
    def variance(self) -> Any:
        known = self.concentration < 0.5
        safe = torchlike.where(known, self.concentration, 0.25)
        return torchlike.where(known, self.scale**2 / ((1 - safe) ** 2 * (1 - 2 * safe)), math.nan)

    def entropy(self) -> Any:
        found = torchlike.log(self.scale) + self.concentration + 1
        return torchlike.broadcast_to(found, self._batch_shape)

    @property
    def mode(self) -> Any:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = self.loc - self.scale / self.concentration
        bounded = torchlike.where(self.concentration < 0, upper, math.inf)
        return constraints.interval(self.loc, bounded)
