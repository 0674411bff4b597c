"""The old storage classes by name, and the word that typed storages are old."""

from __future__ import annotations

import warnings
from typing import Any

from torchlike import _C

LEGACY_DTYPES = {
    "DoubleStorage": _C.float64,
    "FloatStorage": _C.float32,
    "HalfStorage": _C.float16,
    "LongStorage": _C.int64,
    "IntStorage": _C.int32,
    "ShortStorage": _C.int16,
    "CharStorage": _C.int8,
    "ByteStorage": _C.uint8,
    "BoolStorage": _C.bool,
    "BFloat16Storage": _C.bfloat16,
    "ComplexDoubleStorage": _C.complex128,
    "ComplexFloatStorage": _C.complex64,
    "QInt8Storage": _C.qint8,
    "QInt32Storage": _C.qint32,
    "QUInt8Storage": _C.quint8,
    "QUInt4x2Storage": _C.quint4x2,
    "QUInt2x4Storage": _C.quint2x4,
}

# What the items of quantized types are kept as.
INTEGERS = {
    _C.quint8: _C.uint8,
    _C.quint4x2: _C.uint8,
    _C.quint2x4: _C.uint8,
    _C.qint32: _C.int32,
    _C.qint8: _C.int8,
}


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """The names of the old storage classes by dtype."""
    return {dtype: name for name, dtype in LEGACY_DTYPES.items()}


def _storage_type_to_dtype_map() -> dict[str, Any]:
    """The dtypes of the old storage classes by name."""
    return dict(LEGACY_DTYPES)


def _get_dtype_from_pickle_storage_type(pickle_storage_type: str) -> Any:
    """The dtype of an old storage class.

    Raises:
        KeyError: if there is no class of this name.
    """
    if pickle_storage_type not in LEGACY_DTYPES:
        raise KeyError(f'pickle storage type "{pickle_storage_type}" is not recognized')
    return LEGACY_DTYPES[pickle_storage_type]


_always_warn_typed_storage_removal = False
_has_warned = False


def _get_always_warn_typed_storage_removal() -> bool:
    """Whether every use of a typed storage warns, and not the first one alone."""
    return _always_warn_typed_storage_removal


def _set_always_warn_typed_storage_removal(always_warn: bool) -> None:
    global _always_warn_typed_storage_removal
    _always_warn_typed_storage_removal = always_warn


def _reset_warn_typed_storage_removal() -> None:
    """Makes the next use the first one."""
    global _has_warned
    _has_warned = False


def _warn_typed_storage_removal(stacklevel: int = 2) -> None:
    """Says the first time that typed storages are old."""
    global _has_warned
    if _has_warned and not _always_warn_typed_storage_removal:
        return
    _has_warned = True
    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
        "class. This should only matter to you if you are using storages directly.  To access UntypedStorage "
        "directly, use tensor.untyped_storage() instead of tensor.storage()",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
