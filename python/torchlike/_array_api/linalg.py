"""The extension of the array API for linear algebra."""

from __future__ import annotations

from typing import Any, NamedTuple

import torchlike as torch
from torchlike._array_api._types import common
from torchlike.linalg import (  # noqa: F401  (the standard's too)
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    matrix_power,
    pinv,
    slogdet,
    solve,
    svdvals,
)


class QRResult(NamedTuple):
    """An orthonormal and a triangular factor."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """Singular values between their vectors."""

    U: Any
    S: Any
    Vh: Any


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices."""
    return torch.matmul(*common(x1, x2))


def matrix_transpose(x: Any, /) -> Any:
    """Rows and columns swapped."""
    return x.mT


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sums of products over axes of both."""
    from torchlike.functional import tensordot as ours

    return ours(*common(x1, x2), dims=axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Inner products along an axis, the first vector conjugated."""
    return torch.linalg.vecdot(*common(x1, x2), dim=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of the elements of two vectors."""
    return torch.outer(*common(x1, x2))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross products along an axis of three elements."""
    return torch.linalg.cross(*common(x1, x2), dim=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal of the last two axes."""
    return torch.linalg.diagonal(x, offset=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of the diagonal of the last two axes."""
    if dtype is None and not (x.dtype.is_floating_point or x.dtype.is_complex):
        unsigned = x.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
        return (
            diagonal(x, offset=offset)
            .to(torch.int64)
            .sum(-1)
            .to(torch.uint64 if unsigned else torch.int64)
        )
    return diagonal(x, offset=offset).sum(-1, dtype=dtype or x.dtype)


def matrix_norm(x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Any:
    """Norms of matrices."""
    return torch.linalg.matrix_norm(x, ord=ord, keepdim=keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Any:
    """Norms of vectors."""
    return torch.linalg.vector_norm(x, ord=ord, dim=axis, keepdim=keepdims)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are not negligible."""
    return torch.linalg.matrix_rank(x, rtol=rtol)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """The QR factorisation."""
    return QRResult(*torch.linalg.qr(x, mode=mode))


def svd(x: Any, /, *, full_matrices: Any = True) -> SVDResult:
    """The singular value decomposition."""
    return SVDResult(*torch.linalg.svd(x, full_matrices=full_matrices))
