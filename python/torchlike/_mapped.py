"""Memory that is a file's, and parts of a storage as storages."""

from __future__ import annotations

from typing import Any

from torchlike import _C
from torchlike._C import UntypedStorage


def storage_from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
    """A storage over a file's bytes: read when they are looked at; written back only where they are `shared`.

    What is not shared and was not written keeps the file as its source when it goes to meta.

    Raises:
        RuntimeError: if the file cannot be opened, or is too small.
    """
    import mmap
    import os

    name = os.fspath(filename)
    nbytes = int(nbytes)
    if nbytes < 0:
        raise RuntimeError(f"size of the mapping must not be negative, but got {nbytes}")
    try:
        with open(name, "a+b" if shared else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if shared and size < nbytes:
                file.truncate(nbytes)
            elif size < nbytes:
                raise RuntimeError(
                    f"file <{name}> size <{size}> is smaller than the required mapping size <{nbytes}>"
                )
            if nbytes == 0:
                return _C.tensor([], dtype=_C.uint8).untyped_storage()
            if not shared:
                return UntypedStorage._of_file(name, nbytes)
            memory = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE)
    except OSError as e:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{name}> in {mode} mode: {e.strerror} ({e.errno})"
        ) from e
    return _C.frombuffer(memory, dtype=_C.uint8).untyped_storage()


def from_file(
    filename: Any,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Any:
    """A tensor of one dimension over a file's bytes; written back only where it is `shared`.

    Raises:
        RuntimeError: if the file cannot be opened, or is too small.
    """
    dtype = _C.get_default_dtype() if dtype is None else dtype
    count = size or 0
    storage = storage_from_file(filename, bool(shared), count * dtype.itemsize)
    made = _C._from_storage(storage, dtype, (count,), (1,), 0)
    return made if device is None else made.to(device)


_item = UntypedStorage.__getitem__


def _getitem(self: UntypedStorage, index: Any) -> Any:
    """A byte, or a part as a storage over the same memory.

    Raises:
        RuntimeError: for steps.
    """
    if not isinstance(index, slice):
        return _item(self, index)
    start, stop, step = index.indices(self.nbytes())
    if step != 1:
        raise RuntimeError(
            f"Trying to slice with a step of {step}, but only a step of 1 is supported"
        )
    if self.device.type != "cpu":
        raise NotImplementedError("parts of storages that are not in the memory of the host")
    if (start, stop) == (0, self.nbytes()):
        return self
    return self._part(start, max(stop - start, 0))


def _sizeof(self: UntypedStorage) -> int:
    """Bytes of the object, and of what it holds."""
    return object.__sizeof__(self) + self.nbytes()


def _untyped(self: UntypedStorage) -> UntypedStorage:
    """Itself."""
    return self


def _get_filename(self: UntypedStorage) -> None:
    """None: the bytes have no file's name."""


def _copy(self: UntypedStorage, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
    """Takes the bytes of another storage of the same size."""
    _bytes(self).copy_(_bytes(source.untyped()))
    return self


def _bytes(storage: Any) -> Any:
    return _C._from_storage(storage, _C.uint8, (storage.nbytes(),), (1,), 0)


def install() -> None:
    """Gives storages these methods."""
    methods = {
        "from_file": staticmethod(storage_from_file),
        "__getitem__": _getitem,
        "untyped": _untyped,
        "__sizeof__": _sizeof,
        "copy_": _copy,
        "is_sparse": False,
        "is_sparse_csr": False,
        "filename": property(_get_filename),
    }
    for name, method in methods.items():
        setattr(UntypedStorage, name, method)
