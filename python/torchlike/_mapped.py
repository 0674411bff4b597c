"""Memory that is a file's."""

from __future__ import annotations

import weakref
from typing import Any

from torchlike import _C
from torchlike._C import UntypedStorage

#: The files of storages that write to them, by what they are known to the core.
NAMES: dict[int, str] = {}


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
    made = _C.frombuffer(memory, dtype=_C.uint8).untyped_storage()
    NAMES[made._cdata] = name
    # the storage holds the memory
    weakref.finalize(memory, NAMES.pop, made._cdata, None)
    return made


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
