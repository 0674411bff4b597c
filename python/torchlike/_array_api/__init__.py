"""The array API, version 2024.12: what `Tensor.__array_namespace__` gives.

Names, parameters and types of results are the standard's where they differ from PyTorch's; everything else is the
function of the library. Source: the specification of the Consortium for Python Data API Standards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torchlike as torch
from torchlike._array_api import fft, linalg
from torchlike._array_api._info import __array_namespace_info__
from torchlike._array_api._types import array, common, default_index, isdtype

__array_api_version__ = "2024.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

bool = torch.bool
int8, int16, int32, int64 = torch.int8, torch.int16, torch.int32, torch.int64
uint8, uint16, uint32, uint64 = torch.uint8, torch.uint16, torch.uint32, torch.uint64
float32, float64 = torch.float32, torch.float64
complex64, complex128 = torch.complex64, torch.complex128

# Functions that are the library's own.
_SAME = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "nextafter",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "tril",
    "triu",
    "trunc",
    "broadcast_to",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "from_dlpack",
    "finfo",
    "iinfo",
]
for _name in _SAME:
    globals()[_name] = getattr(torch, _name)
for _name, _ours in {
    "bitwise_invert": "bitwise_not", "conj": "conj_physical", "equal": "eq", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "negative": "neg", "not_equal": "ne", "broadcast_arrays": "broadcast_tensors",
}.items():  # fmt: skip
    globals()[_name] = getattr(torch, _ours)
del _name, _ours

matmul, matrix_transpose, tensordot, vecdot = (
    linalg.matmul,
    linalg.matrix_transpose,
    linalg.tensordot,
    linalg.vecdot,
)


# Creation.


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    """An array of anything that looks like one."""
    return torch.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Any:
    """Evenly spaced numbers of an interval without its end."""
    if stop is None:
        start, stop = 0, start
    if (step > 0 and stop <= start) or (step < 0 and stop >= start):
        real = [v for v in (start, stop, step) if not isinstance(v, int)]
        kind = dtype or (torch.get_default_dtype() if real else default_index)
        return torch.empty(0, dtype=kind, device=device)
    return torch.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of memory that nobody has written."""
    return torch.empty(shape, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of zeros."""
    return torch.zeros(shape, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of ones."""
    return torch.ones(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of one number."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return torch.full(shape, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: Any = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Ones on the diagonal `k`, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    made = torch.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        made.diagonal(k).fill_(1)
    return made


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: Any = True,
) -> Any:
    """`num` evenly spaced numbers, the last one left out unless `endpoint`."""
    if endpoint:
        return torch.linspace(start, stop, num, dtype=dtype, device=device)
    return torch.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of a grid."""
    if not arrays:
        return []
    return list(torch.meshgrid(*arrays, indexing=indexing))


# Types.


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """The array in another type."""
    return x.to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether promotion turns one type into another."""
    kind = from_.dtype if isinstance(from_, torch.Tensor) else from_
    return torch.can_cast(kind, to)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The type that arrays and types have in common."""
    given = [
        torch.empty(1, dtype=a) if isinstance(a, torch.dtype) else a for a in arrays_and_dtypes
    ]
    # The standard knows no difference between arrays of no dimension and others.
    given = [a.reshape(-1)[:1] if isinstance(a, torch.Tensor) else a for a in given]
    found = given[0]
    kind = found.dtype if isinstance(found, torch.Tensor) else None
    for other in given[1:]:
        kind = torch.result_type(found, other)
        found = torch.empty(1, dtype=kind)
    return kind if kind is not None else torch.result_type(torch.tensor(0), found)


# Elements.


def _binary(name: str) -> Any:
    ours = getattr(torch, name)

    def call(x1: Any, x2: Any, /) -> Any:
        x1, x2 = array(x1, x2), array(x2, x1)
        return ours(*common(x1, x2))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` of two arrays, or of an array and a number."
    return call


add, subtract, multiply, divide, floor_divide, remainder, pow = (
    _binary(n)
    for n in ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow")
)
maximum, minimum = _binary("maximum"), _binary("minimum")


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Each element within two bounds."""
    if min is None and max is None:
        return x.clone()
    for bound, fold in ((min, torch.maximum), (max, torch.minimum)):
        if bound is not None:
            x = fold(x, torch.as_tensor(bound, dtype=x.dtype, device=x.device))
    return x


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """Elements of one array where the condition holds, of the other elsewhere."""
    x1, x2 = common(array(x1, x2), array(x2, x1))
    return torch.where(condition, x1, x2)


# Reductions.


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _wide(x: Any, dtype: Any) -> Any:
    """The type that sums and products have."""
    if dtype is not None or x.dtype.is_floating_point or x.dtype.is_complex:
        return dtype or x.dtype
    return torch.uint64 if x.dtype in (uint8, uint16, uint32, uint64) else torch.int64


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """The sum along axes."""
    kind, axes = _wide(x, dtype), _axes(x, axis)
    if kind == torch.uint64:
        return x.to(int64).sum(axes, keepdim=keepdims).to(kind) if axes else x.to(kind)
    return x.sum(axes, keepdim=keepdims, dtype=kind) if axes else x.to(kind).clone()


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Any:
    """The product along axes."""
    kind = _wide(x, dtype)
    made = x.to(int64 if kind == torch.uint64 else kind)
    for d in sorted((d % x.ndim for d in _axes(x, axis)), reverse=True):
        made = made.prod(d, keepdim=keepdims)
    return made.to(kind)


def mean(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The mean along axes."""
    axes = _axes(x, axis)
    return x.mean(axes, keepdim=keepdims) if axes else x.clone()


def var(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """The variance along axes."""
    axes = _axes(x, axis)
    if not axes:
        return torch.zeros_like(x)
    return x.var(axes, correction=correction, keepdim=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: Any = 0.0, keepdims: Any = False) -> Any:
    """The standard deviation along axes."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def max(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The largest element along axes."""
    axes = _axes(x, axis)
    return x.amax(axes, keepdim=keepdims) if axes else x.clone()


def min(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """The smallest element along axes."""
    axes = _axes(x, axis)
    return x.amin(axes, keepdim=keepdims) if axes else x.clone()


def all(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Whether no element along axes is zero."""
    axes = _axes(x, axis)
    return x.to(bool).all(axes, keepdim=keepdims) if axes else x.to(bool)


def any(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Whether an element along axes is not zero."""
    axes = _axes(x, axis)
    return x.to(bool).any(axes, keepdim=keepdims) if axes else x.to(bool)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """How many elements along axes are not zero."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def argmax(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the largest element is."""
    return torch.argmax(x, axis, keepdim=keepdims)


def argmin(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Any:
    """Where the smallest element is."""
    return torch.argmin(x, axis, keepdim=keepdims)


def _scan(x: Any, axis: Any, dtype: Any, include_initial: Any, ours: Any, start: int) -> Any:
    if axis is None:
        if x.ndim != 1:
            raise ValueError("axis has to be given unless the array has one dimension")
        axis = 0
    kind = _wide(x, dtype)
    made = ours(x.to(int64 if kind == torch.uint64 else kind), axis).to(kind)
    if not include_initial:
        return made
    shape = list(x.shape)
    shape[axis] = 1
    return torch.cat([torch.full(shape, start, dtype=kind, device=x.device), made], dim=axis)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """The sums up to each element."""
    return _scan(x, axis, dtype, include_initial, torch.cumsum, 0)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: Any = False
) -> Any:
    """The products up to each element."""
    return _scan(x, axis, dtype, include_initial, torch.cumprod, 1)


# Shapes.


def concat(arrays: Any, /, *, axis: Any = 0) -> Any:
    """Arrays one after another."""
    if axis is None:
        arrays, axis = [a.reshape(-1) for a in arrays], 0
    return torch.cat(tuple(arrays), dim=axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays along a new axis."""
    return torch.stack(tuple(arrays), dim=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of an array along an axis."""
    return tuple(x.unbind(axis))


def expand_dims(x: Any, /, *, axis: int = 0) -> Any:
    """With a new axis of size 1."""
    return torch.unsqueeze(x, axis)


def squeeze(x: Any, /, axis: Any) -> Any:
    """Without axes of size 1.

    Raises:
        ValueError: if one has another size.
    """
    axes = _axes(x, axis)
    if not torch.Size(x.shape[a] for a in axes).numel() == 1:
        raise ValueError("squeezed axes have to be of size 1")
    return torch.squeeze(x, axes)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """The axes in another order."""
    return x.permute(tuple(axes))


def reshape(x: Any, /, shape: Any, *, copy: Any = None) -> Any:
    """The elements in another shape.

    Raises:
        ValueError: if that needs a copy and `copy` is false.
    """
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Elements moved along axes, those that fall off coming in again."""
    return torch.roll(x, shift, () if axis is None else axis)


def repeat(x: Any, repeats: Any, /, *, axis: Any = None) -> Any:
    """Each element several times."""
    return torch.repeat_interleave(x, repeats, dim=axis)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """The elements along axes in reverse."""
    return torch.flip(x, _axes(x, axis))


def tile(x: Any, repetitions: Any, /) -> Any:
    """The array several times along each axis."""
    return torch.tile(x, tuple(repetitions))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Axes at other places, the others in their order."""
    return torch.moveaxis(x, source, destination)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours, `n` times."""
    return torch.diff(x, n=n, dim=axis, prepend=prepend, append=append)


# Choosing, searching, sorting, sets.


def take(x: Any, indices: Any, /, *, axis: Any = None) -> Any:
    """The parts of an array with these numbers along an axis."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError("axis has to be given unless the array has one dimension")
        axis = 0
    return x.index_select(axis, indices)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """An element along an axis for each index."""
    return torch.take_along_dim(x, indices, dim=axis)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Where elements are not zero, an array a dimension."""
    if x.ndim == 0:
        raise ValueError("nonzero: the array has no dimensions")
    return tuple(torch.nonzero(x, as_tuple=True))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements belong in a sorted array."""
    return torch.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """The elements in order."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Any:
    """The numbers of the elements in order."""
    return torch.argsort(x, dim=axis, descending=descending, stable=stable)


class UniqueAll(NamedTuple):
    """Distinct values, where each comes first, which of them each element is, and how often it comes."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values, and how often each comes."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values, and which of them each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """Everything that is to say of the distinct values of an array."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    order = torch.argsort(inverse.reshape(-1), stable=True)
    first = counts.cumsum(0) - counts
    return UniqueAll(values, order[first], inverse, counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """Distinct values and their counts."""
    return UniqueCounts(*torch.unique(x, return_counts=True))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Distinct values and which of them each element is."""
    return UniqueInverse(*torch.unique(x, return_inverse=True))


def unique_values(x: Any, /) -> Any:
    """Distinct values."""
    return torch.unique(x)


__all__ = sorted(
    name
    for name in globals()
    if not name.startswith("_")
    and name
    not in ("annotations", "math", "Any", "NamedTuple", "torch", "array", "common", "default_index")
)
__all__ += ["__array_api_version__", "__array_namespace_info__", "isdtype"]
