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


@of("linalg.solve_ex")
def solve_ex(A: Any, B: Any, left: bool = True, check_errors: bool = False) -> Any:
    """The first and last results of the operator that also gives the factors."""
    made, _factors, _pivots, info = aten._linalg_solve_ex(
        A, B, left=left, check_errors=check_errors
    )
    return made, info


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
    sign, log = aten._linalg_slogdet(self)[:2]
    if self.is_complex():
        return aten.add.Tensor(aten.log(sign), log)
    negative = aten.eq.Scalar(sign, -1.0)
    none = aten.scalar_tensor(math.nan, dtype=log.dtype, layout=_C.strided, device=log.device)
    return aten.where.self(negative, none, log)


@of("special.ndtr")
def ndtr(self: Any) -> Any:
    """By the error function; a kernel rounds halves once."""
    if self.dtype in (_C.float16, _C.bfloat16) or self.is_complex():
        return NotImplemented
    scaled = aten.erf(aten.mul.Scalar(self, math.sqrt(0.5)))
    return aten.mul.Scalar(aten.add.Scalar(scaled, 1), 0.5)


@of("linalg.svd")
def svd(A: Any, full_matrices: bool = True, driver: Any = None) -> Any:
    """The operator."""
    return aten._linalg_svd(A, full_matrices, driver=driver)


@of("linalg.svdvals")
def svdvals(A: Any, driver: Any = None) -> Any:
    """The second result of the operator."""
    return aten._linalg_svd(A, driver=driver)[1]


@of("linalg.eigh")
def eigh(self: Any, UPLO: str = "L") -> Any:
    """The operator."""
    return aten._linalg_eigh(self, UPLO)


@of("linalg.eigvalsh")
def eigvalsh(self: Any, UPLO: str = "L") -> Any:
    """The first result of the operator."""
    return aten._linalg_eigh(self, UPLO)[0]


@of("linalg.vecdot")
def vecdot(x: Any, y: Any, dim: int = -1) -> Any:
    """Products, summed."""
    if x.is_complex() or x.dtype != y.dtype:
        return NotImplemented
    if x.dim() == y.dim() == 1:
        return aten.vdot(x, y)
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


@of("linalg.ldl_factor")
def ldl_factor(self: Any, hermitian: bool = False) -> Any:
    """The factors, once it is known that they can be used."""
    factors, pivots, info = aten.linalg_ldl_factor_ex(self, hermitian=hermitian)
    _checked(info, "torch.linalg.ldl_factor", self)
    return factors, pivots


@of("linalg.eigvals")
def eigvals(self: Any) -> Any:
    """The first result of the operator."""
    return aten.linalg_eig(self)[0]


def _number(value: float, like: Any) -> Any:
    return aten.full([], value, dtype=_C.float64, layout=_C.strided, device=like.device)


def _nothing(like: Any, dtype: Any = _C.float64) -> Any:
    return aten.zeros([], dtype=dtype, layout=_C.strided, device=like.device)


@of("_pinv", "linalg.pinv#tol")
def pinv(self: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """The operator that takes tensors for tolerances."""
    given = [t for t in (atol, rtol) if t is not None]
    if given and not any(isinstance(t, _C.Tensor) for t in given):
        atol, rtol = (_number(t or 0.0, self) for t in (atol, rtol))
    return aten.linalg_pinv.atol_rtol_tensor(self, atol=atol, rtol=rtol, hermitian=hermitian)


@of("linalg.pinv#")
def pinv_within(self: Any, rcond: Any = None, hermitian: bool = False) -> Any:
    """The operator, whose relative tolerance may be its own."""
    if rcond is None:
        return aten.linalg_pinv.atol_rtol_tensor(self, hermitian=hermitian)
    return pinv(self, None, rcond, hermitian)


@of("_matrix_rank")
def matrix_rank(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    """How many singular values are above both tolerances."""
    ranks = aten.empty.memory_format(
        list(self.shape[:-2]), dtype=_C.int64, layout=_C.strided, device=self.device
    )
    atol, rtol = _tolerances(self, atol, rtol)
    if self.numel() == 0:
        return aten.fill_.Scalar(ranks, 0)
    if hermitian:
        values = aten.abs(aten._linalg_eigh(self)[0])
        largest = aten.amax(values, [-1], True)
    else:
        values = aten._linalg_svd(self)[1]
        largest = aten.slice.Tensor(values, -1, 0, 1)
    relative = aten.mul.Tensor(aten.unsqueeze(rtol, -1), largest)
    bound = aten.maximum(aten.unsqueeze(atol, -1), relative)
    return aten.sum.dim_IntList(aten.gt.Tensor(values, bound), [-1])


def _tolerances(self: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Both as tensors: without a relative one the matrix's own counts, where the other is not above zero."""
    if isinstance(atol, _C.Tensor):
        if rtol is None:
            own, none = _number(_own(self), self), _nothing(self)
            rtol = aten.where.self(aten.gt.Scalar(atol, 0.0), none, own)
        elif not isinstance(rtol, _C.Tensor):
            rtol = _nothing(self)
        return atol, rtol
    if rtol is None:
        rtol = 0.0 if atol is not None and atol > 0 else _own(self)
        atol = _nothing(self) if atol is None else _number(atol, self)
        return atol, _number(rtol, self)
    atol = _number(atol or 0.0, self)
    return atol, rtol if isinstance(rtol, _C.Tensor) else _number(rtol, self)


def _own(matrix: Any) -> float:
    """The relative tolerance of a matrix: the precision of its numbers times its larger size."""
    from torchlike import finfo

    eps: float = finfo(matrix.dtype).eps
    return eps * max(matrix.shape[-2:])


@of("_nn.norm")
def rows_norm(self: Any, p: float, keepdim: bool) -> Any:
    """The norms of the last dimension."""
    return aten.linalg_vector_norm(self, p, [-1], keepdim)


@of("adjoint")
def adjoint(self: Any) -> Any:
    """The last two dimensions swapped, conjugated."""
    if self.dim() < 2:
        return NotImplemented
    turned = aten.transpose.int(self, -2, -1)
    return turned.conj() if self.is_complex() else turned
