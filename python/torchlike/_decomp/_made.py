"""New tensors in core operators."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._decomp._table import aten, cast, chosen, core, counting, full


def filled_like(self: Any, value: Any, **how: Any) -> Any:
    """A tensor of one value that lies as another one."""
    how = {k: v for k, v in how.items() if v is not None}
    how = {"memory_format": torchlike.preserve_format} | how
    return aten.full_like.default(self, value, pin_memory=False, **how)


def _how(dtype: Any, layout: Any, device: Any) -> dict[str, Any]:
    return {
        "dtype": torchlike.get_default_dtype() if dtype is None else dtype,
        "layout": torchlike.strided if layout is None else layout,
        "device": torchlike.get_default_device() if device is None else device,
        "pin_memory": False,
    }


@core("ones.default")
def ones(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Any:
    """Ones."""
    return aten.full.default(size, 1, **_how(dtype, layout, device))


@core("zeros.default")
def zeros(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Any:
    """Zeros."""
    return aten.full.default(size, 0, **_how(dtype, layout, device))


@core("ones_like.default")
def ones_like(self: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Ones that lie as another tensor."""
    return filled_like(self, 1, dtype=dtype, device=device)


@core("zeros_like.default")
def zeros_like(self: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Zeros that lie as another tensor."""
    return filled_like(self, 0, dtype=dtype, device=device)


def _of(self: Any, dtype: Any, layout: Any, device: Any) -> dict[str, Any]:
    return _how(
        self.dtype if dtype is None else dtype, layout, self.device if device is None else device
    )


@core("new_zeros.default")
def new_zeros(
    self: Any, size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any
) -> Any:
    """Zeros of another tensor's type."""
    return aten.full.default(size, 0, **_of(self, dtype, layout, device))


@core("new_ones.default")
def new_ones(
    self: Any, size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any
) -> Any:
    """Ones of another tensor's type."""
    return aten.full.default(size, 1, **_of(self, dtype, layout, device))


@core("new_full.default")
def new_full(
    self: Any,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    **_: Any,
) -> Any:
    """One value, of another tensor's type."""
    return aten.full.default(size, fill_value, **_of(self, dtype, layout, device))


@core("fill.Scalar")
def fill(self: Any, value: Any) -> Any:
    """One value everywhere."""
    return aten.full_like.default(self, value, pin_memory=False)


@core("zero.default")
def zero(self: Any) -> Any:
    """Zero everywhere."""
    return filled_like(self, 0)


@core("fill.Tensor")
def fill_tensor(self: Any, value: Any) -> Any:
    """The value of another tensor everywhere."""
    return aten.copy.default(self, value)


@core("empty_like.default")
def empty_like(
    self: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    memory_format: Any = None,
    **_: Any,
) -> Any:
    """A tensor without values that lies as another one."""
    how = _of(self, dtype, layout, device)
    if memory_format not in (None, torchlike.preserve_format):
        return aten.empty.memory_format(list(self.shape), **how, memory_format=memory_format)
    strides = self.stride()
    order = sorted(range(self.dim()), key=lambda d: (-strides[d], d))
    return aten.empty_permuted.default(list(self.shape), order, **how)


@core("arange.default")
def arange(end: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Any:
    """Numbers from 0."""
    return arange_from(0, end, dtype=dtype, layout=layout, device=device)


@core("arange.start")
def arange_from(
    start: Any, end: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any
) -> Any:
    """Numbers from one to another."""
    how = {} if dtype is None else {"dtype": dtype}
    where = torchlike.get_default_device() if device is None else device
    return counting(end, where, start, **how)


@core("eye.default")
def eye(n: int, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Any:
    """Ones on the diagonal."""
    return eye_of(n, n, dtype=dtype, device=device)


@core("eye.m")
def eye_of(
    n: int, m: int, *, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any
) -> Any:
    """Ones on the diagonal of a matrix of any shape."""
    how = _how(dtype, layout, device)
    rows = counting(n, how["device"], dtype=torchlike.uint8)
    columns = counting(m, how["device"], dtype=torchlike.uint8)
    if max(n, m) > 255:
        return NotImplemented
    return cast(aten.eq.Tensor(aten.unsqueeze.default(rows, -1), columns), how["dtype"])


@core("linspace.default")
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    **_: Any,
) -> Any:
    """Numbers in even steps, counted from the nearer end."""
    how = _how(dtype, layout, device)
    kind = how["dtype"]
    if steps == 0:
        return aten.full.default([0], 0, **how)
    if steps == 1:
        return aten.full.default([1], start, **how)
    if not kind.is_floating_point or kind.itemsize < 4:
        return NotImplemented
    at = counting(steps, how["device"])
    step = (end - start) / (steps - 1)
    first = aten.lt.Scalar(at, steps / 2)
    up = aten.add.Tensor(aten.mul.Tensor(cast(at, kind), step), start)
    down = aten.mul.Tensor(cast(aten.sub.Tensor(steps - 1, at), kind), step)
    return aten.where.self(first, up, aten.sub.Tensor(end, down))


@core("block_diag.default")
def block_diag(tensors: Any) -> Any:
    """Matrices along a diagonal."""
    if any(t.dim() != 2 for t in tensors) or len({t.dtype for t in tensors}) > 1:
        return NotImplemented
    width, before, rows = sum(t.shape[1] for t in tensors), 0, []
    for t in tensors:
        left, right = [t.shape[0], before], [t.shape[0], width - before - t.shape[1]]
        rows.append(aten.cat.default([full(left, 0, t), t, full(right, 0, t)], 1))
        before += t.shape[1]
    return aten.cat.default(rows)


@core("tril.default")
def tril(self: Any, diagonal: int = 0) -> Any:
    """What is on a diagonal and below."""
    return chosen(aten.le.Scalar(_across(self), diagonal), self, 0)


@core("triu.default")
def triu(self: Any, diagonal: int = 0) -> Any:
    """What is on a diagonal and above."""
    return chosen(aten.ge.Scalar(_across(self), diagonal), self, 0)


def _across(self: Any) -> Any:
    columns = aten.unsqueeze.default(counting(self.shape[-1], self.device), -2)
    rows = aten.unsqueeze.default(counting(self.shape[-2], self.device), -1)
    return aten.sub.Tensor(columns, rows)
