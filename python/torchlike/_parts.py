"""What sparse and quantised tensors become: dense ones."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import _C, _naming
from torchlike._C import Tensor
from torchlike._function import overridable


class qscheme:
    """How quantised integers stand for real numbers."""

    __slots__ = ("_name",)
    __module__ = _naming.OWN  # where pickles look for the values, as PyTorch's do

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{_naming.shown}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


per_tensor_affine = qscheme("per_tensor_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_affine = qscheme("per_channel_affine")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


def plain_parts(t: Tensor) -> list[Tensor]:
    """The plain tensors that a nested tensor is made of; any other tensor itself."""
    made_of = getattr(type(t), "_plain_parts", None)
    return [t] if made_of is None else made_of(t)


def _layout(t: Tensor) -> str:
    """The name of a tensor's layout: `sparse_csr`."""
    return str(t.layout).rpartition(".")[2]


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """A strided tensor with the same values; its gradient has entries where a sparse tensor has."""
    if _layout(self) == "strided" and self.is_nested:
        raise RuntimeError("to_dense(): a nested tensor has no common shape; call unbind()")
    return torchlike._to_dense(self, dtype, masked_grad)  # type: ignore[attr-defined]


def to_sparse(
    self: Tensor,
    sparse_dim: Any = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: Any = None,
) -> Tensor:
    """The tensor in a sparse layout, coordinates unless `layout` names another.

    `sparse_dim` (coordinates alone) or `dense_dim` say how many dimensions are named by indices, or stay dense;
    `blocksize` is that of the blocked layouts.
    """
    name = "sparse_coo" if layout is None else str(layout).rpartition(".")[2]
    if name == "strided":
        return to_dense(self)
    if sparse_dim is not None:
        if layout is not None:
            raise TypeError("to_sparse() takes sparse_dim or a layout, not both")
        if _layout(self) == "sparse_coo" and sparse_dim != self.sparse_dim():
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() "
                "is not supported"
            )
        if not (0 < sparse_dim <= self.dim() or sparse_dim == self.dim() == 0):
            raise RuntimeError(
                f"dense_to_sparse: sparse_dim argument must be in [0,{self.dim()}] range, but {sparse_dim} is given"
            )
        dense_dim = self.dim() - sparse_dim
    way = "layout" if sparse_dim is None else "sparse_dim"
    return _in_layout(self, name, blocksize, dense_dim, way)


def _in_layout(self: Tensor, name: str, blocksize: Any, dense_dim: Any, way: str) -> Tensor:
    """The tensor in a sparse layout; `way` is what PyTorch calls the operator by that leads there."""
    if blocksize is not None:
        blocksize = [blocksize] * 2 if isinstance(blocksize, int) else list(blocksize)
    return torchlike._to_sparse(self, name, blocksize, dense_dim, way)  # type: ignore[attr-defined]


def to_sparse_coo(self: Tensor) -> Tensor:
    """The tensor by coordinates."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The tensor with compressed rows."""
    return _in_layout(self, "sparse_csr", None, dense_dim, "csr")


