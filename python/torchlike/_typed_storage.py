"""Typed storages: items of a dtype, PyTorch's older view of storages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torchlike import _C, _naming, _untyped
from torchlike._C import UntypedStorage
from torchlike._storage_names import INTEGERS as _INTEGERS
from torchlike._storage_names import _dtype_to_storage_type_map, _warn_typed_storage_removal


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method for users, who are told that it is old."""

    @functools.wraps(method)
    def told(*args: Any, **options: Any) -> Any:
        _warn_typed_storage_removal()
        return method(*args, **options)

    told.__name__ = method.__name__.lstrip("_") or method.__name__
    return told


_TYPED_FORMS = """TypedStorage.__init__ received an invalid combination of arguments. Expected one of:
 * (*, torch.device device, torch.dtype dtype)
 * (int size, *, torch.device device, torch.dtype dtype)
 * (Sequence data, *, torch.device device, torch.dtype dtype)
 * (*, UntypedStorage wrap_storage, torch.dtype dtype)
"""


class TypedStorage:
    """A storage whose items have a dtype (PyTorch's older view of storages)."""

    __module__ = "torchlike.storage"
    dtype: Any
    is_sparse = False

    def __init__(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        wrap_storage: Any = None,
        _internal: bool = False,
    ) -> None:
        """A number of items without values, the items of a sequence, or the items in the storage ``wrap_storage``.

        Raises:
            RuntimeError: for several arguments, or a storage beside them or without a dtype.
            TypeError: for what is neither a number nor a sequence, or no storage.
        """
        if not _internal:
            _warn_typed_storage_removal()
        if wrap_storage is not None:
            _check_alone(_TYPED_FORMS, args)
            _check_options(dtype, device)
            _check_untyped(_TYPED_FORMS, wrap_storage)
            self._untyped_storage, self.dtype = wrap_storage, dtype
            return
        self.dtype = _C.get_default_dtype() if dtype is None else dtype
        device = _C.device("cpu" if device is None else device)
        if len(args) > 1:
            raise RuntimeError(f"{_TYPED_FORMS}Too many positional arguments")
        given = args[0] if args else 0
        if _is_int(given):
            self._untyped_storage = UntypedStorage(int(given) * self.dtype.itemsize, device=device)
        elif isinstance(given, Sequence):
            items = _C.tensor(given, dtype=_INTEGERS.get(self.dtype, self.dtype), device=device)
            self._untyped_storage = items.untyped_storage()
        else:
            raise TypeError(f"{_TYPED_FORMS}Argument type not recognized: {type(given)}")

    @property
    def _dtype(self) -> Any:
        return self.dtype

    @property
    def filename(self) -> str | None:
        """The name of the file that the storage was mapped from by `from_file`."""
        return self._untyped_storage.filename

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        _warn_typed_storage_removal()
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        _warn_typed_storage_removal()
        return self._untyped_storage.device.type == "cuda"

    @property
    def is_hpu(self) -> bool:
        """False: there are no such devices here."""
        _warn_typed_storage_removal()
        return False

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def _size(self) -> int:
        """The number of items."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def _nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped_storage.nbytes()

    def _element_size(self) -> int:
        """Bytes of one item."""
        return self.dtype.itemsize

    def _data_ptr(self) -> int:
        """The address of the first byte."""
        return self._untyped_storage.data_ptr()

    def _untyped(self) -> UntypedStorage:
        """The bytes without a dtype."""
        return self._untyped_storage

    def _sizeof(self) -> int:
        """Bytes of the object, and of what it holds."""
        return object.__sizeof__(self) + self._nbytes()

    def _items(self) -> Any:
        dtype = _INTEGERS.get(self.dtype, self.dtype)
        return _C._from_storage(self._untyped_storage, dtype, (self._size(),), (1,), 0)

    def _tolist(self) -> list[Any]:
        """The items as Python numbers.

        Raises:
            NotImplementedError: on meta.
        """
        if self._untyped_storage.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._items().tolist()

    def _iter(self) -> Any:
        """The items one after another."""
        return iter(self._tolist())

    def _getitem(self, idx: Any) -> Any:
        """An item as a Python number.

        Raises:
            NotImplementedError: on meta.
            RuntimeError: for parts, and what is no integer.
            IndexError: if there is no such item.
        """
        if self._untyped_storage.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if isinstance(idx, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(idx, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(idx)}")
        if not -self._size() <= idx < self._size():
            raise IndexError(f"index {idx} out of range for storage of size {self._size()}")
        return self._items()[idx].item()

    def _setitem(self, idx: Any, value: Any) -> None:
        """Sets an item, or each item of a part.

        Raises:
            RuntimeError: for other indices, and for storages as values.
        """
        if not isinstance(idx, int | slice):
            raise RuntimeError(f"can't index a {type(self)} with {type(idx)}")
        if isinstance(value, TypedStorage | UntypedStorage):
            raise RuntimeError(f"cannot set item with value type {type(value)}")
        self._items()[idx] = value

    def _fill_(self, value: Any) -> TypedStorage:
        """Sets every item."""
        self._setitem(slice(0, self._size()), value)
        return self

    def _copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Takes the bytes of another storage of the same size."""
        source = getattr(source, "_untyped_storage", source)
        self._untyped_storage.copy_(source, non_blocking)
        return self

    def _over(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype, _internal=True)

    def _cpu(self) -> TypedStorage:
        """The storage in the host's memory."""
        return self._over(self._untyped_storage.cpu())

    def _cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a GPU."""
        if self.dtype in _INTEGERS:
            raise RuntimeError("Cannot create CUDA storage with quantized dtype")
        return self._over(self._untyped_storage.cuda(device, non_blocking))

    def _moved(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The storage on a device."""
        device = _C.device(device)
        if self.dtype in _INTEGERS:
            raise RuntimeError(f"Cannot create {device.type.upper()} storage with quantized dtype")
        return self._over(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    def _clone(self) -> TypedStorage:
        """A copy."""
        return self._over(self._untyped_storage.clone())

    def _deepcopy(self, memo: dict[Any, Any]) -> TypedStorage:
        """A copy, over one of the bytes for all that share them."""
        import copy

        return self._over(copy.deepcopy(self._untyped_storage, memo))

    def _type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage's old class, or the bytes in a storage of another class."""
        if dtype is not None:
            return self._untyped_storage.type(dtype, non_blocking)
        legacy = self._get_legacy_storage_class()
        shown = TypedStorage if legacy is None else legacy
        return f"{shown.__module__}.{shown.__name__}"

    def _get_legacy_storage_class(self) -> Any:
        """The old class of such storages; None if there is none."""
        import importlib

        where = {"cpu": "torchlike", "cuda": "torchlike.cuda"}.get(
            self._untyped_storage.device.type
        )
        name = _dtype_to_storage_type_map().get(self.dtype)
        if where is None or name is None:
            return None
        return getattr(importlib.import_module(where), name, None)

    def _get_device(self) -> int:
        """The number of the storage's GPU; -1 on the host."""
        return self._untyped_storage.get_device()

    def _is_pinned(self, device: Any = None) -> bool:
        """Whether the bytes lie in page-locked memory."""
        return self._untyped_storage.is_pinned(device)

    def _pin_memory(self, device: Any = None) -> TypedStorage:
        """The storage in page-locked memory."""
        return self._over(self._untyped_storage.pin_memory(device))

    def _is_shared(self) -> bool:
        """Whether other processes can map the bytes."""
        return bool(self._untyped_storage.is_shared())

    def _share_memory_(self) -> TypedStorage:
        """Moves the bytes to where other processes can map them."""
        self._untyped_storage.share_memory_()
        return self

    def _share_fd_cpu_(self) -> tuple[int, int]:
        fd, nbytes = self._untyped_storage._share_fd_cpu_()
        return fd, nbytes // self.dtype.itemsize

    def _new_shared(self, size: int, *, device: Any = None) -> TypedStorage:
        """A storage of so many items of this dtype that other processes can map."""
        nbytes = size * self.dtype.itemsize
        return self._over(UntypedStorage._new_shared(nbytes, device=device or "cpu"))

    def _resizable(self) -> bool:
        """Whether the number of items can change."""
        return self._untyped_storage.resizable()

    def _resize_(self, size: int) -> None:
        """Changes the number of items."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def _pickle_storage_type(self) -> str:
        """The name of the old class that pickles name.

        Raises:
            KeyError: for dtypes without one.
        """
        names = _dtype_to_storage_type_map()
        if self.dtype not in names:
            raise KeyError(f"dtype {self.dtype} is not recognized")
        return names[self.dtype]

    def _to(self, dtype: Any) -> TypedStorage:
        """The items as those of another dtype."""
        return _untyped.cast(self._items(), dtype)

    @classmethod
    def _from_buffer(
        cls, *args: Any, dtype: Any = None, device: Any = None, **options: Any
    ) -> TypedStorage:
        """A copy of a buffer's items; see `UntypedStorage.from_buffer`."""
        dtype = _C.get_default_dtype() if dtype is None else dtype
        if device is not None and _C.device(device).type != "cpu":
            raise RuntimeError(f"TypedStorage.from_buffer: Not available for device {device}")
        options["dtype"] = dtype
        made = _untyped.from_buffer(*args, **options)
        return TypedStorage(wrap_storage=made, dtype=dtype, _internal=True)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage of so many items over a file; written back only where it is `shared`.

        Raises:
            RuntimeError: for this class, which has no dtype, and if the file is too small or cannot be opened.
        """
        _warn_typed_storage_removal()
        raise RuntimeError("from_file can only be called on derived classes")

    from_buffer = classmethod(_told(_from_buffer.__func__))  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and other._cdata == self._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def _text(self) -> str:
        storage = self._untyped_storage
        tail = (
            f"[{_naming.shown}.storage.TypedStorage(dtype={self.dtype}, device={storage.device}) "
            f"of size {self._size()}]"
        )
        if storage.device.type == "meta" or _C._is_fake(self._items()):
            return f"...\n{tail}"
        return " " + "\n ".join(str(v) for v in self._tolist()) + "\n" + tail


_FOR_USERS = {
    "_size": ("size", "__len__"),
    "_untyped": ("untyped",),
    "_sizeof": ("__sizeof__",),
    "_iter": ("__iter__",),
    "_getitem": ("__getitem__",),
    "_setitem": ("__setitem__",),
    "_moved": ("to",),
    "_clone": ("clone", "__copy__"),
    "_deepcopy": ("__deepcopy__",),
    "_text": ("__repr__", "__str__"),
}
# The methods that users know by the name without the line before it.
_BY_NAME = (
    "_nbytes _element_size _data_ptr _tolist _fill_ _copy_ _cpu _cuda _type _get_device _is_pinned _pin_memory "
    "_is_shared _share_memory_ _resizable _resize_ _pickle_storage_type"
)
_FOR_USERS |= {name: (name[1:],) for name in _BY_NAME.split(" ")}


def _caster(name: str, dtype: Any) -> Any:
    def method(self: TypedStorage) -> TypedStorage:
        _warn_typed_storage_removal()
        return self._to(dtype)

    method.__name__, method.__doc__ = name, f"The items as those of {name} type."
    return method


for _own, _names in _FOR_USERS.items():
    for _name in _names:
        setattr(TypedStorage, _name, _told(getattr(TypedStorage, _own)))
for _name, _dtype in _untyped.CASTS.items():
    setattr(TypedStorage, _name, _caster(_name, _dtype))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) or (
        hasattr(value, "__index__") and type(value).__module__ == "numpy" and not value.ndim
    )


def _check_alone(forms: str, args: Any) -> None:
    """Refuses arguments beside the storage to lie over; ``forms`` are what the constructor takes."""
    if args:
        raise RuntimeError(
            f"{forms}No positional arguments should be given when using 'wrap_storage'"
        )


def _check_untyped(forms: str, wrap_storage: Any) -> None:
    """Refuses what is no storage to lie over."""
    if not isinstance(wrap_storage, UntypedStorage):
        raise TypeError(
            f"{forms}Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}"
        )


def _check_options(dtype: Any, device: Any) -> None:
    """A typed storage over another one has a dtype, and the device of the other one."""
    if dtype is None:
        raise RuntimeError(f"{_TYPED_FORMS}Argument 'dtype' must be specified")
    if not isinstance(dtype, _C.dtype):
        raise TypeError(f"{_TYPED_FORMS}Argument 'dtype' must be torch.dtype, not {type(dtype)}")
    if device is not None:
        raise RuntimeError(
            f"{_TYPED_FORMS}Argument 'device' should not be specified when 'wrap_storage' is given"
        )


def typed_of(t: _C.Tensor) -> TypedStorage:
    """A tensor's storage with its dtype, without a word of its age."""
    return TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype, _internal=True)


def _storage(t: _C.Tensor) -> TypedStorage:
    """`Tensor.storage()`."""
    _warn_typed_storage_removal(stacklevel=1)
    return typed_of(t)
