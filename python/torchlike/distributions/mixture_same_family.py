"""Mixtures."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.categorical import Categorical
from torchlike.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Values of one of several distributions, which a categorical one chooses."""

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of torch.distributions.Distribution"
            )
        mixed = mixture_distribution.batch_shape
        batch = component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixed), reversed(batch), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        km = mixture_distribution.logits.shape[-1]
        kc = component_distribution.batch_shape[-1]
        if km is not None and kc is not None and km != kc:
            raise ValueError(
                f"`mixture_distribution component` ({km}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({kc})"
            )
        self._num_component = km
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = torchlike.Size(batch_shape)
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        new._component_distribution = self._component_distribution.expand(
            batch_shape + (self._num_component,)
        )
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        super(MixtureSameFamily, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """What chooses."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """What is chosen from."""
        return self._component_distribution

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Any) -> Any:
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        shape = x.shape
        ones = torchlike.Size(missing * [1])
        return x.reshape(shape[:-1] + ones + shape[-1:] + torchlike.Size(self._event_ndims * [1]))

    @property
    def mean(self) -> Any:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return torchlike.sum(probs * self.component_distribution.mean, dim=-1 - self._event_ndims)

    @property
    def variance(self) -> Any:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        dim = -1 - self._event_ndims
        within = torchlike.sum(probs * self.component_distribution.variance, dim=dim)
        away = self.component_distribution.mean - self._pad(self.mean)
        return within + torchlike.sum(probs * away.pow(2.0), dim=dim)

    def cdf(self, x: Any) -> Any:
        below = self.component_distribution.cdf(self._pad(x))
        return torchlike.sum(below * self.mixture_distribution.probs, dim=-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        inside = self.component_distribution.log_prob(self._pad(x))
        mixed = torchlike.log_softmax(self.mixture_distribution.logits, dim=-1)
        return torchlike.logsumexp(inside + mixed, dim=-1)

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        with torchlike.no_grad():
            sample_len, batch_len = len(sample_shape), len(self.batch_shape)
            gather_dim = sample_len + batch_len
            chosen = self.mixture_distribution.sample(sample_shape)
            shape = chosen.shape
            drawn = self.component_distribution.sample(sample_shape)
            ones = torchlike.Size([1] * (len(self.event_shape) + 1))
            index = chosen.reshape(shape + ones)
            repeats = torchlike.Size([1] * len(shape)) + torchlike.Size([1]) + self.event_shape
            return torchlike.gather(drawn, gather_dim, index.repeat(repeats)).squeeze(gather_dim)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )
