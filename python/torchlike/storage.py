"""Storages: the bytes behind tensors, untyped and typed."""

from __future__ import annotations

import copyreg
from typing import Any

from torchlike import _untyped
from torchlike._C import UntypedStorage as UntypedStorage
from torchlike._old_storages import _legacy_storages, _LegacyStorage, _LegacyStorageMeta
from torchlike._storage_names import (
    _dtype_to_storage_type_map,
    _get_always_warn_typed_storage_removal,
    _get_dtype_from_pickle_storage_type,
    _reset_warn_typed_storage_removal,
    _set_always_warn_typed_storage_removal,
    _storage_type_to_dtype_map,
    _warn_typed_storage_removal,
)
from torchlike._typed_storage import TypedStorage as TypedStorage
from torchlike._typed_storage import _storage, typed_of

__all__ = [
    "TypedStorage",
    "UntypedStorage",
    "_LegacyStorage",
    "_LegacyStorageMeta",
    "_dtype_to_storage_type_map",
    "_get_always_warn_typed_storage_removal",
    "_get_dtype_from_pickle_storage_type",
    "_reset_warn_typed_storage_removal",
    "_set_always_warn_typed_storage_removal",
    "_storage",
    "_storage_type_to_dtype_map",
    "_warn_typed_storage_removal",
    "typed_of",
]

_StorageBase = UntypedStorage


def _load_from_bytes(b: bytes) -> Any:
    """The storage in a file that plain pickles contain."""
    from torchlike.serialization import load

    return load(b, weights_only=False)


_own_storages = _legacy_storages("torchlike", "cpu")

_untyped.install()
copyreg.pickle(TypedStorage, _untyped.reduce_storage)
