"""The old storage classes of one dtype each: `FloatStorage(3)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchlike._C import UntypedStorage
from torchlike._storage_names import INTEGERS, LEGACY_DTYPES, _warn_typed_storage_removal
from torchlike._typed_storage import TypedStorage, _check_alone, _check_untyped, _is_int, _told


class _LegacyStorageMeta(type):
    """The type of the old storage classes: a storage of their dtype and device is an instance."""

    __module__ = "torchlike.storage"
    _dtype: Any
    device_type: str

    @property
    def dtype(cls) -> Any:
        """The dtype of the class's storages."""
        _warn_typed_storage_removal()
        return cls._dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            type(instance) is TypedStorage
            and instance.dtype == cls.__dict__.get("_dtype")
            and instance._untyped_storage.device.type == cls.device_type
        )


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """`FloatStorage(3)`, `FloatStorage([1, 2])`: makes a :class:`TypedStorage` of one dtype."""

    __module__ = "torchlike.storage"
    _dtype: Any

    def __new__(
        cls,
        *args: Any,
        wrap_storage: Any = None,
        dtype: Any = None,
        device: Any = None,
        _internal: bool = False,
    ) -> Any:
        """A storage of so many items, of these values, or over these bytes.

        Raises:
            RuntimeError: for the common base, several arguments, a dtype or device, and bytes on another device.
            TypeError: for what is neither a number nor a sequence, or no storage.
        """
        if not _internal:
            _warn_typed_storage_removal()
        if cls is _LegacyStorage:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        refusal = (
            f"{cls}.__new__ received an invalid combination of arguments. Expected one of:\n * no arguments\n"
            " * (int size)\n * (Sequence data)\n * (*, UntypedStorage wrap_storage)\n"
        )
        for name, value in (("device", device), ("dtype", dtype)):
            if value is not None:
                raise RuntimeError(f"{refusal}Keyword argument '{name}' cannot be specified")
        if wrap_storage is not None:
            return cls._wrapped(args, wrap_storage, refusal)
        if len(args) > 1:
            raise RuntimeError(f"{refusal}Too many positional arguments")
        if args and not _is_int(args[0]) and not isinstance(args[0], Sequence):
            raise TypeError(f"{refusal}Argument type not recognized: {type(args[0])}")
        return TypedStorage(*args, dtype=cls._dtype, device=cls.device_type, _internal=True)

    @classmethod
    def _wrapped(cls, args: Any, wrap_storage: Any, refusal: str) -> TypedStorage:
        _check_alone(refusal, args)
        _check_untyped(refusal, wrap_storage)
        if wrap_storage.device.type != cls.device_type:
            raise RuntimeError(
                f"{refusal}Device of 'wrap_storage' must be {cls.device_type}, but got {wrap_storage.device.type}"
            )
        return TypedStorage(wrap_storage=wrap_storage, dtype=cls._dtype, _internal=True)

    @classmethod
    def _new_shared(cls, size: int) -> Any:  # type: ignore[override]
        """A storage of so many items that other processes can map."""
        made = UntypedStorage._new_shared(size * cls._dtype.itemsize, device=cls.device_type)
        return TypedStorage(wrap_storage=made, dtype=cls._dtype, _internal=True)

    @classmethod
    def _from_buffer(cls, *args: Any, **options: Any) -> TypedStorage:
        if cls.device_type != "cpu":
            raise RuntimeError("from_buffer: Not available for CUDA storage")
        for name in ("dtype", "device"):
            if options.get(name) is not None or len(args) == 5:
                raise RuntimeError(
                    f"from_buffer: '{name}' can only be specified in UntypedStorage.from_buffer and "
                    "TypedStorage.from_buffer"
                )
        return super()._from_buffer(*args, dtype=cls._dtype, **options)

    from_buffer = classmethod(_told(_from_buffer.__func__))  # type: ignore[attr-defined]

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage of so many items over a file; written back only where it is `shared`.

        Raises:
            RuntimeError: if the file cannot be opened, or is too small.
        """
        _warn_typed_storage_removal()
        made = UntypedStorage.from_file(filename, shared, size * cls._dtype.itemsize)
        return TypedStorage(wrap_storage=made, dtype=cls._dtype, _internal=True)


def _legacy_storages(module: str, device: str) -> dict[str, Any]:
    """The old storage classes of a device, by name."""
    return {
        name: _LegacyStorageMeta(
            name,
            (_LegacyStorage,),
            {"_dtype": dtype, "device_type": device, "__module__": module},
        )
        for name, dtype in LEGACY_DTYPES.items()
        if device == "cpu" or dtype not in INTEGERS
    }
