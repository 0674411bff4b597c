"""The distribution of truth values."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions._odds import Odds
from torchlike.distributions.exp_family import ExponentialFamily
from torchlike.distributions.utils import (
    broadcast_all,
)
from torchlike.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


class Bernoulli(Odds, ExponentialFamily):
    """1 with a probability, else 0."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure: Any = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(self._take(probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = {"probs": 0, "logits": 0, "_param": 0}
        return self._expanded(Bernoulli, batch_shape, _instance, names)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        mode = (self.probs >= 0.5).to(self.probs)
        mode[self.probs == 0.5] = math.nan
        return mode

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        with torchlike.no_grad():
            return torchlike.bernoulli(self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = torchlike.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (torchlike.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Any:
        return torchlike.log1p(torchlike.exp(x))
