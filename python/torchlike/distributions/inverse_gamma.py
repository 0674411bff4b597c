"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.gamma import Gamma
from torchlike.distributions.transformed_distribution import TransformedDistribution
from torchlike.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """Reciprocals of gamma values."""

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        minus = -base.rate.new_ones(())
        super().__init__(base, PowerTransform(minus), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(InverseGamma, _instance))

    @property
    def concentration(self) -> Any:
        """Of the gamma values."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """Of the gamma values."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        result = self.rate / (self.concentration - 1)
        return torchlike.where(self.concentration > 1, result, torchlike.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        result = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return torchlike.where(self.concentration > 2, result, torchlike.inf)

    def entropy(self) -> Any:
        return (
            self.concentration
            + self.rate.log()
            + self.concentration.lgamma()
            - (1 + self.concentration) * self.concentration.digamma()
        )
