"""Operators that PyTorch has as one, made of others here."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike import return_types
from torchlike._function import overridable

__all__ = [
    "_chunk_cat",
    "_segment_reduce",
    "_shape_as_tensor",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "cond",
    "histogramdd",
    "segment_reduce",
]


def _edges(t: Any, bins: list[int], limits: Any) -> list[Any]:
    """Edges of equal bins for each column, between given limits or the smallest and largest number."""
    found = []
    for d, count in enumerate(bins):
        if count <= 0:
            raise RuntimeError(
                f"torch.histogram(): bins must be > 0, but got {count} for dimension {d}"
            )
        if limits is not None:
            low, high = limits[2 * d], limits[2 * d + 1]
        elif t.shape[0] == 0:
            low, high = 0.0, 1.0
        else:
            low, high = (float(v) for v in torchlike.aminmax(t[:, d]))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(
                f"torch.histogramdd: dimension {d}'s range [{low:g}, {high:g}] is not finite"
            )
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {d}"
            )
        if low == high:
            low, high = low - 0.5, high + 0.5
        found.append(torchlike.linspace(low, high, count + 1, dtype=t.dtype, device=t.device))
    return found


def _check_histogram(input: Any, bins: Any, limits: Any, weight: Any) -> tuple[int, list[Any]]:
    """PyTorch's words before anything is counted; the number of columns, and what is said of each."""
    if not isinstance(input, torchlike.Tensor):
        raise TypeError("histogramdd(): argument 'input' (position 1) must be Tensor")
    if input.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if input.dtype not in (torchlike.float32, torchlike.float64):
        raise NotImplementedError(f'"histogramdd" not implemented for {_shown(input.dtype)!r}')
    columns = input.shape[-1]
    if isinstance(bins, int) and not isinstance(bins, bool):
        bins = [bins] * columns
    if not isinstance(bins, list | tuple):
        raise TypeError(
            "histogramdd() received an invalid combination of arguments: bins have to be an integer, or a list of "
            "integers or tensors"
        )
    if len(bins) != columns:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    if limits is not None and len(limits) != 2 * columns:
        raise RuntimeError(
            f"torch.histogramdd: for a {columns}-dimensional histogram range should have {2 * columns} elements, "
            f"but got {len(limits)}"
        )
    if weight is not None:
        if weight.dtype != input.dtype:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                f"dtype, but got input({_spelled(input.dtype)}), and weight({_spelled(weight.dtype)})"
            )
        if weight.shape != input.shape[:-1]:
            raise RuntimeError(
                "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with "
                f"shape {list(weight.shape)}"
            )
    return columns, list(bins)


def _spelled(dtype: Any) -> str:
    """The name of a type in C++."""
    return {"float32": "float", "float64": "double"}.get(_plain(dtype), _plain(dtype))


