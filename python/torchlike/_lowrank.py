"""Factorisations of matrices of low rank, and a few eigenvalues of large ones.

Sources: Halko, Martinsson and Tropp, "Finding structure with randomness" (2011), algorithms 4.4 and 5.1; Knyazev,
"Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient method" (2001).
"""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._function import overridable

__all__ = ["lobpcg", "pca_lowrank", "svd_lowrank"]


def _apart(a: Any, m: torchlike.Tensor | None, x: Any, turned: bool = False) -> Any:
    """The product of `a - m`, or of the same turned, and `x`."""
    product = torchlike.matmul(a.mH if turned else a, x)
    if m is None:
        return product
    return product - torchlike.matmul(m.mH if turned else m, x)


def _basis(a: Any, q: int, niter: int, m: torchlike.Tensor | None) -> Any:
    """An orthonormal basis of about what `a - m` maps to, `[..., rows, q]`."""
    kind = a.dtype if a.is_complex() or a.is_floating_point() else torchlike.float32
    start = torchlike.randn(a.shape[-1], q, dtype=kind, device=a.device)
    found = torchlike.linalg.qr(_apart(a, m, start))[0]
    for _ in range(niter):
        found = torchlike.linalg.qr(_apart(a, m, found, turned=True))[0]
        found = torchlike.linalg.qr(_apart(a, m, found))[0]
    return found


def _svd(a: Any, q: int, niter: int, m: torchlike.Tensor | None) -> tuple[Any, Any, Any]:
    wide = a.shape[-2] < a.shape[-1]
    if m is not None:
        m = m.broadcast_to(a.shape)
    if wide:
        a, m = a.mH, None if m is None else m.mH
    basis = _basis(a, q, niter, m)
    small = _apart(basis.mH, None, a)
    if m is not None:
        small = small - torchlike.matmul(basis.mH, m)
    u, s, vh = torchlike.linalg.svd(small, full_matrices=False)
    v = vh.mH
    u = torchlike.matmul(basis, u)
    return (v, s, u) if wide else (u, s, v)


@overridable
def svd_lowrank(
    A: Any, q: int | None = 6, niter: int | None = 2, M: torchlike.Tensor | None = None
) -> Any:
    """The `q` largest singular values of `A - M` and their vectors, approximately, by random projection.

    Shapes: `A` is `[..., m, n]`; `U` is `[..., m, q]`, `S` `[..., q]` and `V` `[..., n, q]`.
    """
    return _svd(A, 6 if q is None else q, 2 if niter is None else niter, M)


@overridable
def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """The `q` principal components of the rows of `A`, approximately, as :func:`svd_lowrank` gives them.

    Raises:
        ValueError: if `q` or `niter` are negative, or `q` exceeds the matrix.
    """
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if A.layout != torchlike.strided:
        A = A.to_dense()
    if not (A.is_floating_point() or A.is_complex()):
        A = A.to(torchlike.float32)
    if not center:
        return _svd(A, q, niter, None)
    return _svd(A - A.mean(dim=-2, keepdim=True), q, niter, None)


def _times(matrix: Any, x: Any) -> Any:
    return x if matrix is None else torchlike.matmul(matrix, x)


def _orthonormal(x: Any, b: Any) -> Any:
    """A basis of what the columns of `x` span, orthonormal with respect to `b`; what adds nothing is dropped."""
    gram = x.mH @ _times(b, x)
    sizes = gram.diagonal().real.clamp(min=0).sqrt()
    scale = torchlike.where(sizes > 0, 1 / sizes, torchlike.zeros_like(sizes))
    values, vectors = torchlike.linalg.eigh(gram * scale[:, None] * scale)
    kept = values > values.abs().max() * torchlike.finfo(x.dtype).eps * len(values)
    return x @ (scale[:, None] * vectors[:, kept] / values[kept].sqrt())


def _ritz(a: Any, basis: Any, k: int, largest: bool) -> tuple[Any, Any]:
    """The best `k` eigenpairs within an orthonormal basis."""
    values, vectors = torchlike.linalg.eigh(basis.mH @ _times(a, basis))
    if largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[:k], vectors[:, :k]


