"""Transforms of vectors and matrices, and of parts of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.transforms import Transform, _at_home
from torchlike.distributions.utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence


def _checked(shape: Any, dims: int) -> Any:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")
    return shape


@_at_home
class StickBreakingTransform(Transform):
    """Vectors as probabilities, each a share of what the ones before have left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    @staticmethod
    def _offset(x: Any, n: int) -> Any:
        return n - x.new_ones(x.shape[-1]).cumsum(-1)

    def _call(self, x: Any) -> Any:
        pad = torchlike.nn.functional.pad
        finfo = torchlike.finfo(x.dtype)
        z = torchlike.sigmoid(x - self._offset(x, x.shape[-1] + 1).log())
        z = z.clamp(min=finfo.tiny, max=1.0 - finfo.eps)
        left = (1 - z).cumprod(-1)
        return pad(z, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        offset = y.shape[-1] - head.new_ones(head.shape[-1]).cumsum(-1)
        left = (1 - head.cumsum(-1)).clamp(min=torchlike.finfo(y.dtype).tiny)
        return head.log() - left.log() + offset.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x, x.shape[-1] + 1).log()
        return (-x + torchlike.nn.functional.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return _checked(shape, 1)[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Any) -> Any:
        return _checked(shape, 1)[:-1] + (shape[-1] - 1,)


@_at_home
class CorrCholeskyTransform(Transform):
    """Vectors as Cholesky factors of correlation matrices."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        x = torchlike.tanh(x)
        eps = torchlike.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.clamp(min=-1 + eps, max=1 - eps), diag=-1)
        squares = r**2
        left = (1 - squares).sqrt().cumprod(-1)
        r = r + torchlike.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * torchlike.nn.functional.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - torchlike.cumsum(y * y, dim=-1)
        left = torchlike.nn.functional.pad(left[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        left = 1 - (y * y).cumsum(dim=-1)
        first = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        softplus = torchlike.nn.functional.softplus
        second = -2 * (x + softplus(-2 * x) - 0.6931471805599453).sum(dim=-1)
        return first + second

    def forward_shape(self, shape: Any) -> Any:
        _checked(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (n, n)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


@_at_home
class LowerCholeskyTransform(Transform):
    """Matrices as lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


@_at_home
class PositiveDefiniteTransform(Transform):
    """Matrices as positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        x = LowerCholeskyTransform()(x)
        return x @ x.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(torchlike.linalg.cholesky(y))


@_at_home
class CatTransform(Transform):
    """Transforms of parts of a dimension."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError("there must be a length for each transform")
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """How long the dimension is."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value: Any) -> Any:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} is out of range for x.dim()={value.dim()}")
        if value.size(self.dim) != self.length:
            raise AssertionError(
                f"x.size({self.dim}) = {value.size(self.dim)} must equal length {self.length}"
            )
        start = 0
        for transform, length in zip(self.transforms, self.lengths, strict=True):
            yield transform, value.narrow(self.dim, start, length)
            start += length

    def _call(self, x: Any) -> Any:
        return torchlike.cat([t(part) for t, part in self._parts(x)], dim=self.dim)

    def _inverse(self, y: Any) -> Any:
        return torchlike.cat([t.inv(part) for t, part in self._parts(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        terms = []
        for (t, a), (_, b) in zip(self._parts(x), self._parts(y), strict=True):
            term = t.log_abs_det_jacobian(a, b)
            if t.event_dim < self.event_dim:
                term = _sum_rightmost(term, self.event_dim - t.event_dim)
            terms.append(term)
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return torchlike.cat(terms, dim=dim) if dim < 0 else sum(terms)

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


@_at_home
class StackTransform(Transform):
    """Transforms of the slices along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _slices(self, z: Any) -> list[Any]:
        if not -z.dim() <= self.dim < z.dim():
            raise AssertionError(f"dim {self.dim} is out of range for x.dim()={z.dim()}")
        if z.size(self.dim) != len(self.transforms):
            raise AssertionError(
                f"x.size({self.dim}) = {z.size(self.dim)} must equal len(transforms) {len(self.transforms)}"
            )
        return [z.select(self.dim, i) for i in range(z.size(self.dim))]

    def _call(self, x: Any) -> Any:
        parts = zip(self._slices(x), self.transforms, strict=True)
        return torchlike.stack([t(part) for part, t in parts], dim=self.dim)

    def _inverse(self, y: Any) -> Any:
        parts = zip(self._slices(y), self.transforms, strict=True)
        return torchlike.stack([t.inv(part) for part, t in parts], dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self._slices(x), self._slices(y), self.transforms, strict=True)
        return torchlike.stack([t.log_abs_det_jacobian(a, b) for a, b, t in parts], dim=self.dim)

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


@_at_home
class CumulativeDistributionTransform(Transform):
    """Values as their cumulated probabilities."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)
