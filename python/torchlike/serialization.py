"""Loading and saving checkpoints. Reading a file never runs code from it, whatever it asks for."""

from __future__ import annotations

import os
import stat
from typing import Any

from torchlike import _C
from torchlike._opaque import Opaque as Opaque

_safe: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Registers classes and functions that `load` may call on data that a file holds.

    An item is a class or function, or a pair of it and the name that files call it by. What torchlike builds itself
    (arrays, dates, paths, layers, ...) needs no function of the user and is only marked as accepted.
    """
    _safe.extend(x for x in safe_globals if x not in _safe)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` registered."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Forgets what `add_safe_globals` registered."""
    _safe.clear()


class safe_globals:
    """Inside, these classes and functions are registered as by `add_safe_globals`."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._mine = safe_globals
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before = list(_safe)
        add_safe_globals(self._mine)

    def __exit__(self, *exc: object) -> None:
        _safe[:] = self._before


def _allowed() -> dict[str, Any]:
    """The registered objects by the names that files have for them."""
    names: dict[str, Any] = {}
    for entry in _safe:
        if isinstance(entry, tuple):
            target, name = entry
            names[name] = target
            continue
        name = f"{entry.__module__}.{entry.__qualname__}"
        names[name] = entry
        if name.startswith("torchlike.nn."):  # under PyTorch's names too
            last = entry.__module__.rpartition(".")[2]
            names[f"torch.nn.modules.{last}.{entry.__qualname__}"] = entry
        elif name.startswith("torchlike."):
            names["torch." + name.removeprefix("torchlike.")] = entry
    return names


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a checkpoint that `weights_only=True` refuses as things are."""
    return _C._refused_globals(_source(f)[0], _allowed())


def file_metadata(f: Any) -> dict[str, str]:
    """The metadata that a checkpoint's own format keeps: `__metadata__` of safetensors, the values of GGUF."""
    return dict(_C._file_metadata(_source(f)[0])[1])


def file_format(f: Any) -> str:
    """The name of a checkpoint's format, which is told by its content."""
    return _C._file_metadata(_source(f)[0])[0]


def _source(f: Any) -> tuple[Any, int, bool]:
    """A path or bytes, where the checkpoint begins in it, and whether it is a path."""
    if isinstance(f, str | os.PathLike):
        return os.fspath(f), 0, True
    if isinstance(f, bytes | bytearray | memoryview):
        return bytes(f), 0, False
    if not hasattr(f, "read"):
        raise AttributeError(
            f"'{type(f).__name__}' object has no attribute 'read'. You can only torch.load from a file that is "
            "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    try:
        at = f.tell()
    except (AttributeError, OSError):
        at = 0
    path = _path_of(f)
    return (path, at, True) if path is not None else (f.read(), at, False)


def _path_of(f: Any) -> str | None:
    """The path of an open file, if it still leads to that file."""
    name = getattr(f, "name", None)
    if not isinstance(name, str) or "b" not in str(getattr(f, "mode", "")):
        return None
    try:
        opened, named = os.fstat(f.fileno()), os.stat(name)
    except (OSError, AttributeError, ValueError):
        return None
    same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
    return os.path.abspath(name) if same and stat.S_ISREG(opened.st_mode) else None


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads a checkpoint of any format from a path, an index or folder of shards, bytes, or a binary file object.

    `map_location="meta"` reads the header only; each tensor knows its bytes in the file, and
    `torchlike.materialize` reads them. With `mmap=True` tensors lie on the mapped file, as those of safetensors do
    unless `mmap=False`. `weights_only=True`, the default, refuses with `UnpicklingError` what PyTorch refuses;
    `weights_only=False` executes nothing either: objects of classes that torchlike does not know become `Opaque`.
    """
    if pickle_module is not None:
        raise TypeError("load(): torchlike reads pickles itself and takes no pickle_module")
    pickle_load_args.pop("encoding", None)
    if pickle_load_args:
        raise TypeError(
            f"load(): torchlike reads pickles itself and takes no {', '.join(pickle_load_args)}"
        )
    strict = weights_only is None or weights_only
    file, at, is_path = _source(f)
    if mmap and not isinstance(f, str | os.PathLike):
        raise ValueError("f must be a string or os.PathLike object in order to use mmap argument")
    offset = at if is_path and not isinstance(f, str | os.PathLike) else 0
    made, end = _C._load(file, map_location, strict, mmap, _allowed() if _safe else {}, offset)
    if hasattr(f, "seek") and not isinstance(f, str | os.PathLike | memoryview):
        f.seek(at + end)
    return made


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
