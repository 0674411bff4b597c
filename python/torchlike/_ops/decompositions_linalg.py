"""Linear algebra that PyTorch makes of other operators: a factorisation, then a look at what failed."""

from __future__ import annotations

import math
from typing import Any

from torchlike import _C
from torchlike._ops import ops
from torchlike._ops.decompositions import of

aten: Any = ops.aten


def _checked(info: Any, api_name: str, matrix: Any) -> None:
    aten._linalg_check_errors(info, api_name, is_matrix=matrix.dim() == 2)


@of("linalg.inv", "inverse")
def inverse(A: Any = None, self: Any = None) -> Any:
    """The inverse, once it is known that there is one."""
    matrix = self if A is None else A
    made, info = aten.linalg_inv_ex(matrix)
    _checked(info, "linalg.inv", matrix)
    return made


@of("linalg.cholesky")
def cholesky(self: Any, upper: bool = False) -> Any:
    """The factor, once it is known that there is one."""
    made, info = aten.linalg_cholesky_ex(self, upper=upper)
    _checked(info, "linalg.cholesky", self)
    return made


@of("linalg.solve")
def solve(A: Any, B: Any, left: bool = True) -> Any:
    """The solution, once it is known that there is one."""
    made, _factors, _pivots, info = aten._linalg_solve_ex(A, B, left=left)
    _checked(info, "torch.linalg.solve", A)
    return made


@of("linalg.lu_factor")
def lu_factor(A: Any, pivot: bool = True) -> Any:
    """The factors, once it is known that they can be used."""
    factors, pivots, info = aten.linalg_lu_factor_ex(A, pivot=pivot)
    _checked(info, "torch.linalg.lu_factor", A)
    return factors, pivots


@of("linalg.det", "det")
def det(A: Any = None, self: Any = None) -> Any:
    """The first result of the operator that also gives the factors."""
    return aten._linalg_det(self if A is None else A)[0]


@of("linalg.slogdet", "slogdet")
def slogdet(A: Any = None, self: Any = None) -> Any:
    """The first results of the operator that also gives the factors."""
    return aten._linalg_slogdet(self if A is None else A)[:2]


@of("logdet")
def logdet(self: Any) -> Any:
    """The logarithm where the sign is positive."""
    if self.is_complex():
        return NotImplemented
    sign, log = aten._linalg_slogdet(self)[:2]
    negative = aten.eq.Scalar(sign, -1.0)
    none = aten.scalar_tensor(math.nan, dtype=log.dtype, layout=_C.strided, device=log.device)
    return aten.where.self(negative, none, log)


@of("linalg.svd")
def svd(A: Any, full_matrices: bool = True, driver: Any = None) -> Any:
    """The operator."""
    return aten._linalg_svd(A, full_matrices, driver=driver)


@of("linalg.svdvals")
def svdvals(A: Any, driver: Any = None) -> Any:
    """The second result of the operator."""
    return aten._linalg_svd(A, driver=driver)[1]


@of("linalg.eigh")
def eigh(A: Any, UPLO: str = "L") -> Any:
    """The operator."""
    return aten._linalg_eigh(A, UPLO)


@of("linalg.eigvalsh")
def eigvalsh(A: Any, UPLO: str = "L") -> Any:
    """The first result of the operator."""
    return aten._linalg_eigh(A, UPLO)[0]


@of("linalg.vecdot")
def vecdot(x: Any, y: Any, dim: int = -1) -> Any:
    """Products, summed."""
    if x.is_complex() or x.dtype != y.dtype:
        return NotImplemented
    return aten.sum.dim_IntList(aten.mul.Tensor(x, y), [dim])


@of("linalg.norm", "linalg.matrix_norm", "norm")
def norm(
    self: Any,
    ord: Any = None,
    p: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    **_: Any,
) -> Any:
    """The norm of the elements."""
    order = 2 if p in (None, "fro") else p
    plain = isinstance(order, int | float) and ord in (None, "fro", 2)
    if not plain or (ord == 2 and self.dim() == 2):
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else dim
    return aten.linalg_vector_norm(self, order, dims, keepdim, dtype=dtype)
