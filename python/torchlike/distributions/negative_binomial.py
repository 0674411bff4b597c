"""The number of successes before failures."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions._odds import Odds
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.gamma import Gamma
from torchlike.distributions.utils import (
    lazy_property,
)

__all__ = ["NegativeBinomial"]


class NegativeBinomial(Odds, Distribution):
    """How often something of a probability succeeds before it fails `total_count` times."""

    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support: Any = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        batch = self._take(probs, logits, total_count)
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = {"total_count": 0, "probs": 0, "logits": 0, "_param": 0}
        return self._expanded(NegativeBinomial, batch_shape, _instance, names)

    @property
    def mean(self) -> Any:
        return self.total_count * torchlike.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / torchlike.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        # the counts are Poisson of a rate that is gamma distributed
        return Gamma(
            concentration=self.total_count, rate=torchlike.exp(-self.logits), validate_args=False
        )

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        with torchlike.no_grad():
            return torchlike.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        log = torchlike.nn.functional.logsigmoid
        unnormalized = self.total_count * log(-self.logits) + value * log(self.logits)
        norm = (
            -torchlike.lgamma(self.total_count + value)
            + torchlike.lgamma(1.0 + value)
            + torchlike.lgamma(self.total_count)
        )
        norm = norm.masked_fill(self.total_count + value == 0.0, 0.0)
        return unnormalized - norm
