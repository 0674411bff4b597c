"""Operators of linear algebra that PyTorch's public functions come down to."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.by_hand import by_hand

linalg: Any = torch.linalg

# What stands behind "linalg.inv: " where a factorisation fails at row n.
_FAILURES = {
    "inv": "The diagonal element {n} is zero, the inversion could not be completed because the input matrix is "
    "singular.",
    "cholesky": "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {n} is not positive-definite).",
    "solve": "The solver failed because the input matrix is singular.",
    "lu_factor": "U[{n},{n}] is zero and using it on lu_solve would result in a division by zero. If you still want to "
    "perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
}


@by_hand
def _linalg_check_errors(info: Any, api_name: str, is_matrix: bool) -> None:
    if info.is_meta or _C._is_fake(info) or not info.any():
        return
    flat = info.reshape(-1)
    batch = 0 if is_matrix else int(flat.ne(0).to(torch.int64).argmax())
    where = "" if is_matrix else f"(Batch element {batch}): "
    function = api_name.rpartition(".")[2]
    why = _FAILURES[function].format(n=int(flat[batch]))
    kind = RuntimeError if function == "lu_factor" else linalg.LinAlgError
    raise kind(f"{api_name}: {where}{why}")


def _factors(A: Any) -> Any:
    return linalg.lu_factor_ex(A)[:2]


@by_hand
def _linalg_det(A: Any) -> Any:
    return linalg.det(A), *_factors(A)


@by_hand
def _linalg_slogdet(A: Any) -> Any:
    return *linalg.slogdet(A), *_factors(A)


@by_hand
def _linalg_solve_ex(A: Any, B: Any, left: bool = True, check_errors: bool = False) -> Any:
    made, info = linalg.solve_ex(A, B, left=left, check_errors=check_errors)
    return made, *_factors(A), info


@by_hand
def _linalg_svd(
    A: Any, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None
) -> Any:
    if compute_uv:
        return tuple(linalg.svd(A, full_matrices))
    return A.new_empty(0), linalg.svdvals(A), A.new_empty(0)


@by_hand
def _linalg_eigh(A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    if compute_v:
        return tuple(linalg.eigh(A, UPLO))
    return linalg.eigvalsh(A, UPLO), A.new_empty(0)
