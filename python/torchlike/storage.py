"""Storages: the bytes behind tensors, untyped and typed."""

from __future__ import annotations

import copyreg
from typing import Any

from torchlike import _C, _mapped, _naming
from torchlike._C import UntypedStorage as UntypedStorage

_NO_SUCH_TYPED = """TypedStorage.__init__ received an invalid combination of arguments. Expected one of:
 * (*, torch.device device, torch.dtype dtype)
 * (int size, *, torch.device device, torch.dtype dtype)
 * (Sequence data, *, torch.device device, torch.dtype dtype)
 * (*, UntypedStorage wrap_storage, torch.dtype dtype)"""


class TypedStorage:
    """A storage whose items have a dtype (PyTorch's older view of storages)."""

    def __init__(
        self,
        *items: Any,
        wrap_storage: Any = None,
        dtype: Any = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        """A number of items without values, the items of a sequence, or the items in the storage ``wrap_storage``.

        Raises:
            RuntimeError: for several arguments, or a storage beside them or without a dtype.
            TypeError: for what is neither a number nor a sequence, or no storage.
        """
        if wrap_storage is not None:
            if items or dtype is None or device is not None:
                raise RuntimeError(_NO_SUCH_TYPED)
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(
                    f"{_NO_SUCH_TYPED}\nArgument type not recognized: {type(wrap_storage)}"
                )
            self._untyped_storage, self.dtype = wrap_storage, dtype
            return
        if len(items) > 1:
            raise RuntimeError(_NO_SUCH_TYPED)
        given = items[0] if items else 0
        if not isinstance(given, int) and not hasattr(given, "__len__"):
            raise TypeError(f"{_NO_SUCH_TYPED}\nArgument type not recognized: {type(given)}")
        self.dtype = _C.get_default_dtype() if dtype is None else dtype
        self._untyped_storage = _made(given, self.dtype, device).untyped_storage()

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self.device.type == "cuda"

    def size(self) -> int:
        """The number of items."""
        return len(self)

    def __len__(self) -> int:
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.nbytes()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of one item."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._untyped_storage.data_ptr()

    def untyped(self) -> Any:
        """The bytes without a dtype."""
        return self._untyped_storage

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def _items(self) -> Any:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return _C._from_storage(self._untyped_storage, self.dtype, (len(self),), (1,), 0)

    def tolist(self) -> list[Any]:
        """The items as Python numbers."""
        return self._items().tolist()

    def __getitem__(self, index: int) -> Any:
        return self._items()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items()[index] = value

    def cpu(self) -> TypedStorage:
        """The storage on the host."""
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def resize_(self, size: int) -> TypedStorage:
        """Changes the number of items."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def fill_(self, value: Any) -> TypedStorage:
        """Sets every item."""
        self._items().fill_(value)
        return self

    def is_shared(self) -> bool:
        """Whether other processes can map the bytes."""
        return bool(self._untyped_storage.is_shared())

    def share_memory_(self) -> TypedStorage:
        """Moves the bytes to where other processes can map them."""
        self._untyped_storage.share_memory_()
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and other._cdata == self._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __repr__(self) -> str:
        tail = (
            f"[{_naming.shown}.storage.TypedStorage(dtype={self.dtype}, device={self.device}) "
            f"of size {len(self)}]"
        )
        if self.device.type == "meta":
            return f"...\n{tail}"
        return "".join(f" {v}\n" for v in self.tolist()) + tail


def _made(given: Any, dtype: Any, device: Any) -> _C.Tensor:
    """A vector of so many items, or of these."""
    if isinstance(given, int):
        return _C.Tensor.new_empty(_C.tensor(0), (given,), dtype=dtype, device=device or "cpu")
    return _C.tensor(list(given), dtype=dtype, device=device or "cpu")


def _typed(t: _C.Tensor) -> TypedStorage:
    return TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype)


class _LegacyStorageMeta(type):
    """The type of the old storage classes: a storage of their dtype and device is an instance."""

    dtype: Any
    device_type: str

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and (
            cls is _LegacyStorage
            or (instance.dtype == cls.dtype and instance.device.type == cls.device_type)
        )


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """`FloatStorage(3)`, `FloatStorage([1, 2])`: makes a :class:`TypedStorage` of one dtype."""

    def __new__(cls, *args: Any, wrap_storage: Any = None, **_: Any) -> Any:
        """A storage of so many items, of these values, or over these bytes."""
        if wrap_storage is not None:
            return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype)
        if len(args) > 1:
            raise RuntimeError(f"{cls.__name__}() takes one argument at most, not {len(args)}")
        return _typed(_made(args[0] if args else 0, cls.dtype, cls.device_type))

    @classmethod
    def _from_buffer(cls, buffer: Any, *_: Any, **options: Any) -> TypedStorage:
        """A copy of a buffer's items."""
        return _typed(_C.frombuffer(buffer, dtype=cls.dtype, **options).clone())


_LEGACY_DTYPES = {
    "BFloat16": _C.bfloat16,
    "Bool": _C.bool,
    "Byte": _C.uint8,
    "Char": _C.int8,
    "ComplexDouble": _C.complex128,
    "ComplexFloat": _C.complex64,
    "Double": _C.float64,
    "Float": _C.float32,
    "Half": _C.float16,
    "Int": _C.int32,
    "Long": _C.int64,
    "Short": _C.int16,
}


def _legacy_storages(module: str, device: str) -> dict[str, Any]:
    """The old storage classes of a device, by name."""
    return {
        f"{name}Storage": _LegacyStorageMeta(
            f"{name}Storage",
            (_LegacyStorage,),
            {"dtype": dtype, "device_type": device, "__module__": module},
        )
        for name, dtype in _LEGACY_DTYPES.items()
    }


_own_storages = _legacy_storages("torchlike", "cpu")

_mapped.install()


def _load_from_bytes(b: bytes) -> Any:
    """The storage in a file that plain pickles contain."""
    from torchlike.serialization import load

    return load(b, weights_only=False)


def _reduce_storage(storage: Any) -> Any:
    """A storage's plain pickle, as PyTorch has it: a file with nothing else in it; of one on meta its size."""
    if storage.device.type == "meta":
        return storage.__reduce__()
    import io

    from torchlike.serialization import save

    buffer = io.BytesIO()
    save(storage, buffer)
    return _load_from_bytes, (buffer.getvalue(),)


copyreg.pickle(UntypedStorage, _reduce_storage)
copyreg.pickle(TypedStorage, _reduce_storage)
