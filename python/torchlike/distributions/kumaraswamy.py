"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.transformed_distribution import TransformedDistribution
from torchlike.distributions.transforms import AffineTransform, PowerTransform
from torchlike.distributions.uniform import Uniform
from torchlike.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


def _moments(a: Any, b: Any, n: int) -> Any:
    """The mean of the n-th power."""
    arg = 1 + n / a
    return (
        torchlike.exp(torchlike.lgamma(arg) + torchlike.lgamma(b) - torchlike.lgamma(arg + b)) * b
    )


class Kumaraswamy(TransformedDistribution):
    """Probabilities, much as the beta distribution has them."""

    arg_constraints: Any = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            torchlike.full_like(self.concentration0, 0),
            torchlike.full_like(self.concentration0, 1),
            validate_args=validate_args,
        )
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        new.concentration1 = self.concentration1.expand(batch_shape)
        new.concentration0 = self.concentration0.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    @property
    def mean(self) -> Any:
        return _moments(self.concentration1, self.concentration0, 1)

    @property
    def mode(self) -> Any:
        log_mode = (
            self.concentration0.reciprocal() * (-self.concentration0).log1p()
            - (-self.concentration0 * self.concentration1).log1p()
        )
        log_mode[(self.concentration0 < 1) | (self.concentration1 < 1)] = math.nan
        return log_mode.exp()

    @property
    def variance(self) -> Any:
        square = torchlike.pow(self.mean, 2)
        return _moments(self.concentration1, self.concentration0, 2) - square

    def entropy(self) -> Any:
        t1 = 1 - self.concentration1.reciprocal()
        t0 = 1 - self.concentration0.reciprocal()
        harmonic = torchlike.digamma(self.concentration0 + 1) + euler_constant
        logs = torchlike.log(self.concentration1) + torchlike.log(self.concentration0)
        return t0 + t1 * harmonic - logs
