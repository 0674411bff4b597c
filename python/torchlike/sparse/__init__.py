"""Sparse tensors: products, sums and shares of their entries."""

from __future__ import annotations

import functools
from typing import Any

import torchlike
from torchlike import _absent, _legacy
from torchlike._function import overridable

__all__ = [
    "SparseSemiStructuredTensor",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "spsolve",
    "sum",
    "to_sparse_semi_structured",
]

_root: Any = torchlike


def _sparse(t: Any) -> bool:
    return bool(t.layout != torchlike.strided)


@overridable
def mm(sparse: Any, dense: Any, reduce: str | None = None) -> Any:
    """The product of two matrices, of which any may be sparse.

    Its gradient by a sparse matrix has entries where that has some. With `reduce` ("sum", "mean", "amax", "amin") the
    products of a row's entries are reduced by that; the first matrix has compressed rows then, the second is strided.
    """
    if reduce is not None:
        return _reduced_products(sparse, dense, reduce)
    if not _sparse(sparse) and not _sparse(dense):
        return torchlike.mm(sparse, dense)
    return _root._sparse_mm(sparse, dense)


def _reduced_products(sparse: Any, dense: Any, reduce: str) -> Any:
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if kind not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if kind == "prod":
        raise RuntimeError("sparse_mm_reduce: reduce type of prod has not been enabled.")
    if sparse.layout != torchlike.sparse_csr:
        raise NotImplementedError(
            f"sparse.mm(): reduce={reduce!r} takes a matrix of layout sparse_csr, not {sparse.layout}"
        )
    if _sparse(dense):
        raise RuntimeError(
            "Expected tensor to have Strided Layout, but got tensor with SparseCsr Layout (while checking arguments "
            "for sparse_mm_reduce)"
        )
    lines = torchlike.arange(sparse.shape[0], device=dense.device)
    lines = lines.repeat_interleave(sparse.crow_indices().diff())
    products = sparse.values().unsqueeze(1) * dense[sparse.col_indices()]
    places = lines.unsqueeze(1).expand_as(products)
    made = products.new_zeros(sparse.shape[0], dense.shape[1])
    return made.scatter_reduce(0, places, products, kind, include_self=False)


@overridable
def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """`beta` times a matrix and `alpha` times a product, the first factor of which may be sparse."""
    if not _sparse(mat1) and not _sparse(mat2):
        return torchlike.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    return mat * beta + _root._sparse_mm(mat1, mat2) * alpha


@overridable
def sampled_addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None
) -> Any:
    """`alpha` times a product of strided matrices at the places that `input` has, and `beta` times that."""
    made = _root.sparse_sampled_addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return made if out is None else out.copy_(made)


@overridable
def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of a sparse tensor, or along dimensions: sparse as long as a sparse dimension is left."""
    if isinstance(dim, int):
        dim = [dim]
    return _root._sparse_sum(input, None if dim is None else list(dim), dtype=dtype)


def _shares(input: Any, dim: int, dtype: Any, log: bool) -> Any:
    return _root._sparse_softmax(input if dtype is None else input.to(dtype), dim, log)


@overridable
def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Shares of the entries along a dimension; what has no entry counts as minus infinity."""
    return _shares(input, dim, dtype, False)


@overridable
def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithms of :func:`softmax`."""
    return _shares(input, dim, dtype, True)


@overridable
def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix of this shape with the rows of `diagonals` along its diagonals.

    Element `j` of a row stands in column `j`; what lies outside of the matrix is left out.

    Raises:
        RuntimeError: if there is not one offset of 64 bits a row, an offset comes twice, or the layout is no other than
            COO, CSR and CSC.
    """
    rows = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    places = offsets if offsets.dim() == 1 else offsets.unsqueeze(0)
    if not 1 <= diagonals.dim() <= 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if offsets.dim() > 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if places.shape[0] != rows.shape[0]:
        raise RuntimeError(
            f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({places.shape[0]})"
        )
    if offsets.dtype != torchlike.int64:
        kind = offsets.type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {kind}")
    if layout not in (
        None,
        torchlike.sparse_coo,
        torchlike.sparse_csc,
        torchlike.sparse_csr,
    ):
        kind = str(layout).rpartition(".")[2].title().replace("_", "")
        raise RuntimeError(
            f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {kind}"
        )
    if places.unique().numel() != places.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
    column = torchlike.arange(rows.shape[1], device=rows.device).expand(rows.shape)
    row = column - places.unsqueeze(1)
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    made = torchlike.sparse_coo_tensor(
        torchlike.stack([row[inside], column[inside]]), rows[inside], tuple(shape)
    )
    return (
        made if layout is None or layout == torchlike.sparse_coo else made.to_sparse(layout=layout)
    )


@overridable
def spsolve(input: Any, other: Any, *, left: bool = True) -> Any:
    """The solution of equations with a sparse matrix, which is made strided for it."""
    return _root._spsolve(input, other, left=left)


_why = "only the five layouts of PyTorch's core are there"
to_sparse_semi_structured = _absent.function(__name__, "to_sparse_semi_structured", _why)
SparseSemiStructuredTensor = _absent.kind(__name__, "SparseSemiStructuredTensor", _why)
as_sparse_gradcheck = _absent.function(
    __name__, "as_sparse_gradcheck", "gradients of sparse tensors are compared as strided ones"
)


class check_sparse_tensor_invariants:
    """A switch that is kept, as a context and a decorator too: sparse tensors are checked whenever they are made."""

    _state = False

    @staticmethod
    def is_enabled() -> bool:
        """What was asked for last."""
        return check_sparse_tensor_invariants._state

    @staticmethod
    def enable() -> None:
        """Asks for checks."""
        check_sparse_tensor_invariants._state = True

    @staticmethod
    def disable() -> None:
        """Asks for no checks; what is wrong would reach beyond memory, so that they are made all the same."""
        check_sparse_tensor_invariants._state = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    def __enter__(self) -> None:
        if self.saved_state is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for "
                "context nesting."
            )
        self.saved_state = self.is_enabled()
        check_sparse_tensor_invariants._state = self.state

    def __exit__(self, *exc: object) -> None:
        if self.saved_state is None:
            raise AssertionError("saved_state must not be None in __exit__")
        check_sparse_tensor_invariants._state, self.saved_state = self.saved_state, None

    def __call__(self, mth: Any) -> Any:
        @functools.wraps(mth)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return mth(*args, **kwargs)

        return checked


class _SparseType(type):
    """The type of the old types of sparse tensors: calling one makes a COO tensor of its dtype."""

    dtype: Any

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return _legacy.sparse(args, cls.dtype, device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torchlike.Tensor)
            and instance.dtype == cls.dtype
            and instance.layout == torchlike.sparse_coo
        )


for _name, _kind in _legacy.types(__name__, "cpu").items():
    globals()[_name] = _SparseType(_name, (), {"dtype": _kind.dtype, "__module__": __name__})
