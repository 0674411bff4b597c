"""Reductions and normalisations of the elements that a mask lets through.

A masked element counts as the identity of the operation: 0 for a sum, minus infinity for a maximum. A row without any
element gives that identity, or NaN where there is none. Masks are truth values that broadcast to the input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import torchlike as torch
from torchlike import Tensor
from torchlike import dtype as _dtype
from torchlike.masked import _sparse
from torchlike.nn import functional as F

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_P = ParamSpec("_P")
_Dims = int | Sequence[int] | None
_SMALL = {torch.uint8, torch.bool, torch.int8, torch.int16, torch.int32}
_LEAST = {"amax", "argmax", "logsumexp", "logaddexp", "softmax", "log_softmax"}
_GREATEST = {"amin", "argmin", "softmin"}


_KINDS = {
    "mean": "strided or sparse_csr",
    **dict.fromkeys(("amax", "amin", "prod", "sum"), "strided, sparse_coo or sparse_csr"),
}


def _check_layout(name: str, input: Any) -> None:
    layout = str(getattr(input, "layout", torch.strided)).rpartition(".")[2]
    kinds = _KINDS.get(name, "strided")
    if layout in kinds.replace(",", "").split():
        return
    name = "std/var" if name in ("std", "var") else name
    raise ValueError(f"masked {name} expects {kinds} tensor (got torch.{layout} tensor)")


def _taken_apart(function: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """The function, which takes tensors with masks by their elements and masks."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        given: dict[str, Any] = kwargs
        input: Any = args[0] if args else given.get("input")
        _check_layout(function.__name__, input)
        if getattr(input, "layout", None) in _sparse.LAYOUTS:
            by_position: Any = args
            return _of_sparse(function.__name__, *by_position, **given)
        own = getattr(input, "_masked_mask", None)
        if own is None:
            return function(*args, **kwargs)
        mask = given.get("mask")
        given["mask"] = own if mask is None or mask is own else own & mask
        if args:
            return function(input._elements(), *args[1:], **given)  # type: ignore[arg-type]
        given["input"] = input._elements()
        return function(**given)  # type: ignore[call-arg]

    return call


def _dims(dim: _Dims, ndim: int) -> tuple[int, ...]:
    """The dimensions in order, all if none are named.

    Raises: IndexError, RuntimeError if one does not exist or is named twice.
    """
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    found: list[int] = []
    size = max(ndim, 1)
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -size <= d < size:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {d})"
            )
        if d % size in found:
            raise RuntimeError(f"dim={d % size} appears multiple times in the list of dims")
        found.append(d % size)
    return tuple(sorted(found))


def _identity(op: str, input: Tensor, ord: float = 2.0) -> float:
    """What masked elements count as."""
    if op in ("prod", "cumprod"):
        return 1
    if op == "norm":
        return float("inf") if ord == float("-inf") else 0
    if op == "median":
        return float("nan")
    if op not in _LEAST | _GREATEST:
        return 0
    if input.dtype == torch.bool:
        raise NotImplementedError(f"identity of {op} on {input.dtype} input")
    greatest = op in _GREATEST
    if input.is_floating_point() or (op == "logsumexp" and input.is_complex()):
        return float("inf") if greatest else float("-inf")
    limits = torch.iinfo(input.dtype)
    return limits.max if greatest else limits.min


def _fitted(input: Tensor, mask: Tensor) -> Tensor:
    """The mask in the input's shape."""
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)"
        )
    if mask.layout is not torch.strided:
        mask = mask.to_dense()
    if mask.shape != input.shape:
        mask = torch.broadcast_to(mask.clone(), input.shape)
    return mask.to(torch.bool)


def _combined(op: str, input: Tensor, mask: Tensor | None, ord: float = 2.0) -> Tensor:
    """The input with the identity of an operation in place of what the mask holds back."""
    if mask is None:
        return input
    mask = _fitted(input, mask)
    fill = torch.tensor(_identity(op, input, ord), dtype=input.dtype, device=input.device)
    return torch.where(mask, input, fill)


def _total(input: Tensor, dtype: _dtype | None) -> _dtype:
    """The type of sums and products: small integers become 64-bit ones."""
    return dtype or (torch.int64 if input.dtype in _SMALL else input.dtype)


