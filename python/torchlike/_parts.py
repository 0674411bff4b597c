"""What sparse and quantised tensors become: dense ones."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import _C, _naming
from torchlike._C import Tensor


class qscheme:
    """How quantised integers stand for real numbers."""

    __slots__ = ("_name",)

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


def _dense_of_compressed(self: Tensor) -> Tensor:
    layout = str(self.layout).rpartition(".")[2]
    rows = layout in ("sparse_csr", "sparse_bsr")
    starts = self.crow_indices() if rows else self.ccol_indices()
    plain = self.col_indices() if rows else self.row_indices()
    values = self.values()
    batch = starts.ndim - 1
    if batch:
        shape = tuple(self.shape)
        flat = [x.flatten(0, batch - 1) for x in (starts, plain, values)]
        parts = [
            _scatter(layout, rows, a, b, v, shape[batch:]) for a, b, v in zip(*flat, strict=True)
        ]
        return torchlike.stack(parts).reshape(shape)
    return _scatter(layout, rows, starts, plain, values, tuple(self.shape))


def _scatter(
    layout: str, rows: bool, starts: Tensor, plain: Tensor, values: Tensor, shape: tuple[int, ...]
) -> Tensor:
    counts = starts[1:] - starts[:-1]
    major = torchlike.repeat_interleave(
        torchlike.arange(counts.numel(), device=starts.device), counts.long()
    )
    first, second = (major, plain.long()) if rows else (plain.long(), major)
    if layout in ("sparse_bsr", "sparse_bsc"):
        height, width = values.shape[1], values.shape[2]
        grid = values.new_zeros((shape[0] // height, shape[1] // width, *values.shape[1:]))
        grid[first, second] = values
        return grid.transpose(1, 2).reshape(shape)
    dense = values.new_zeros(shape)
    dense[first, second] = values
    return dense


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """A strided tensor with the same values."""
    layout = str(self.layout).rpartition(".")[2]
    if layout == "strided":
        if self.is_nested:
            raise RuntimeError("to_dense(): a nested tensor has no common shape; call unbind()")
        made = self
    elif layout == "sparse_coo":
        values = self._values()
        made = values.new_zeros(tuple(self.shape))
        indices = tuple(self._indices())
        if indices:
            made.index_put_(indices, values, accumulate=True)
        else:
            made = values.sum(0) if len(values) else made
    else:
        made = _dense_of_compressed(self)
    return made if dtype is None else made.to(dtype)


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
    if torchlike.is_grad_enabled() and values.requires_grad:
        raise NotImplementedError("sparse_coo_tensor(): values cannot be tracked; detach() them")
    indices = torchlike.as_tensor(indices, device=values.device).to(torchlike.int64)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    sparse, found = indices.shape
    if found != values.shape[0]:
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{found}, nnz from values: {values.shape[0]}"
        )
    ends = (indices.amax(1) + 1).tolist() if found else [0] * sparse
    if size is None:
        size = (*ends, *values.shape[1:])
    elif len(size) != sparse + values.dim() - 1:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
            f"sparse_dim = {sparse}, dense_dim = {values.dim() - 1}"
        )
    for dim, (end, limit) in enumerate(zip(ends, size, strict=False)):
        if end > limit:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {limit} but found index {end - 1}"
            )
    if found and indices.amin() < 0:
        raise RuntimeError(f"found negative index {indices.amin().item()}")
    made = _C._sparse_coo(indices, values, list(size), bool(is_coalesced))
    return made.requires_grad_() if requires_grad else made


def coalesce(self: Tensor) -> Tensor:
    """The same sparse COO tensor with sorted positions, each once."""
    if self.is_coalesced():
        return self
    indices, values = self._indices(), self._values()
    shape = tuple(self.shape)
    flat = torchlike.zeros(indices.shape[1], dtype=torchlike.int64, device=indices.device)
    for size, row in zip(shape, indices, strict=False):
        flat = flat * size + row
    order, where = torchlike.unique(flat, return_inverse=True)
    summed = values.new_zeros((order.numel(), *values.shape[1:])).index_add_(0, where, values)
    rows = []
    for size in reversed(shape[: indices.shape[0]]):
        rows.append(order % max(size, 1))
        order = torchlike.div(order, max(size, 1), rounding_mode="floor")
    return _C._sparse_coo(torchlike.stack(rows[::-1]), summed, list(shape), True)


def dequantize(self: Tensor) -> Tensor:
    """The real numbers that a quantised tensor stands for."""
    scheme = str(self.qscheme()).rpartition(".")[2]
    numbers = _C._integers(self)
    if scheme.startswith("per_tensor"):
        return (numbers.float() - self.q_zero_point()) * self.q_scale()
    shape = [1] * self.ndim
    shape[self.q_per_channel_axis()] = -1
    scales = self.q_per_channel_scales().reshape(shape)
    zeros = self.q_per_channel_zero_points().reshape(shape)
    return ((numbers - zeros).to(scales.dtype) * scales).float()
