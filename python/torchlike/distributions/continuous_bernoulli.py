"""The continuous Bernoulli distribution.

Source: Loaiza-Ganem and Cunningham, "The continuous Bernoulli: fixing a pervasive error in variational autoencoders"
(2019).
"""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.exp_family import ExponentialFamily
from torchlike.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ExponentialFamily):
    """Numbers between 0 and 1, the larger the likelier (or the smaller) by one parameter.

    Between the `lims`, where formulas divide by about zero, Taylor series stand for them.
    """

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    _mean_carrier_measure: Any = 0
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = logits if probs is None else probs
        (value,) = broadcast_all(given)
        if probs is not None:
            inside = constraints.unit_interval.check(value).all()
            if validate_args is not None and not inside:
                raise ValueError("The parameter probs has invalid values")
            value = clamp_probs(value)
            self.probs = value
        else:
            self.logits = value
        self._param = value
        self._lims = lims
        batch = torchlike.Size() if isinstance(given, int | float) else value.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ContinuousBernoulli, _instance)
        new._lims = self._lims
        names = {"probs": 0, "logits": 0, "_param": 0}
        return self._expanded(ContinuousBernoulli, batch_shape, new, names)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> Any:
        """Log odds of the parameter."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The parameter between 0 and 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._param.size()

    def _steep(self) -> Any:
        """Where the formulas hold."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Any:
        """The parameter where the formulas hold, and another elsewhere."""
        edge = self._lims[0] * torchlike.ones_like(self.probs)
        return torchlike.where(self._steep(), self.probs, edge)

    def _log_norm(self) -> Any:
        cut = self._cut()
        below = torchlike.where(cut <= 0.5, cut, torchlike.zeros_like(cut))
        above = torchlike.where(cut >= 0.5, cut, torchlike.ones_like(cut))
        size = torchlike.log(torchlike.abs(torchlike.log1p(-cut) - torchlike.log(cut)))
        found = size - torchlike.where(
            cut <= 0.5, torchlike.log1p(-2.0 * below), torchlike.log(2.0 * above - 1.0)
        )
        x = torchlike.pow(self.probs - 0.5, 2)
        taylor = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return torchlike.where(self._steep(), found, taylor)

    @property
    def mean(self) -> Any:
        cut = self._cut()
        found = cut / (2.0 * cut - 1.0) + 1.0 / (torchlike.log1p(-cut) - torchlike.log(cut))
        x = self.probs - 0.5
        taylor = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * torchlike.pow(x, 2)) * x
        return torchlike.where(self._steep(), found, taylor)

    @property
    def stddev(self) -> Any:
        return torchlike.sqrt(self.variance)

    @property
    def variance(self) -> Any:
        cut = self._cut()
        apart = torchlike.log1p(-cut) - torchlike.log(cut)
        found = cut * (cut - 1.0) / torchlike.pow(1.0 - 2.0 * cut, 2) + 1.0 / torchlike.pow(
            apart, 2
        )
        x = torchlike.pow(self.probs - 0.5, 2)
        taylor = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return torchlike.where(self._steep(), found, taylor)

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        with torchlike.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torchlike.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        entropy = torchlike.nn.functional.binary_cross_entropy_with_logits(
            logits, value, reduction="none"
        )
        return -entropy + self._log_norm()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        cut = self._cut()
        powers = torchlike.pow(cut, value) * torchlike.pow(1.0 - cut, 1.0 - value)
        found = (powers + cut - 1.0) / (2.0 * cut - 1.0)
        inside = torchlike.where(self._steep(), found, value)
        rest = torchlike.where(value >= 1.0, torchlike.ones_like(inside), inside)
        return torchlike.where(value <= 0.0, torchlike.zeros_like(inside), rest)

    def icdf(self, value: Any) -> Any:
        cut = self._cut()
        low = torchlike.log1p(-cut)
        found = (torchlike.log1p(-cut + value * (2.0 * cut - 1.0)) - low) / (
            torchlike.log(cut) - low
        )
        return torchlike.where(self._steep(), found, value)

    def entropy(self) -> Any:
        zero, one = torchlike.log1p(-self.probs), torchlike.log(self.probs)
        return self.mean * (zero - one) - self._log_norm() - zero

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        steep = (x <= low) | (x > high)
        cut = torchlike.where(steep, x, low * torchlike.ones_like(x))
        found = torchlike.log(torchlike.abs(torchlike.special.expm1(cut))) - torchlike.log(
            torchlike.abs(cut)
        )
        taylor = 0.5 * x + torchlike.pow(x, 2) / 24.0 - torchlike.pow(x, 4) / 2880.0
        return torchlike.where(steep, found, taylor)