def _of_sparse(
    op: str,
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    dims = _dims(dim, input.ndim)
    fitted = None if mask is None else _fitted(input, mask)
    dtype = _total(input, dtype) if op in ("sum", "prod") else dtype or input.dtype
    identity = _identity(op, input)
    return _sparse.reduced(op, input, dims, bool(keepdim), dtype, fitted, identity)


@_taken_apart
def sum(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over dimensions."""
    dims = _dims(dim, input.ndim)
    kept = _combined("sum", input, mask)
    return torch.sum(kept, dims, bool(keepdim), dtype=_total(input, dtype))


@_taken_apart
def prod(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over dimensions; an empty list names none, an empty tuple all."""
    dims = () if dim == [] else _dims(dim, input.ndim)
    made = _combined("prod", input, mask).to(_total(input, dtype))
    for d in reversed(dims):
        made = made.prod(dim=d, keepdim=bool(keepdim))
    return made


@_taken_apart
def cumsum(
    input: Tensor, dim: int, *, dtype: _dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The sums so far along a dimension."""
    dtype = dtype or input.dtype
    d = _dims(dim, input.ndim)[0]
    return torch.cumsum(_combined("cumsum", input, mask), d, dtype=dtype).to(dtype)


@_taken_apart
def cumprod(
    input: Tensor, dim: int, *, dtype: _dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The products so far along a dimension."""
    dtype = dtype or input.dtype
    d = _dims(dim, input.ndim)[0]
    return torch.cumprod(_combined("cumprod", input, mask), d, dtype=dtype).to(dtype)


@_taken_apart
def amax(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element over dimensions."""
    dims = _dims(dim, input.ndim)
    made = torch.amax(_combined("amax", input, mask), dims, bool(keepdim))
    return made.to(dtype or input.dtype)


@_taken_apart
def amin(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element over dimensions."""
    dims = _dims(dim, input.ndim)
    made = torch.amin(_combined("amin", input, mask), dims, bool(keepdim))
    return made.to(dtype or input.dtype)


@_taken_apart
def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the largest element is, in the input's type as in PyTorch."""
    made = torch.argmax(_combined("argmax", input, mask), dim, bool(keepdim))
    return made.to(dtype or input.dtype)


@_taken_apart
def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the smallest element is, in the input's type as in PyTorch."""
    made = torch.argmin(_combined("argmin", input, mask), dim, bool(keepdim))
    return made.to(dtype or input.dtype)


@_taken_apart
def mean(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean over dimensions.

    Raises: ValueError for integers, unless a type is asked for.
    """
    if dtype is None:
        dtype = input.dtype
        if not (input.is_floating_point() or input.is_complex()):
            raise ValueError(
                "mean(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
                f"Got: {input.dtype}"
            )
    mask = None if mask is None else _fitted(input, mask)
    count = _count(input, dim, keepdim, mask)
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / count


def _count(input: Tensor, dim: _Dims, keepdim: bool | None, mask: Tensor | None) -> Tensor:
    """How many elements the mask lets through."""
    if mask is None:
        mask = torch.ones((), dtype=torch.bool, device=input.device).expand(input.shape)
    return torch.sum(_fitted(input, mask), _dims(dim, input.ndim), bool(keepdim))


@_taken_apart
def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The median along a dimension; `dtype` is the type of integers' medians.

    Raises: ValueError if there are integers and a row without any.
    """
    d = _dims(dim, input.ndim)[0]
    floats = input if input.is_floating_point() else input.to(torch.get_default_dtype())
    made = torch.nanmedian(_combined("median", floats, mask), d, keepdim)[0]
    if input.is_floating_point():
        return made
    if made.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return made.to(dtype or input.dtype)


@_taken_apart
def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The vector norm of an order over dimensions."""
    order = 2.0 if ord is None else ord
    dims = _dims(dim, input.ndim)
    kept = _combined("norm", input, mask, order)
    return torch.linalg.vector_norm(kept, order, dims, bool(keepdim), dtype=dtype or input.dtype)


@_taken_apart
def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The input divided by its norm along a dimension, or by `eps` if that is larger."""
    kept = _combined("normalize", input, mask)
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return torch.div(kept, torch.maximum(size, size.new_full((), eps)))


def _spread(
    input: Tensor,
    dim: _Dims,
    correction: float,
    keepdim: bool | None,
    dtype: _dtype | None,
    mask: Tensor | None,
) -> Tensor:
    plain = input.is_floating_point() or input.is_complex()
    dtype = dtype or (input.dtype if plain else torch.get_default_dtype())
    mask = None if mask is None else _fitted(input, mask)
    count = _count(input, dim, True, mask)
    away = input - sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(away * away.conj(), dim, keepdim=keepdim, dtype=dtype, mask=mask)
    if not keepdim:
        count = count.reshape(total.shape)
    if correction != 0:
        real = torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype
        count = count.to(real) - correction
        count = torch.maximum(count, count.new_zeros(()))
    return (total / count).to(dtype)


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if unbiased is not None:
        return float(unbiased)
    return 1 if correction is None else correction


@_taken_apart
def var(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over dimensions."""
    return _spread(input, dim, _correction(unbiased, correction), keepdim, dtype, mask)


@_taken_apart
def std(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: int | None = None,
    keepdim: bool | None = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation over dimensions."""
    return torch.sqrt(_spread(input, dim, _correction(unbiased, correction), keepdim, dtype, mask))


def _along(
    op: Any, name: str, input: Tensor, dim: int, dtype: _dtype | None, mask: Tensor | None
) -> Tensor:
    d = _dims(dim, input.ndim)[0]
    made: Tensor = op(_combined(name, input, mask), d, dtype=dtype or input.dtype)
    return made


@_taken_apart
def softmax(
    input: Tensor, dim: int, *, dtype: _dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The softmax along a dimension; masked elements get 0."""
    return _along(F.softmax, "softmax", input, dim, dtype, mask)


@_taken_apart
def log_softmax(
    input: Tensor, dim: int, *, dtype: _dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the softmax along a dimension."""
    return _along(F.log_softmax, "log_softmax", input, dim, dtype, mask)


@_taken_apart
def softmin(
    input: Tensor, dim: int, *, dtype: _dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The softmax of the negated elements along a dimension."""
    return _along(F.softmin, "softmin", input, dim, dtype, mask)


@_taken_apart
def logsumexp(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool = False,
    dtype: _dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of exponentials over dimensions."""
    dims = _dims(dim, input.ndim)
    return torch.logsumexp(_combined("logsumexp", input, mask), dims, keepdim).to(
        dtype or input.dtype
    )


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: _dtype | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of the exponentials of two tensors."""
    if torch.jagged in (input.layout, other.layout):
        raise ValueError(
            "masked logaddexp expects strided tensors "
            f"(got {input.layout} tensor for input, {other.layout} for other)"
        )
    made = torch.logaddexp(
        _combined("logaddexp", input, input_mask), _combined("logaddexp", other, other_mask)
    )
    return made.to(dtype or input.dtype)
