"""Loading and saving checkpoints. Reading a file never runs code from it, whatever it asks for."""

from __future__ import annotations

import os
from typing import Any

from torchlike import _C


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads a checkpoint from a path or a binary file object.

    `map_location="meta"` reads the header only; each tensor knows its bytes in the file, and
    `torchlike.materialize` reads them. With `mmap=True` tensors lie on the mapped file. `weights_only=False` is
    accepted, but executes nothing either: classes that torchlike does not build raise `UnpicklingError`.
    """
    if pickle_module is not None or pickle_load_args:
        raise TypeError(
            "load(): torchlike reads pickles itself and takes no pickle_module or arguments for one"
        )
    full = weights_only is None or weights_only
    if isinstance(f, str | os.PathLike):
        return _C._load(os.fspath(f), map_location, full, bool(mmap))
    if not hasattr(f, "read"):
        raise AttributeError(
            f"'{type(f).__name__}' object has no attribute 'read'. You can only torch.load from a file that is "
            "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    if mmap:
        raise ValueError("f must be a string or os.PathLike object in order to use mmap argument")
    return _C._load(f.read(), map_location, full, False)


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2, **_: Any) -> None:
    """Writes tensors and containers of them to a path or a binary file object, in PyTorch's zip format.

    A path gets the whole file or keeps what it had: the bytes go to a temporary file that is renamed at the end.
    """
    if pickle_module is not None:
        raise TypeError("save(): torchlike writes pickles itself and takes no pickle_module")
    if isinstance(f, str | os.PathLike):
        _C._save(obj, os.fspath(f))
        return
    if not hasattr(f, "write"):
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}"
        )
    f.write(_C._save(obj, None))
