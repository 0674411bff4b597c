"""Normal distributions of vectors whose covariance is a diagonal and a matrix of low rank.

Formulas: the lemmas of Woodbury and of the matrix determinant.
"""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv
from torchlike.distributions.utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _with_ones(k: Any) -> Any:
    """A matrix with one added to its diagonal."""
    return k + torchlike.eye(k.shape[-1], dtype=k.dtype, device=k.device)


def _batch_capacitance_tril(w: Any, d: Any) -> Any:
    """The Cholesky factor of `I + W.T inv(D) W`."""
    return torchlike.linalg.cholesky(_with_ones(torchlike.matmul(w.mT / d.unsqueeze(-2), w)))


def _batch_lowrank_logdet(w: Any, d: Any, capacitance: Any) -> Any:
    """The logarithm of the determinant of `W W.T + D`."""
    inner = 2 * capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return inner + d.log().sum(-1)


def _batch_lowrank_mahalanobis(w: Any, d: Any, x: Any, capacitance: Any) -> Any:
    """`x.T inv(W W.T + D) x`."""
    inner = _batch_mv(w.mT / d.unsqueeze(-2), x)
    return (x.pow(2) / d).sum(-1) - _batch_mahalanobis(capacitance, inner)


class LowRankMultivariateNormal(Distribution):
    """Vectors around `loc` of covariance `cov_factor @ cov_factor.T + diag(cov_diag)`."""

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            parts = (loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
            column, self.cov_factor, diagonal = torchlike.broadcast_tensors(parts)
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_diag = column[..., 0], diagonal[..., 0]
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(self.loc.shape[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        batch_shape = torchlike.Size(batch_shape)
        new.cov_factor = self.cov_factor.expand(batch_shape + self.cov_factor.shape[-2:])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return self._expanded(
            LowRankMultivariateNormal, batch_shape, new, {"loc": 1, "cov_diag": 1}
        )

    def _wide(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The variances of the components."""
        found = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return found.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = _with_ones(torchlike.matmul(scaled, scaled.mT))
        return self._wide(root * torchlike.linalg.cholesky(inner))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        w = self._unbroadcasted_cov_factor
        product = torchlike.matmul(w, w.mT)
        return self._wide(product + torchlike.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        a = torchlike.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        inverse = torchlike.diag_embed(self._unbroadcasted_cov_diag.reciprocal())
        return self._wide(inverse - torchlike.matmul(a.mT, a))

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        options = {"dtype": self.loc.dtype, "device": self.loc.device}
        inner = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], **options)
        own = _standard_normal(shape, **options)
        return (
            self.loc
            + _batch_mv(self._unbroadcasted_cov_factor, inner)
            + self._unbroadcasted_cov_diag.sqrt() * own
        )

    def _logdet(self) -> Any:
        return _batch_lowrank_logdet(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        )

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = _batch_lowrank_mahalanobis(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._logdet() + distance)

    def entropy(self) -> Any:
        found = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._logdet())
        return found if len(self._batch_shape) == 0 else found.expand(self._batch_shape)
