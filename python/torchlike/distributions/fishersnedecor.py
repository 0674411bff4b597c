"""Fisher's and Snedecor's distribution."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.gamma import Gamma
from torchlike.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared values over their degrees."""

    arg_constraints: Any = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        numbers = isinstance(df1, int | float) and isinstance(df2, int | float)
        batch = torchlike.Size() if numbers else self.df1.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(FisherSnedecor, _instance)
        batch_shape = torchlike.Size(batch_shape)
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)
        return self._expanded(FisherSnedecor, batch_shape, new, {"df1": 0, "df2": 0})

    @property
    def mean(self) -> Any:
        df2 = self.df2.clone(memory_format=torchlike.contiguous_format)
        df2[df2 <= 2] = torchlike.nan
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        mode[self.df1 <= 2] = torchlike.nan
        return mode

    @property
    def variance(self) -> Any:
        df2 = self.df2.clone(memory_format=torchlike.contiguous_format)
        df2[df2 <= 4] = torchlike.nan
        top = 2 * df2.pow(2) * (self.df1 + df2 - 2)
        return top / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        x1 = self._gamma1.rsample(sample_shape).view(shape)
        x2 = self._gamma2.rsample(sample_shape).view(shape)
        x2.clamp_(min=torchlike.finfo(x2.dtype).tiny)
        y = x1 / x2
        y.clamp_(min=torchlike.finfo(x2.dtype).tiny)
        return y

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2 = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        t1 = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        t2 = half1 * ratio.log() + (half1 - 1) * torchlike.log(value)
        t3 = (half1 + half2) * torchlike.log1p(ratio * value)
        return t1 + t2 - t3
