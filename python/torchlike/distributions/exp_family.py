"""Exponential families: the entropy follows from the normaliser."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Densities `exp(t(x) * p - F(p) + k(x))`, with natural parameters `p` and a normaliser `F`."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, by the gradient of the normaliser."""
        result = -self._mean_carrier_measure
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        gradients = torchlike.autograd.grad(normalizer.sum(), parameters, create_graph=True)
        result = result + normalizer
        for p, g in zip(parameters, gradients, strict=True):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