def _one(
    a: Any,
    b: Any,
    x: Any,
    k: int,
    inverse: Any,
    niter: int,
    tol: float,
    largest: bool,
    tracker: Any,
) -> tuple[Any, Any]:
    """The eigenpairs of one matrix."""
    x = _orthonormal(x, b)
    values, turn = _ritz(a, x, k, largest)
    x = x @ turn
    step = x[:, :0]
    norm = torchlike.linalg.vector_norm(_times(a, x)) / torchlike.linalg.vector_norm(x)
    for i in range(niter):
        rest = _times(a, x) - _times(b, x) * values
        sizes = torchlike.linalg.vector_norm(rest, dim=0)
        allowed = tol * (norm + values.abs()) * torchlike.linalg.vector_norm(x, dim=0)
        if tracker is not None:
            tracker({"istep": i, "E": values, "X": x, "R": rest, "rerr": sizes})
        open_ = sizes > allowed
        if not bool(open_.any()):
            break
        tries = _times(inverse, rest[:, open_])
        basis = _orthonormal(torchlike.cat([x, tries, step], dim=1), b)
        old = x
        values, turn = _ritz(a, basis, k, largest)
        x = basis @ turn
        step = x - old @ (old.mH @ _times(b, x))
    return values, x


def _with_history(a: Any, b: Any, values: Any, x: Any) -> tuple[Any, Any]:
    """The same numbers with the history of the matrices: pairs move as first-order perturbation theory says."""
    change = _times(a, x) - _times(a.detach(), x)
    if b is not None:
        change = change - (_times(b, x) - _times(b.detach(), x)) * values
    along = (x.mH @ change).diagonal(dim1=-2, dim2=-1).real
    moved = []
    for i in range(x.shape[-1]):
        shifted = a.detach() - values[i] * (
            torchlike.eye(a.shape[-1], dtype=a.dtype, device=a.device) if b is None else b.detach()
        )
        moved.append(torchlike.linalg.pinv(shifted, rtol=1e-6, hermitian=True) @ change[:, i])
    turned = x - torchlike.stack(moved, dim=-1)
    # Towards the vectors themselves nothing moves but their length.
    inside = (x.mH @ _times(None if b is None else b.detach(), turned - x)).diagonal()
    turned = turned - x * inside
    if b is not None:
        grown = (x.mH @ (_times(b, x) - _times(b.detach(), x))).diagonal().real
        turned = turned - x * (grown / 2)
    return values + along, turned


@overridable
def lobpcg(
    A: Any,
    k: int | None = None,
    B: Any = None,
    X: Any = None,
    n: int | None = None,
    iK: Any = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> Any:
    """The `k` largest (or smallest) eigenvalues of symmetric matrices and their vectors, by conjugate gradients.

    `B` makes it the generalised problem, `X` are first guesses (`n` random ones, if there are none), and `iK` stands
    for about the inverse of `A`. `tracker` is called once a step with a dictionary of what is known. Every method is
    the stable one: bases are orthonormal throughout.

    Raises:
        ValueError: if the matrices are smaller than three times the number of pairs.
    """
    if method not in (None, "basic", "ortho"):
        raise ValueError("expected method 'basic' or 'ortho', but got " + repr(method))
    m = A.shape[-1]
    if A.dim() < 2 or A.shape[-2] != m:
        raise RuntimeError(
            f"lobpcg: A must be batches of square matrices, but has shape {tuple(A.shape)}"
        )
    if k is None:
        k = 1 if X is None else X.shape[-1]
    if n is None:
        n = k if X is None else X.shape[-1]
    if m < 3 * n:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m})"
            f" is smaller than 3 x the number of requested eigenpairs (={n})"
        )
    kind = A.dtype
    tol = torchlike.finfo(kind).eps ** 0.5 if tol is None else tol
    niter = 1000 if niter is None or niter < 0 else niter
    largest = True if largest is None else largest
    lead = A.shape[:-2]
    if X is None:
        X = torchlike.randn(*lead, m, n, dtype=kind, device=A.device)

    def flat(t: Any) -> list[Any]:
        if t is None:
            return [None] * max(1, lead.numel())
        return list(t.expand(*lead, *t.shape[-2:]).reshape(-1, *t.shape[-2:]))

    dense = A.to_dense() if A.layout != torchlike.strided else A
    b = B.to_dense() if B is not None and B.layout != torchlike.strided else B
    tracked = torchlike.is_grad_enabled() and (
        dense.requires_grad or (b is not None and b.requires_grad)
    )
    if tracked:
        # Gradients are those of symmetric matrices.
        dense = (dense + dense.mT) / 2
        b = None if b is None else (b + b.mT) / 2
    values, vectors = [], []
    for one_a, one_b, one_x, one_k in zip(flat(dense), flat(b), flat(X), flat(iK), strict=True):
        with torchlike.no_grad():
            found = _one(one_a, one_b, one_x, k, one_k, niter, tol, largest, tracker)
        if tracked:
            found = _with_history(one_a, one_b, *found)
        values.append(found[0])
        vectors.append(found[1])
    return (
        torchlike.stack(values).reshape(*lead, k),
        torchlike.stack(vectors).reshape(*lead, m, k),
    )
