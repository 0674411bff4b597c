"""Statistics and special functions that PyTorch makes of other operators."""

from __future__ import annotations

from typing import Any

from torchlike import _C
from torchlike._ops import modes, ops
from torchlike._ops.decompositions import of, reshape

aten: Any = ops.aten


def _number(value: float, dtype: Any, like: Any) -> Any:
    return aten.scalar_tensor(value, dtype=dtype, layout=_C.strided, device=like.device)


def _holds(test: Any) -> bool:
    """Whether a test of one element does, as an operator says it."""
    return bool(
        aten.equal(
            test,
            aten.new_ones(test, [], dtype=_C.bool, layout=_C.strided, device=test.device),
        )
    )


@of("nanmean")
def nanmean(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum without NaN, divided by the number of those that are none."""
    if not self.is_floating_point():
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else dim
    apart = aten.detach(self)
    there = aten.logical_not_(aten.ne.Tensor(apart, apart))
    count = aten.sum.dim_IntList(there, dims, keepdim)
    return aten.div.Tensor(aten.nansum(self, dims, keepdim, dtype=dtype), count)


@of("var", "std", "var_mean", "std_mean")
def spread(
    self: Any,
    unbiased: Any = None,
    dim: Any = None,
    correction: Any = None,
    keepdim: bool = False,
    name: str = "",
) -> Any:
    """The form that says by how much the divisor is corrected."""
    if unbiased is not None:
        correction = int(unbiased)
    if dim is None and correction == 1:
        correction = None
    dims = [dim] if isinstance(dim, int) else dim
    return getattr(aten, name).correction(self, dims, correction=correction, keepdim=keepdim)


@of("cov")
def cov(self: Any, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Products of what deviates from the mean; numbers of observations are tensors."""
    given = [w for w in (fweights, aweights) if w is not None]
    if modes.must_see((self, *given)):
        return NotImplemented  # a graph would hold what the numbers are now
    fits = all(w.dim() <= 1 and w.numel() == (self.shape[-1] if self.dim() else 1) for w in given)
    if self.dim() > 2 or self.dtype == _C.bool or self.is_meta or not fits or not self.numel():
        return NotImplemented
    x = self if self.dim() == 2 else aten.view(self, [1, -1])
    n = x.shape[1]
    if not all(_holds(aten.ge.Scalar(aten.min(w), 0)) for w in given):
        return NotImplemented
    weights = aten.mul.Tensor(*given) if len(given) == 2 else given[0] if given else None
    if weights is None:
        count, rows = _number(n, _C.int64, x), x
    else:
        count = aten.sum(weights)
        if not _holds(aten.ne.Scalar(count, 0)):
            return NotImplemented
        rows = aten.mul.Tensor(x, weights)
    mean = aten.div.Tensor(aten.sum.dim_IntList(rows, [1]), count)
    left = _freedom(x, count, weights, aweights, correction)
    if _holds(aten.le.Scalar(left, 0)):
        return NotImplemented
    x = aten.sub.Tensor(x, aten.unsqueeze(mean, 1))
    turned = aten.t(x if weights is None else aten.mul.Tensor(x, weights))
    if turned.is_complex():
        turned = aten._conj(turned)
    return aten.squeeze(aten.div.Tensor(aten.mm(x, turned), left))


def _freedom(x: Any, count: Any, weights: Any, aweights: Any, correction: int) -> Any:
    """What the products are divided by."""
    if weights is None:
        return _number(x.shape[1] - correction, _C.int64, x)
    if correction == 0:
        return count
    if aweights is None:
        return aten.sub.Scalar(count, correction)
    squares = aten.mul.Scalar(aten.sum(aten.mul.Tensor(weights, aweights)), correction)
    return aten.sub.Tensor(count, aten.div.Tensor(squares, count))


@of("quantile", "nanquantile")
def quantile(
    self: Any,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    name: str = "",
) -> Any:
    """Elements of the sorted input at ranks, and what lies between two."""
    known = ("linear", "lower", "higher", "midpoint", "nearest")
    floats = (_C.float32, _C.float64)
    if self.dtype not in floats or not self.numel() or interpolation not in known:
        return NotImplemented
    if isinstance(q, _C.Tensor):
        if q.dim() > 1 or q.dtype != self.dtype:
            return NotImplemented
    elif 0 <= q <= 1:
        q = _number(q, self.dtype, self)
    else:
        return NotImplemented
    lines = _lines(self, dim, keepdim)
    if name == "nanquantile":
        missing = aten.logical_not_(aten.isnan(lines))
        last = aten.sub.Scalar(aten.sum.dim_IntList(missing, [-1], True), 1)
        ranks = aten.mul.Tensor(q, last)
        ranks = aten.masked_fill_.Scalar(ranks, aten.lt.Scalar(ranks, 0), 0)
    else:
        last = lines.shape[-1] - 1
        ranks = aten.mul.Scalar(q, last)
        some = aten.any.dim(aten.isnan(lines), -1, True)
        shape = [*some.shape[:-1], q.numel()]
        ranks = aten.expand(ranks, shape) if list(ranks.shape) != shape else ranks
        some = aten.expand(some, shape) if list(some.shape) != shape else some
        ranks = aten.masked_fill.Scalar(ranks, some, last)
    found = _between(lines, ranks, interpolation)
    if q.dim() == 0:
        return aten.squeeze_.dim(found, -1)
    return aten.squeeze_.dim(aten.transpose_(aten.unsqueeze_(found, 0), 0, -1), -1)


def _lines(x: Any, dim: int | None, keepdim: bool) -> Any:
    """The elements in order along the last dimension, the others as in the result."""
    n = x.dim()
    if dim is None:
        line = aten.sort(x if n == 1 else reshape(x, [-1]))[0]
        return aten.view(line, [*[1] * (n if keepdim else 0), line.shape[0]])
    d = dim % n if n else 0
    if d + 1 == n:
        line = aten.sort(x)[0]
    else:
        line = aten.sort(aten.transpose.int(aten.unsqueeze(x, -1), d, -1))[0]
    kept = [s for i, s in enumerate(x.shape) if i != d]
    if keepdim:
        kept.insert(d, 1)
    return aten.view(line, [*kept, x.shape[d] if n else 1])


def _between(lines: Any, ranks: Any, how: str) -> Any:
    """What lies at ranks that may be between two elements."""

    def at(places: Any) -> Any:
        how = {"dtype": _C.int64, "layout": _C.strided, "device": places.device}
        return aten._to_copy(places, **how)

    rounded = {"lower": aten.floor_, "higher": aten.ceil_, "nearest": aten.round_}
    if how in rounded:
        return aten.gather(lines, -1, at(rounded[how](ranks)))
    below = at(ranks)
    first = aten.gather(lines, -1, below)
    share = aten.full_like(ranks, 0.5) if how == "midpoint" else aten.sub.Tensor(ranks, below)
    second = aten.gather(lines, -1, at(aten.ceil_(ranks)))
    return aten.lerp_.Tensor(first, second, share)


@of("special.expit")
def expit(self: Any) -> Any:
    """`sigmoid`."""
    return aten.sigmoid(self)


@of("_mvlgamma")
def mvlgamma(self: Any, p: int) -> Any:
    """The operator by its name."""
    return aten.mvlgamma(self, p)


@of("_polygamma")
def polygamma(self: Any, n: int) -> Any:
    """The operator by its name, which takes the order first."""
    return aten.polygamma(n, self)
