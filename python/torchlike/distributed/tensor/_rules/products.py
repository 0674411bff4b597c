"""Products of matrices: rows, columns or what is summed may be cut."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.tensor._rules import Call, Cut, Fixed, P, R, Rows, rule
from torchlike.distributed.tensor.placement_types import Shard, is_cut, moved


def _product(equation: str, bias: tuple[int, ...] | None = None) -> list[list[Any]]:
    """The rows of an equation such as `mk,kn->mn`; with a bias of this shape that is added to the result."""
    inputs, out = equation.split("->")
    lhs, rhs = inputs.split(",")
    letters = sorted(set(lhs + rhs))
    rows: list[list[Any]] = []
    batches = [c for c in letters if c in out and c in lhs and c in rhs]
    rows += [[Cut(out.index(c)), Cut(lhs.index(c)), Cut(rhs.index(c))] for c in batches]
    summed = [c for c in letters if c not in out]
    rows += [[P("sum"), Cut(lhs.index(c)), Cut(rhs.index(c))] for c in summed]
    free = [c for c in letters if c in out and c not in batches]
    rows += [[Cut(out.index(c)), Cut(lhs.index(c)), R] for c in free if c in lhs]
    rows += [[Cut(out.index(c)), R, Cut(rhs.index(c))] for c in free if c in rhs]
    for op in ("sum", "avg"):
        rows += [[P(op), P(op), R], [P(op), R, P(op)]]
    if bias is None:
        return rows
    return [[row[0], _of_bias(row[0], bias, len(out)), *row[1:]] for row in rows]


def _of_bias(p: Any, bias: tuple[int, ...], ndim: int) -> Any:
    if not isinstance(p, Cut):
        return p
    at = p.dim - (ndim - len(bias))
    return R if at < 0 or bias[at] == 1 else Cut(at)


@rule("mm")
def _mm(call: Call) -> Rows:
    return Rows(_product("mk,kn->mn"))


@rule("bmm")
def _bmm(call: Call) -> Rows:
    return Rows(_product("bmk,bkn->bmn"))


@rule("addmm addmm_")
def _addmm(call: Call) -> Rows:
    return Rows(_product("mk,kn->mn", call.first.shape))


@rule("baddbmm baddbmm_")
def _baddbmm(call: Call) -> Rows:
    return Rows(_product("bmk,bkn->bmn", call.first.shape))


@rule("_cdist_forward _euclidean_dist")
def _distances(call: Call) -> Rows:
    """Between rows of two batches: batches, or the rows of either, may be cut."""
    a, b = call.specs[:2]
    n = max(a.ndim, b.ndim)
    rows: list[list[Any]] = [[Cut(n - 2), Cut(a.ndim - 2), R], [Cut(n - 1), R, Cut(b.ndim - 2)]]
    if a.shape[:-2] == b.shape[:-2]:
        rows += [[Cut(d)] * 3 for d in range(n - 2)]
    return Rows(rows)


@rule("_cdist_backward")
def _distances_backward(call: Call) -> Rows:
    """The gradient of the rows of the first batch."""
    grad, a, b = call.specs[:3]
    rows: list[list[Any]] = []
    if a.ndim == grad.ndim:
        rows.append([Cut(a.ndim - 2), Cut(a.ndim - 2), Cut(a.ndim - 2), R, Cut(a.ndim - 2)])
    if a.shape[:-2] == b.shape[:-2]:
        rows += [[Cut(d)] * 5 for d in range(a.ndim - 2)]
    return Rows(rows)


@rule("dot vdot")
def _dot(call: Call) -> Rows:
    return Rows([[R] * 3, [P("sum"), Shard(0), Shard(0)]])


@rule("t")
def _t(call: Call) -> Fixed:
    spec = call.first
    turned = [moved(p, 1 - p.dim) if is_cut(p) and spec.ndim > 1 else p for p in spec.placements]  # type: ignore[attr-defined]
    return Fixed([turned], [spec.placements], ordered=spec.ordered)


# Operators of linear algebra on batches of matrices: how many results and tensors they have together.
_BATCHES = {
    "cholesky": 2,
    "cholesky_inverse": 2,
    "linalg_matrix_exp": 2,
    "cholesky_solve": 3,
    "linalg_householder_product": 3,
    "linalg_solve_triangular": 3,
    "linalg_ldl_solve": 4,
    "linalg_lu_solve": 4,
    "ormqr": 4,
    "geqrf": 3,
    "linalg_cholesky_ex": 3,
    "linalg_eig": 3,
    "linalg_inv_ex": 3,
    "triangular_solve": 4,
    "_linalg_det": 4,
    "linalg_ldl_factor_ex": 4,
    "linalg_lu": 4,
    "linalg_lu_factor_ex": 4,
    "lu_unpack": 5,
    "_linalg_slogdet": 5,
    "_linalg_solve_ex": 6,
}
_BATCH_PARTIAL = {
    "cholesky_solve": [[P("sum"), P("sum"), R]],
    "linalg_solve_triangular": [[P("sum"), R, P("sum")], [P("avg"), R, P("avg")]],
    "linalg_lu_solve": [[P("sum"), R, R, P("sum")]],
    "linalg_ldl_solve": [[P("sum"), R, R, P("sum")]],
    "ormqr": [[P("sum"), R, R, P("sum")]],
    "_linalg_solve_ex": [[P("sum"), R, R, R, R, P("sum")]],
}


@rule(*_BATCHES)
def _batches(call: Call) -> Rows:
    count = _BATCHES[call.name]
    rows: list[list[Any]] = [[Cut(d)] * count for d in range(call.first.ndim - 2)]
    return Rows(rows + _BATCH_PARTIAL.get(call.name, []))