def _plain(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _shown(dtype: Any) -> str:
    """The name of a type in messages about kernels."""
    names = {"float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int"}
    return names.get(_plain(dtype), _plain(dtype).capitalize())


@overridable
def histogramdd(
    input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """How many vectors (the last dimension of `input`) fall in each cell of a grid, or the sum of their weights.

    `bins` is the number of cells along each dimension, or the edges between them; `density` divides by the whole and by
    the size of a cell.
    """
    columns, given = _check_histogram(input, bins, range, weight)
    flat = input.detach().reshape(-1, columns)
    if all(isinstance(b, torchlike.Tensor) for b in given):
        for d, b in enumerate(given):
            if b.dtype != input.dtype:
                raise RuntimeError(
                    "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with "
                    f"dtype {_spelled(input.dtype)} and bins for dimension {d} with dtype {_spelled(b.dtype)}"
                )
            if b.dim() != 1:
                raise RuntimeError(
                    "torch.histogramdd: bins tensor should have one dimension, but got "
                    f"{b.dim()} dimensions in the bins tensor for dimension {d}"
                )
            if b.numel() == 0:
                raise RuntimeError(
                    "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins "
                    f"tensor for dimension {d}"
                )
        edges = given
    else:
        edges = _edges(flat, given, range)
    sizes = [len(e) - 1 for e in edges]
    place = torchlike.zeros(flat.shape[0], dtype=torchlike.int64, device=flat.device)
    inside = torchlike.ones(flat.shape[0], dtype=torchlike.bool, device=flat.device)
    for d, e in enumerate(edges):
        column = flat[:, d].contiguous()
        cell = torchlike.searchsorted(e.contiguous(), column, right=True) - 1
        # The last edge belongs to the last cell.
        cell = torchlike.where(column == e[-1], sizes[d] - 1, cell)
        inside &= (column >= e[0]) & (column <= e[-1])
        place = place * sizes[d] + cell.clamp(0, max(sizes[d] - 1, 0))
    counts = torchlike.zeros(math.prod(sizes), dtype=flat.dtype, device=flat.device)
    amounts = (
        torchlike.ones_like(counts[:1]) if weight is None else weight.detach().reshape(-1)[inside]
    )
    if counts.numel():
        counts.index_add_(0, place[inside], amounts.expand(int(inside.sum())))
    hist = counts.reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            shape = [1] * columns
            shape[d] = -1
            hist = hist / e.diff().reshape(shape)
    made = return_types._class("histogramdd", ("hist", "bin_edges"))
    return made((hist, tuple(edges)))


_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_FOLDS = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


@overridable
def segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Sums, products, means or extremes of segments of a dimension, whose lengths or edges are given.

    An empty segment gives `initial`, or what nothing is for this `reduce`.
    """
    if reduce not in _STARTS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if not -data.dim() <= axis < data.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-data.dim()}, {data.dim() - 1}], but got {axis})"
        )
    axis %= data.dim()
    if lengths is None:
        lengths = offsets.diff(dim=axis)
    if lengths.dtype not in (torchlike.int32, torchlike.int64):
        raise NotImplementedError(
            f'"_segment_reduce_lengths_cpu_kernel1" not implemented for {_shown(lengths.dtype)!r}'
        )
    lengths = lengths.to(torchlike.int64)
    size = data.shape[axis]
    if not unsafe and lengths.device.type != "meta":
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if offsets is None and bool((lengths.sum(axis) != size).any()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                "!unsafe."
            )
    count = lengths.shape[axis]
    last = torchlike.arange(size, device=data.device).expand(*lengths.shape[:axis], size)
    # Elements behind the last segment go to one of their own.
    segment = torchlike.searchsorted(lengths.cumsum(axis), last.contiguous(), right=True)
    place = segment.reshape(*segment.shape, *[1] * (data.dim() - axis - 1)).expand(data.shape)
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1 :])
    start = _STARTS[reduce] if initial is None else initial
    made = data.new_full(shape, start).scatter_reduce(axis, place, data, _FOLDS[reduce])
    made = made.narrow(axis, 0, count)
    if reduce == "mean":
        many = lengths.reshape(*lengths.shape, *[1] * (data.dim() - axis - 1))
        empty = math.nan if initial is None else initial
        made = torchlike.where(many > 0, made / many.clamp(min=1), empty)
    return made.contiguous()


_segment_reduce = segment_reduce


def _chunk_cat(tensors: Any, dim: int, num_chunks: int, *, out: Any = None) -> Any:
    """Each tensor cut along `dim` into chunks of one size, filled up with zeros, and the chunks side by side."""
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    dim %= tensors[0].dim()
    rows = []
    for t in tensors:
        chunk = -(-t.shape[dim] // num_chunks)
        padded = t.new_zeros((*t.shape[:dim], chunk * num_chunks, *t.shape[dim + 1 :]))
        padded.narrow(dim, 0, t.shape[dim]).copy_(t)
        rows.append(padded.reshape(*t.shape[:dim], num_chunks, -1))
    made = torchlike.cat(rows, dim=dim + 1)
    return made if out is None else out.copy_(made)


def _clamped(self: Any, indices: Any) -> list[Any]:
    """Indices that lie within a tensor."""
    return [
        None if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, self.shape, strict=False)
    ]


def _unsafe_masked_index(self: Any, mask: Any, indices: Any, fill: Any) -> Any:
    """The elements at indices where a mask is true, and `fill` elsewhere."""
    return self[
        tuple(slice(None) if i is None else i for i in _clamped(self, indices))
    ].masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(self: Any, mask: Any, indices: Any, values: Any) -> Any:
    """A tensor with values added at indices where a mask is true."""
    return self.index_put(
        tuple(_clamped(self, indices)), values.masked_fill(~mask, 0), accumulate=True
    )


def _shape_as_tensor(self: Any) -> Any:
    """The sizes of a tensor, as a tensor of integers on the host."""
    return torchlike.tensor(list(self.shape), dtype=torchlike.int64)


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`.

    Raises:
        RuntimeError: if `pred` is no truth value.
    """
    from torchlike import _higher_order_ops

    return _higher_order_ops.cond(pred, true_fn, false_fn, operands)
