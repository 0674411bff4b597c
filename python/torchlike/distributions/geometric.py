"""The number of failures before a success."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions._odds import Odds
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import (
    broadcast_all,
)
from torchlike.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(Odds, Distribution):
    """How often something of a probability fails before it succeeds."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(self._take(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            valid = value > 0
            if not valid.is_meta and not valid.all():
                invalid = value.data[~valid]
                raise ValueError(
                    "Expected parameter probs "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} "
                    f"to be positive but found invalid values:\n{invalid}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = {"probs": 0, "logits": 0, "_param": 0}
        return self._expanded(Geometric, batch_shape, _instance, names)

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return torchlike.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        with torchlike.no_grad():
            u = self.probs.new(shape).uniform_(torchlike.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.clone(memory_format=torchlike.contiguous_format)
        probs[(probs == 1) & (value == 0)] = 0
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Any:
        entropy = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return entropy / self.probs
