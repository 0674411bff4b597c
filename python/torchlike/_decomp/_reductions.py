"""Sums and their kind in core operators."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._decomp._made import filled_like
from torchlike._decomp._table import aten, chosen, core, in_single, wrapped


@core("sum.default")
def sum_(self: Any, *, dtype: Any = None) -> Any:
    """Over no dimension in particular."""
    return aten.sum.dim_IntList(self, [], dtype=dtype)


def _degrees(correction: Any) -> float:
    return 1.0 if correction is None else float(correction)


@core("std.correction")
@in_single
def std(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The root of the variance."""
    how = {"correction": _degrees(correction), "keepdim": keepdim}
    return aten.sqrt.default(aten.var.correction(self, dim, **how))


@core("std_mean.correction")
@in_single
def std_mean(self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The root of the variance, and the mean."""
    how = {"correction": _degrees(correction), "keepdim": keepdim}
    var, mean = aten.var_mean.correction(self, dim, **how)
    return aten.sqrt.default(var), mean


@core("logsumexp.default")
@in_single
def logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    """The logarithm of a sum of exponentials."""
    dim = [dim] if isinstance(dim, int) else list(dim)
    if self.numel() == 0:
        return NotImplemented
    most = aten.amax.default(self, dim, True)
    most = chosen(aten.eq.Scalar(aten.abs.default(most), float("inf")), 0.0, most)
    back = most if keepdim else aten.squeeze.dims(most, dim)
    exp = aten.exp.default(aten.sub.Tensor(self, most))
    return aten.add.Tensor(aten.log.default(aten.sum.dim_IntList(exp, dim, keepdim)), back)


@core("all.default")
def all_(self: Any) -> Any:
    """Whether none is false."""
    none = aten.any.dims(aten.logical_not.default(self))
    return aten.logical_not.default(none)


@core("all.dim")
def all_dim(self: Any, dim: int, keepdim: bool = False) -> Any:
    """Whether none is false along a dimension."""
    none = aten.any.dim(aten.logical_not.default(self), dim, keepdim)
    return aten.logical_not.default(none)


@core("all.dims")
def all_dims(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether none is false along dimensions."""
    none = aten.any.dims(aten.logical_not.default(self), dim, keepdim)
    return aten.logical_not.default(none)


@core("aminmax.default")
def aminmax(self: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The least and the greatest."""
    dims = [] if dim is None else [dim]
    return aten.amin.default(self, dims, keepdim), aten.amax.default(self, dims, keepdim)


@core("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(self: Any, dim: Any = None) -> Any:
    """How many are not zero."""
    dim = [dim] if isinstance(dim, int) else dim
    return aten.sum.dim_IntList(aten.ne.Scalar(self, 0), dim)


@core("nansum.default")
def nansum(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of what is a number."""
    dim = [dim] if isinstance(dim, int) else dim
    known = chosen(aten.isnan.default(self), 0, self)
    return aten.sum.dim_IntList(known, dim, keepdim, dtype=dtype)


@core("norm.Scalar")
def norm(self: Any, p: Any = 2) -> Any:
    """Of all elements."""
    return aten.linalg_vector_norm.default(self, p)


@core("norm.ScalarOpt_dim")
def norm_dim(self: Any, p: Any, dim: Any, keepdim: bool = False) -> Any:
    """Along dimensions."""
    return aten.linalg_vector_norm.default(self, 2 if p is None else p, dim, keepdim)


@core("renorm.default")
@in_single
def renorm(self: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    """Slices that are no longer than a number."""
    dim = wrapped(dim, self.dim())
    rest = [d for d in range(self.dim()) if d != dim]
    long = aten.linalg_vector_norm.default(self, p, rest, True)
    far = aten.gt.Scalar(long, maxnorm)
    shorter = aten.reciprocal.default(aten.add.Tensor(long, 1e-7))
    factor = chosen(far, aten.mul.Tensor(shorter, maxnorm), 1.0)
    return aten.mul.Tensor(self, factor)


@core("trace.default")
def trace(self: Any) -> Any:
    """The sum of the diagonal."""
    diagonal = aten.diagonal.default(self)
    return sum_(aten.clone.default(diagonal, memory_format=torchlike.contiguous_format))


@core("_safe_softmax.default")
def safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    """Softmax that is zero where all is minus infinity."""
    made = aten._softmax.default(self, dim, False)
    masked = aten.eq.Scalar(self, -float("inf"))
    some = aten.any.dim(aten.logical_not.default(masked), dim, True)
    return aten.where.self(aten.logical_not.default(some), filled_like(made, 0), made)
