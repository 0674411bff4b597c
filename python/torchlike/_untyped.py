"""What Python adds to `UntypedStorage`: items and parts, copies, casts, buffers and where the bytes lie."""

from __future__ import annotations

import copyreg
from typing import Any

from torchlike import _C
from torchlike._C import UntypedStorage
from torchlike._mapped import NAMES, storage_from_file

CASTS: dict[str, Any] = {
    "double": _C.float64,
    "float": _C.float32,
    "half": _C.float16,
    "long": _C.int64,
    "int": _C.int32,
    "short": _C.int16,
    "char": _C.int8,
    "byte": _C.uint8,
    "bool": _C.bool,
    "bfloat16": _C.bfloat16,
    "complex_double": _C.complex128,
    "complex_float": _C.complex64,
    "float8_e5m2": _C.float8_e5m2,
    "float8_e4m3fn": _C.float8_e4m3fn,
    "float8_e5m2fnuz": _C.float8_e5m2fnuz,
    "float8_e4m3fnuz": _C.float8_e4m3fnuz,
}

NO_DATA = "Cannot copy out of meta tensor; no data!"

_item, _set_item, _fill = (
    UntypedStorage.__getitem__,
    UntypedStorage.__setitem__,
    UntypedStorage.fill_,
)


def _limits(index: slice, size: int) -> tuple[int, int]:
    start, stop, step = index.indices(size)
    if step != 1:
        raise RuntimeError(
            f"Trying to slice with a step of {step}, but only a step of 1 is supported"
        )
    return start, max(stop, start)


def _getitem(self: UntypedStorage, index: Any) -> Any:
    """A byte, or a part as a storage over the same memory.

    Raises:
        NotImplementedError: on meta, and for parts that are not in the host's memory.
        RuntimeError: for steps.
    """
    if self.device.type == "meta":
        raise NotImplementedError("Not available for 'meta' device type")
    if not isinstance(index, slice):
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        return _item(self, index)
    start, stop = _limits(index, self.nbytes())
    if self.device.type != "cpu":
        raise NotImplementedError("parts of storages that are not in the memory of the host")
    if (start, stop) == (0, self.nbytes()):
        return self
    return self._part(start, stop - start)


def _setitem(self: UntypedStorage, index: Any, value: Any) -> None:
    """Sets a byte, or each byte of a part.

    Raises:
        RuntimeError: for indices and values of other types, and steps.
    """
    if not hasattr(value, "__index__"):
        raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
    if self.device.type == "meta":
        return
    if isinstance(index, slice):
        start, stop = _limits(index, self.nbytes())
        _bytes(self)[start:stop] = int(value) & 0xFF
    elif hasattr(index, "__index__"):
        _set_item(self, index, int(value) & 0xFF)
    else:
        raise RuntimeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")


def _filled(self: UntypedStorage, value: Any) -> UntypedStorage:
    """Sets every byte.

    Raises:
        RuntimeError: if the value is no integer.
    """
    if not hasattr(value, "__index__"):
        raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
    return _fill(self, int(value) & 0xFF)


def _iter(self: UntypedStorage) -> Any:
    """The bytes as integers."""
    return iter(self.tolist())


def _sizeof(self: UntypedStorage) -> int:
    """Bytes of the object, and of what it holds."""
    return object.__sizeof__(self) + self.nbytes()


def _untyped(self: UntypedStorage) -> UntypedStorage:
    """Itself."""
    return self


def _get_filename(self: UntypedStorage) -> str | None:
    """The name of the file that the storage writes to, where `from_file` was told to share it."""
    return NAMES.get(self._cdata)


