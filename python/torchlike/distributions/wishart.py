"""The Wishart distribution of positive definite matrices.

Source: Bartlett's decomposition, as in Smith and Hocking, "Wishart variate generator" (1972).
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.chi2 import Chi2
from torchlike.distributions.exp_family import ExponentialFamily
from torchlike.distributions.multivariate_normal import _precision_to_scale_tril
from torchlike.distributions.utils import lazy_property

__all__ = ["Wishart"]


def _mvdigamma(x: Any, p: int) -> Any:
    """The multivariate digamma function."""
    steps = torchlike.arange(p, dtype=x.dtype, device=x.device).div(2)
    return torchlike.digamma(x.unsqueeze(-1) - steps.expand(x.shape + (-1,))).sum(-1)


class Wishart(ExponentialFamily):
    """Sums of `df` outer products of normal vectors with a covariance, its inverse, or its Cholesky factor."""

    support: Any = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure: Any = 0

    @property
    def arg_constraints(self) -> Any:
        """What the parameters may be."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        chosen = [(name, value) for name, value in given.items() if value is not None]
        if len(chosen) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        name, matrix = chosen[0]
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch dimensions"
            )
        if isinstance(df, int | float):
            batch = torchlike.Size(matrix.shape[:-2])
            self.df = torchlike.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch = torchlike.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch)
        event = matrix.shape[-2:]
        if self.df.le(event[-1] - 1).any():
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}."
            )
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        if self.df.lt(event[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch, event, validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = torchlike.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)
        steps = torchlike.arange(event[-1], dtype=matrix.dtype, device=matrix.device)
        self._dist_chi2 = Chi2(df=self.df.unsqueeze(-1) - steps.expand(batch + (-1,)))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        batch_shape = torchlike.Size(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new._event_shape = self._event_shape
        steps = torchlike.arange(self._event_shape[-1], dtype=self.df.dtype, device=self.df.device)
        df = self.df.expand(batch_shape)
        new._dist_chi2 = Chi2(df=df.unsqueeze(-1) - steps.expand(batch_shape + (-1,)))
        names = {"df": 0, "covariance_matrix": 2, "scale_tril": 2, "precision_matrix": 2}
        return self._expanded(Wishart, batch_shape, new, names)

    def _wide(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._wide(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance of the vectors."""
        tril = self._unbroadcasted_scale_tril
        return self._wide(torchlike.matmul(tril, tril.mT))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        tril = self._unbroadcasted_scale_tril
        eye = torchlike.eye(self._event_shape[-1], dtype=tril.dtype, device=tril.device)
        return self._wide(torchlike.cholesky_solve(eye, tril))

    def _each(self, numbers: Any) -> Any:
        return numbers.view(self._batch_shape + (1, 1))

    @property
    def mean(self) -> Any:
        return self._each(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = torchlike.where(factor <= 0, math.nan, factor)
        return self._each(factor) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._each(self.df) * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = torchlike.Size()) -> Any:
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        i, j = torchlike.tril_indices(row=p, col=p, offset=-1)
        shape = torchlike.Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,)
        noise[..., i, j] = torchlike.randn(shape, dtype=noise.dtype, device=noise.device)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = torchlike.Size(), max_try_correction: Any = None) -> Any:
        tries = 10 if max_try_correction is None else max_try_correction
        sample = self._bartlett_sampling(torchlike.Size(sample_shape))
        # PyTorch draws once more what is right at first, and the same numbers have to follow.
        self._draw_again(sample, ~self._singular(sample), tries)
        singular = self._singular(sample)
        if singular.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            self._draw_again(sample, singular, tries)
        return sample

    def _singular(self, sample: Any) -> Any:
        """Which draws rounding made singular, if only one of a batch."""
        singular = ~self.support.check(sample)
        batch = [-(d + 1) for d in range(len(self._batch_shape))]
        return singular.amax(batch) if batch else singular

    def _draw_again(self, sample: Any, places: Any, tries: int) -> None:
        """Other draws in these places, until none of them is singular."""
        for _ in range(tries):
            if not places.any():
                return
            again = self._bartlett_sampling(places[places].shape)
            sample[places] = again
            places[places.clone()] = self._singular(again)

    def _half_logdet(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        solved = torchlike.cholesky_solve(value, self._unbroadcasted_scale_tril)
        return (
            -nu * (p * math.log(2.0) / 2.0 + self._half_logdet())
            - torchlike.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * torchlike.linalg.slogdet(value)[1]
            - solved.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / 2
        )

    def entropy(self) -> Any:
        nu, p = self.df, self._event_shape[-1]
        return (
            (p + 1) * (p * math.log(2.0) / 2 + self._half_logdet())
            + torchlike.mvlgamma(nu / 2, p=p)
            - (nu - p - 1) / 2 * _mvdigamma(nu / 2, p=p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = self._event_shape[-1]
        inner = -torchlike.linalg.slogdet(-2 * x)[1] + p * math.log(2.0)
        return (y + (p + 1) / 2) * inner + torchlike.mvlgamma(y + (p + 1) / 2, p=p)
