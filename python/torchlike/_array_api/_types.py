"""What functions of the array API share: kinds of types, numbers as arrays."""

from __future__ import annotations

from typing import Any

import torchlike as torch

default_index = torch.int64

_SIGNED = {torch.int8, torch.int16, torch.int32, torch.int64}
_UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
_REAL = {torch.float32, torch.float64}
_COMPLEX = {torch.complex64, torch.complex128}

KINDS = {
    "bool": {torch.bool},
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED | _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED | _UNSIGNED | _REAL | _COMPLEX,
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
