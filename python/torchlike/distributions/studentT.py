"""Student's distribution."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.chi2 import Chi2
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A normal value over the square root of an independent chi-squared one of `df` degrees."""

    arg_constraints: Any = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Any = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(StudentT, _instance)
        new._chi2 = self._chi2.expand(torchlike.Size(batch_shape))
        return self._expanded(StudentT, batch_shape, new, {"df": 0, "loc": 0, "scale": 0})

    @property
    def mean(self) -> Any:
        m = self.loc.clone(memory_format=torchlike.contiguous_format)
        m[self.df <= 1] = math.nan
        return m

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        m = self.df.clone(memory_format=torchlike.contiguous_format)
        large = self.df > 2
        m[large] = self.scale[large].pow(2) * self.df[large] / (self.df[large] - 2)
        m[(self.df <= 2) & (self.df > 1)] = math.inf
        m[self.df <= 1] = math.nan
        return m

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        x = _standard_normal(shape, dtype=self.df.dtype, device=self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * torchlike.rsqrt(z / self.df))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        norm = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + torchlike.lgamma(0.5 * self.df)
            - torchlike.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * torchlike.log1p(y**2.0 / self.df) - norm

    def entropy(self) -> Any:
        beta = (
            torchlike.lgamma(0.5 * self.df)
            + math.lgamma(0.5)
            - torchlike.lgamma(0.5 * (self.df + 1))
        )
        change = torchlike.digamma(0.5 * (self.df + 1)) - torchlike.digamma(0.5 * self.df)
        return self.scale.log() + 0.5 * (self.df + 1) * change + 0.5 * self.df.log() + beta
