"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.exp_family import ExponentialFamily
from torchlike.distributions.utils import broadcast_all

__all__ = ["Gamma"]

_root: Any = torchlike  # the stub of the module has no private names


def _standard_gamma(concentration: Any) -> Any:
    return _root._standard_gamma(concentration)


class Gamma(ExponentialFamily):
    """Times until several events of a `rate`."""

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure: Any = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        numbers = isinstance(concentration, int | float) and isinstance(rate, int | float)
        batch = torchlike.Size() if numbers else self.concentration.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Gamma, batch_shape, _instance, {"concentration": 0, "rate": 0})

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=torchlike.finfo(value.dtype).tiny)
        return value

    def log_prob(self, value: Any) -> Any:
        value = torchlike.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        return (
            torchlike.xlogy(self.concentration, self.rate)
            + torchlike.xlogy(self.concentration - 1, value)
            - self.rate * value
            - torchlike.lgamma(self.concentration)
        )

    def entropy(self) -> Any:
        return (
            self.concentration
            - torchlike.log(self.rate)
            + torchlike.lgamma(self.concentration)
            + (1.0 - self.concentration) * torchlike.digamma(self.concentration)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration - 1, -self.rate)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return torchlike.lgamma(x + 1) + (x + 1) * torchlike.log(-y.reciprocal())

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return torchlike.special.gammainc(self.concentration, self.rate * value)
