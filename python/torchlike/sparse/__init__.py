"""Sparse tensors hold data; there are no kernels for them but conversion and exchange."""

from __future__ import annotations

from typing import Any, NoReturn

import torchlike
from torchlike import _absent

__all__ = [
    "SparseSemiStructuredTensor",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "softmax",
    "spdiags",
    "sum",
    "to_sparse_semi_structured",
]

_why = "sparse tensors are not computed with; use to_dense()"


def _dense_only(name: str, *tensors: Any) -> None:
    if any(t.layout != torchlike.strided for t in tensors):
        raise NotImplementedError(f"torch.sparse.{name} is not supported by torchlike: {_why}")


def mm(sparse: Any, dense: Any) -> Any:
    """The matrix product, of strided tensors only."""
    _dense_only("mm", sparse, dense)
    return torchlike.mm(sparse, dense)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """A matrix and a product, of strided tensors only."""
    _dense_only("addmm", mat, mat1, mat2)
    return torchlike.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


sum = _absent.function(__name__, "sum", _why)
softmax = _absent.function(__name__, "softmax", _why)
log_softmax = _absent.function(__name__, "log_softmax", _why)
spdiags = _absent.function(__name__, "spdiags", _why)
as_sparse_gradcheck = _absent.function(__name__, "as_sparse_gradcheck", _why)
to_sparse_semi_structured = _absent.function(__name__, "to_sparse_semi_structured", _why)
SparseSemiStructuredTensor = _absent.kind(__name__, "SparseSemiStructuredTensor", _why)


class check_sparse_tensor_invariants:
    """Whether sparse tensors are checked when they are made: they always are."""

    @staticmethod
    def is_enabled() -> bool:
        """True."""
        return True

    @staticmethod
    def enable() -> None:
        """Changes nothing."""

    @staticmethod
    def disable() -> NoReturn:
        """Not supported: what is wrong would reach beyond memory."""
        raise NotImplementedError(
            "torch.sparse.check_sparse_tensor_invariants.disable is not supported by torchlike"
        )

    def __init__(self, enable: bool = True) -> None:
        if not enable:
            self.disable()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, mth: Any) -> Any:
        return mth