def to_sparse_csc(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The tensor with compressed columns."""
    return _in_layout(self, "sparse_csc", None, dense_dim, "csc")


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The tensor with compressed rows of blocks."""
    return _in_layout(self, "sparse_bsr", blocksize, dense_dim, "bsr")


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The tensor with compressed columns of blocks."""
    return _in_layout(self, "sparse_bsc", blocksize, dense_dim, "bsc")


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse tensor by where each row (or column) begins, the column (or row) of each entry, and values.

    Raises:
        RuntimeError: if they do not fit each other; indices are always checked.
    """
    name = "none" if layout is None else str(layout).rpartition(".")[2]
    if name not in ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        raise RuntimeError(
            f"sparse_compressed_tensor expected sparse compressed tensor layout but got {name}"
        )
    values = torchlike.as_tensor(values, dtype=dtype, device=device)

    def index(t: Any) -> Tensor:
        t = torchlike.as_tensor(t, device=values.device)
        return t if t.dtype == torchlike.int32 else t.to(torchlike.int64)

    starts, plain = index(compressed_indices), index(plain_indices)
    if size is None:
        size = _size_of(name, starts, plain, values)
    made = torchlike._sparse_compressed(starts, plain, values, list(size), name)  # type: ignore[attr-defined]
    return made.requires_grad_() if requires_grad else made


def _size_of(name: str, starts: Tensor, plain: Tensor, values: Tensor) -> list[int]:
    """The smallest size that has room for all entries."""
    batch = starts.dim() - 1
    lines = starts.shape[-1] - 1
    others = int(plain.max()) + 1 if plain.numel() else 0
    height, width = 1, 1
    if name in ("sparse_bsr", "sparse_bsc") and values.dim() >= batch + 3:
        height, width = values.shape[batch + 1 : batch + 3]
    rows, columns = (lines, others) if name in ("sparse_csr", "sparse_bsr") else (others, lines)
    block = 2 if name in ("sparse_bsr", "sparse_bsc") else 0
    dense = values.shape[batch + 1 + block :]
    return [*starts.shape[:batch], rows * height, columns * width, *dense]


def _compressed(name: str, first: str, second: str) -> Any:
    """The maker of one compressed layout; `first` and `second` are the names of its index tensors."""

    def make(*args: Any, **kwargs: Any) -> Tensor:
        given = list(args)
        parts = [
            given.pop(0) if given else kwargs.pop(key, None) for key in (first, second, "values")
        ]
        if any(p is None for p in parts):
            raise TypeError(f"{name}_tensor() takes {first}, {second} and values")
        if given:
            kwargs["size"] = given.pop(0)
        if given:
            raise TypeError(f"{name}_tensor() takes at most four positional arguments")
        layout = kwargs.pop("layout", None)
        if layout is not None and str(layout).rpartition(".")[2] != name:
            raise RuntimeError(f"{name}_tensor(): expected layout torch.{name}, but got {layout}")
        return sparse_compressed_tensor(*parts, layout=name, **kwargs)

    make.__name__ = make.__qualname__ = f"{name}_tensor"
    make.__doc__ = f"A tensor of layout `{name}` by `{first}`, `{second}` and values."
    return make


sparse_csr_tensor = _compressed("sparse_csr", "crow_indices", "col_indices")
sparse_csc_tensor = _compressed("sparse_csc", "ccol_indices", "row_indices")
sparse_bsr_tensor = _compressed("sparse_bsr", "crow_indices", "col_indices")
sparse_bsc_tensor = _compressed("sparse_bsc", "ccol_indices", "row_indices")


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor by the positions of its values, a column of ``indices`` each; by its size alone it is empty."""
    if values is None and (indices is None) != (size is None):
        size = indices if size is None else size
        indices = torchlike.empty(len(size), 0, dtype=torchlike.int64)
        values = torchlike.empty(0, dtype=dtype)
    elif indices is None or values is None:
        raise TypeError("sparse_coo_tensor() takes indices and values, or a size")
    values = torchlike.as_tensor(values, dtype=dtype, device=device)
    if values.dim() == 0:
        values = values.expand(1)
    indices = torchlike.as_tensor(indices, device=values.device).to(torchlike.int64)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    sparse, found = indices.shape
    if found != values.shape[0]:
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{found}, nnz from values: {values.shape[0]}"
        )
    known = found > 0 and (size is None or not indices.is_meta)
    ends = (indices.amax(1) + 1).tolist() if known else [0] * sparse
    if size is None:
        size = (*ends, *values.shape[1:])
    elif len(size) != sparse + values.dim() - 1:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
            f"sparse_dim = {sparse}, dense_dim = {values.dim() - 1}"
        )
    if values.shape[1:] != tuple(size[sparse:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[found, *size[sparse:]]}, got {list(values.shape)}"
        )
    for dim, (end, limit) in enumerate(zip(ends, size, strict=False)):
        if end > limit:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {limit} but found index {end - 1}"
            )
    for dim, least in enumerate(indices.amin(1).tolist() if known else []):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
    made = torchlike._sparse_coo_tensor_unsafe(  # type: ignore[attr-defined]
        indices, values, list(size), is_coalesced=is_coalesced
    )
    return made.requires_grad_() if requires_grad else made


def coalesce(self: Tensor) -> Tensor:
    """The same sparse COO tensor with sorted positions, each once."""
    return torchlike._coalesce(self)  # type: ignore[attr-defined]


@overridable
def dequantize(self: Any) -> Any:
    """The real numbers that a quantised tensor stands for, or each of a list; other tensors in single precision."""
    if isinstance(self, list | tuple):
        return tuple(dequantize(t) for t in self)
    if not self.is_quantized:
        return self.to(torchlike.float32)
    if self.dtype in (torchlike.quint8, torchlike.qint8, torchlike.qint32):
        return torchlike._dequantize(self)  # type: ignore[attr-defined]
    # Numbers of less than a byte share bytes.
    numbers = _C._integers(self)
    if str(self.qscheme()).rpartition(".")[2].startswith("per_tensor"):
        return (numbers.float() - self.q_zero_point()) * self.q_scale()
    shape = [1] * self.ndim
    shape[self.q_per_channel_axis()] = -1
    scales = self.q_per_channel_scales().reshape(shape)
    zeros = self.q_per_channel_zero_points().reshape(shape)
    return ((numbers - zeros).to(scales.dtype) * scales).float()