def _copy(self: UntypedStorage, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
    """Takes the bytes of another storage of the same size.

    Raises:
        RuntimeError: if the sizes differ.
        NotImplementedError: from meta to elsewhere.
    """
    source = source.untyped()
    if source.nbytes() != self.nbytes():
        raise RuntimeError(
            f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes"
        )
    if source.device.type == "meta" and self.device.type != "meta":
        raise NotImplementedError(NO_DATA)
    _bytes(self).copy_(_bytes(source))
    return self


def _bytes(storage: Any) -> Any:
    return _C._from_storage(storage, _C.uint8, (storage.nbytes(),), (1,), 0)


def _cpu(self: UntypedStorage) -> UntypedStorage:
    """The bytes in the host's memory: the storage itself where they are there.

    Raises:
        NotImplementedError: on meta.
    """
    return self if self.device.type == "cpu" else UntypedStorage(self.nbytes()).copy_(self)


def _to(self: UntypedStorage, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
    """The bytes on a device: the storage itself where they are there."""
    device = _C.device(device)
    if device == self.device or (device.type, device.index) == (self.device.type, None):
        return self
    return UntypedStorage(self.nbytes(), device=device).copy_(self, non_blocking)


def _cuda(self: UntypedStorage, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
    """The bytes on a GPU."""
    where = _C.device("cuda", device) if device else _C.device("cuda")
    return self.to(device=where, non_blocking=non_blocking)


def _type(self: UntypedStorage, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the storage's class, or the bytes in a storage of another class."""
    from torchlike import _naming

    if dtype is None:
        return f"{_naming.shown}.storage.{type(self).__name__}"
    if isinstance(dtype, str):
        import importlib

        module, _, name = dtype.rpartition(".")
        dtype = getattr(importlib.import_module(module), name)
    if isinstance(self, dtype):
        return self
    return dtype(self.size()).copy_(self, non_blocking)


def _get_device(self: UntypedStorage) -> int:
    """The number of the storage's GPU; -1 on the host."""
    return -1 if self.device.index is None else self.device.index


def _new(self: UntypedStorage) -> UntypedStorage:
    """An empty storage on the same device."""
    return UntypedStorage(0, device=self.device)


def _copied(self: UntypedStorage) -> UntypedStorage:
    return self.clone()


def _deepcopy(self: UntypedStorage, memo: dict[Any, Any]) -> UntypedStorage:
    """A copy: one for all that share the storage."""
    known = memo.setdefault("torch", {})
    if self._cdata not in known:
        known[self._cdata] = self.clone()
    return known[self._cdata]


def cast(typed: Any, dtype: Any) -> Any:
    """The items of a tensor in a typed storage of their own.

    Raises:
        TypeError: if `dtype` is none.
    """
    from torchlike.storage import typed_of

    if not isinstance(dtype, _C.dtype):
        raise TypeError(f"Argument 'dtype' must be torch.dtype, not {type(dtype)}")
    return typed_of(typed.to(dtype, copy=True))


def _cast(self: UntypedStorage, dtype: Any) -> Any:
    """The bytes as items of a dtype."""
    return cast(_bytes(self), dtype)


def _is_pinned(self: UntypedStorage, device: Any = None) -> bool:
    """Whether the bytes lie in page-locked memory."""
    return bool(_bytes(self).is_pinned())


def _pin_memory(self: UntypedStorage, device: Any = None) -> UntypedStorage:
    """The bytes in page-locked memory.

    Raises:
        TypeError: if they are not in the host's memory.
    """
    if self.device.type != "cpu":
        raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
    return _bytes(self).pin_memory().untyped_storage()


def _new_shared(size: int, *, device: Any = "cpu") -> UntypedStorage:
    """A storage of zeros that other processes can map."""
    if _C.device(device).type != "cpu":
        return UntypedStorage(size, device=device)
    return UntypedStorage._new_using_fd_cpu(size)


def _byteswap(self: UntypedStorage, dtype: Any) -> None:
    """Turns the order of the bytes of each item of a dtype; of complex ones of each part."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1) or 1
    rows = _bytes(self).view(-1, width)
    rows.copy_(rows.flip(1))


# The types whose items `from_buffer` knows.
_IN_BUFFERS = (*(d for d in CASTS.values()),)
_ORDERS = ("big", "little", "native")


def from_buffer(
    buffer: Any,
    byte_order: str | None = None,
    count: int = -1,
    offset: int = 0,
    dtype: Any = None,
) -> UntypedStorage:
    """A copy of a buffer's items in the machine's order of bytes; truth values become 0 and 1.

    Raises:
        RuntimeError: without a dtype, with one that buffers cannot have, and without an order where one is needed.
        ValueError: for other orders, and where the buffer is too short or its end is none of an item's.
    """
    if dtype is None:
        raise RuntimeError("argument 'dtype' cannot be None")
    if dtype not in _IN_BUFFERS:
        raise RuntimeError(f"Unknown type: {dtype._scalar_type}")
    if byte_order is None and dtype != _C.uint8:
        raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
    if byte_order is not None and byte_order not in _ORDERS:
        raise ValueError(
            f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')"
        )
    given, width = memoryview(buffer).cast("B"), dtype.itemsize
    if not 0 <= offset <= len(given):
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({offset}) , but got {len(given)}"
        )
    rest = len(given) - offset
    if count < 0:
        if rest % width:
            raise ValueError(
                f"buffer size ({len(given)}) must be a multiple of element size ({width})"
            )
        count = rest // width
    elif count * width > rest:
        raise ValueError(
            f"buffer has only {rest} elements after offset {offset}, but specified a size of {count}"
        )
    made = UntypedStorage(count * width, device="cpu")
    if count:
        part = bytearray(given[offset : offset + count * width])
        _bytes(made).copy_(_C.frombuffer(part, dtype=_C.uint8))
    if dtype == _C.bool:
        _bytes(made).copy_(_bytes(made).ne(0))
    elif byte_order == "big":
        made.byteswap(dtype)
    return made


def reduce_storage(storage: Any) -> Any:
    """A storage's plain pickle, as PyTorch has it: a file with nothing else in it; of one on meta its size."""
    if getattr(storage, "_untyped_storage", storage).device.type == "meta":
        return storage.__reduce__()
    import io

    from torchlike.serialization import save
    from torchlike.storage import _load_from_bytes

    buffer = io.BytesIO()
    save(storage, buffer)
    return _load_from_bytes, (buffer.getvalue(),)


def _caster(name: str, dtype: Any) -> Any:
    def method(self: UntypedStorage) -> Any:
        return _cast(self, dtype)

    method.__name__, method.__doc__ = name, f"The bytes as items of {name} type."
    return method


def install() -> None:
    """Gives storages these methods."""
    methods: dict[str, Any] = {
        "from_file": staticmethod(storage_from_file),
        "from_buffer": staticmethod(from_buffer),
        "_new_shared": staticmethod(_new_shared),
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "__iter__": _iter,
        "__copy__": _copied,
        "__deepcopy__": _deepcopy,
        "__sizeof__": _sizeof,
        "fill_": _filled,
        "copy_": _copy,
        "cpu": _cpu,
        "cuda": _cuda,
        "to": _to,
        "new": _new,
        "type": _type,
        "untyped": _untyped,
        "get_device": _get_device,
        "is_pinned": _is_pinned,
        "pin_memory": _pin_memory,
        "byteswap": _byteswap,
        "_to": _cast,
        "is_sparse": False,
        "is_sparse_csr": False,
        "is_hpu": False,
        "filename": property(_get_filename),
    }
    casts = {name: _caster(name, dtype) for name, dtype in CASTS.items()}
    for name, method in {**methods, **casts}.items():
        setattr(UntypedStorage, name, method)
    copyreg.pickle(UntypedStorage, reduce_storage)
