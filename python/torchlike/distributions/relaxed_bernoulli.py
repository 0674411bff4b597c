"""Truth values between 0 and 1."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions._odds import Odds
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.transformed_distribution import TransformedDistribution
from torchlike.distributions.transforms import SigmoidTransform
from torchlike.distributions.utils import (
    broadcast_all,
    clamp_probs,
)

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(Odds, Distribution):
    """Log odds of a relaxed truth value."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.real

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        super().__init__(self._take(probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LogitRelaxedBernoulli, _instance)
        new.temperature = self.temperature
        names = {"probs": 0, "logits": 0, "_param": 0}
        return self._expanded(LogitRelaxedBernoulli, batch_shape, new, names)

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(torchlike.rand(shape, dtype=probs.dtype, device=probs.device))
        odds = u.log() - (-u).log1p() + probs.log() - (-probs).log1p()
        return odds / self.temperature

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        diff = logits - value.mul(self.temperature)
        return self.temperature.log() + diff - 2 * diff.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Values between 0 and 1, the nearer to either the lower the temperature is."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(RelaxedBernoulli, _instance))

    @property
    def temperature(self) -> Any:
        """How soft the values are."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Log odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self.base_dist.probs
