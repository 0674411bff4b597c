"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]


def _batch_mahalanobis(bL: Any, bx: Any) -> Any:
    """Squared lengths of `inv(L) @ x`, where both have batches."""
    n = bx.size(-1)
    batch = torchlike.broadcast_shapes(bL.shape[:-2], bx.shape[:-1])
    solved = torchlike.linalg.solve_triangular(
        bL.expand((*batch, n, n)), bx.expand((*batch, n)).unsqueeze(-1), upper=False
    )
    return solved.squeeze(-1).pow(2).sum(-1)


def _batch_mv(bmat: Any, bvec: Any) -> Any:
    """Products of matrices and vectors, where both have batches."""
    return torchlike.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


def _precision_to_scale_tril(P: Any) -> Any:
    """The Cholesky factor of a matrix's inverse."""
    turned = torchlike.linalg.cholesky(torchlike.flip(P, (-2, -1)))
    upper = torchlike.transpose(torchlike.flip(turned, (-2, -1)), -2, -1)
    eye = torchlike.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return torchlike.linalg.solve_triangular(upper, eye, upper=False)


class MultivariateNormal(Distribution):
    """Vectors around `loc` with a covariance, its inverse, or its Cholesky factor."""

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "scale_tril": scale_tril,
            "precision_matrix": precision_matrix,
        }
        chosen = [(name, value) for name, value in given.items() if value is not None]
        if len(chosen) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        name, matrix = chosen[0]
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = torchlike.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        self.loc = loc.expand(batch + (-1,))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = torchlike.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        names = {"loc": 1, "covariance_matrix": 2, "scale_tril": 2, "precision_matrix": 2}
        return self._expanded(MultivariateNormal, batch_shape, new, names)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        shape = self._batch_shape + self._event_shape + self._event_shape
        return self._unbroadcasted_scale_tril.expand(shape)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        product = torchlike.matmul(
            self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT
        )
        return product.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        inverse = torchlike.cholesky_inverse(self._unbroadcasted_scale_tril)
        return inverse.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        squares = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squares.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def _half_log_det(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        size = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (size + distance) - self._half_log_det()

    def entropy(self) -> Any:
        size = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        found = 0.5 * size + self._half_log_det()
        return found if len(self._batch_shape) == 0 else found.expand(self._batch_shape)
