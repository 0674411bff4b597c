"""Types of the array API, and what its functions share: numbers as arrays, axes as tuples."""

from __future__ import annotations

from typing import Any

import torchlike as torch

default_index = torch.int64

_SIGNED = {torch.int8, torch.int16, torch.int32, torch.int64}
UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
_REAL = {torch.float32, torch.float64}
_COMPLEX = {torch.complex64, torch.complex128}

KINDS = {
    "bool": {torch.bool},
    "signed integer": _SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": _SIGNED | UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED | UNSIGNED | _REAL | _COMPLEX,
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is another, of a kind of that name, or one of several.

    Raises:
        ValueError: for names of no kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"unknown kind of types: {kind!r}")
        return dtype in KINDS[kind]
    return bool(dtype == kind)


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


def array(x: Any, other: Any) -> Any:
    """A number as an array of the other operand's type."""
    if isinstance(x, torch.Tensor):
        return x
    kind = other.dtype
    if isinstance(x, complex) and not kind.is_complex:
        kind = torch.complex128 if kind == torch.float64 else torch.complex64
    elif isinstance(x, float) and not (kind.is_floating_point or kind.is_complex):
        kind = torch.get_default_dtype()
    return torch.asarray(x, dtype=kind, device=other.device)


def common(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Both operands in their common type; arrays without dimensions count as much as others do."""
    if x1.dtype == x2.dtype:
        return x1, x2
    kind = torch.promote_types(x1.dtype, x2.dtype)
    return x1.to(kind), x2.to(kind)


def axes_of(x: Any, axis: Any) -> tuple[int, ...]:
    """The axes that an argument means; None stands for all."""
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def one_axis(x: Any, axis: Any) -> Any:
    """The axis that an argument means; None stands for the only one.

    Raises:
        ValueError: for None, if there are others.
    """
    if axis is not None:
        return axis
    if x.ndim != 1:
        raise ValueError("axis has to be given unless the array has one dimension")
    return 0
