"""Counts of draws."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.binomial import Binomial
from torchlike.distributions.categorical import Categorical
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each of several outcomes occurs in `total_count` draws."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial: Any = None
        super().__init__(
            self._categorical.batch_shape,
            self._categorical.param_shape[-1:],
            validate_args=validate_args,
        )

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        batch_shape = torchlike.Size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        super(Multinomial, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    @property
    def _param(self) -> Any:
        return self._categorical._param

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        sample_shape = torchlike.Size(sample_shape)
        drawn = self._categorical.sample(torchlike.Size((self.total_count,)) + sample_shape)
        drawn = drawn.permute([*range(1, drawn.dim()), 0])
        counts = drawn.new(self._extended_shape(sample_shape)).zero_()
        counts.scatter_add_(-1, drawn, torchlike.ones_like(drawn))
        return counts.type_as(self.probs)

    def entropy(self) -> Any:
        n = torchlike.tensor(self.total_count)
        counts = Binomial(total_count=n, probs=self.probs).enumerate_support(expand=False)[1:]
        weights = torchlike.exp(Binomial(total_count=n, probs=self.probs).log_prob(counts))
        weights = (weights * torchlike.lgamma(counts + 1)).sum([0, -1])
        return n * self._categorical.entropy() - torchlike.lgamma(n + 1) + weights

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.clone(memory_format=torchlike.contiguous_format)
        orders = torchlike.lgamma(value.sum(-1) + 1) - torchlike.lgamma(value + 1).sum(-1)
        logits[(value == 0) & (logits == -math.inf)] = 0
        return orders + (logits * value).sum(-1)
