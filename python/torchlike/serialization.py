"""Loading and saving checkpoints. Reading a file never runs code from it, whatever it asks for."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import stat
import sys
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike import _C, _naming, _utils
from torchlike._naming import own
from torchlike._opaque import Opaque as Opaque

if TYPE_CHECKING:
    from collections.abc import Iterable

_safe: list[Any] = []


DEFAULT_PROTOCOL = 2
MAP_LOCATION = Any  # a device, a string, a table of them, or a function


class SourceChangeWarning(Warning):
    """A warning that the source of a pickled class is another one now; nothing gives it, as no code is unpickled."""


def mkdtemp() -> Any:
    """A context with the path of a folder that goes when it ends."""
    import tempfile

    return tempfile.TemporaryDirectory()


class LoadEndianness(Enum):
    """The order of bytes of files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Settings:
    """What is kept for programs that ask for it."""

    endianness: LoadEndianness | None = None
    mmap_flags = mmap.MAP_PRIVATE
    crc32 = True


def get_default_load_endianness() -> LoadEndianness | None:
    """The order of bytes of files that do not say theirs; None is little-endian."""
    return _Settings.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the order of bytes of files that do not say theirs.

    Raises:
        TypeError: for something else.
    """
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _Settings.endianness = endianness
    native = endianness is LoadEndianness.NATIVE and sys.byteorder == "big"
    _C._assume_big_endian(native or endianness is LoadEndianness.BIG)


class _Skipped(threading.local):
    """Whether this thread leaves data out, and whether it makes room for that of fake tensors too."""

    fakes: bool | None = None


_skipped = _Skipped()


class skip_data:
    """Inside, `save` writes no data, only room for it, and `load` makes tensors whose values are not read.

    Args:
        materialize_fake_tensors: fake tensors are saved as if they were real.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = _skipped.fakes
        _skipped.fakes = self.materialize_fake_tensors

    def __exit__(self, *exc: object) -> None:
        _skipped.fakes = self._before


def get_default_mmap_options() -> int:
    """How files are mapped."""
    return _Settings.mmap_flags


class set_default_mmap_options:
    """Sets how files are mapped, or does so within a `with`. What is written to a mapping never reaches the file here.

    Raises:
        ValueError: for something other than `mmap.MAP_PRIVATE` and `mmap.MAP_SHARED`.
        NotImplementedError: for `mmap.MAP_SHARED`.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        if flags == mmap.MAP_SHARED:
            raise NotImplementedError(
                "torch.serialization.set_default_mmap_options: mmap.MAP_SHARED is not supported by torchlike"
            )
        self._before, _Settings.mmap_flags = _Settings.mmap_flags, flags

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        _Settings.mmap_flags = self._before


def get_crc32_options() -> bool:
    """Whether files are to have checksums."""
    return _Settings.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Sets whether files are to have checksums, which they have here in any case."""
    _Settings.crc32 = compute_crc32


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
        name = f"{own(entry.__module__)}.{entry.__qualname__}"
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
    try:
        at = f.tell()
        f.seek(at)
    except (AttributeError, io.UnsupportedOperation) as e:
        said = str(e).replace("'tell'", "'seek'")
        raise type(e)(
            f"{said}. You can only torch.load from a file that is seekable. Please pre-load the data into a buffer "
            "like io.BytesIO and try to load from it instead."
        ) from e
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


def _forced(weights_only: bool | None) -> bool | None:
    """What `weights_only` is after the environment's variables that force it, which the call's own True withstands."""
    chosen = {
        name: os.getenv(f"TORCH_FORCE_{name}", "0").lower() in ("1", "y", "yes", "true")
        for name in ("WEIGHTS_ONLY_LOAD", "NO_WEIGHTS_ONLY_LOAD")
    }
    if all(chosen.values()):
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    if chosen["WEIGHTS_ONLY_LOAD"]:
        return True
    if chosen["NO_WEIGHTS_ONLY_LOAD"] and weights_only is None:
        import warnings

        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the"
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return weights_only


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    verify: bool = False,
    **pickle_load_args: Any,
) -> Any:
    """Reads a checkpoint of any format from a path, an index or folder of shards, bytes, or a binary file object.

    `map_location="meta"` reads the header only; each tensor knows its bytes in the file, and
    `torchlike.materialize` reads them. With `mmap=True` tensors lie on the mapped file, as those of safetensors do
    unless `mmap=False`. `weights_only=True`, the default without a `pickle_module`, refuses with `UnpicklingError`
    what PyTorch refuses; `weights_only=False` executes nothing either: objects of classes that torchlike does not
    know become `Opaque`. `encoding=` says what strings of Python 2 are decoded by, and `"bytes"` leaves them bytes;
    without it they are text where they are UTF-8. With `verify=True` all bytes are compared with the file's
    checksums first, where the format has some.
    """
    weights_only = _forced(weights_only)
    if pickle_module not in (None, pickle):
        raise TypeError("load(): torchlike reads pickles itself and takes no other pickle_module")
    if pickle_module is not None and weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    strict = pickle_module is None if weights_only is None else weights_only
    encoding = pickle_load_args.pop("encoding", None)
    if pickle_load_args:
        raise TypeError(
            f"load(): torchlike reads pickles itself and takes no {', '.join(pickle_load_args)}"
        )
    asked = map_location
    if map_location is None and "torchlike._locations" in sys.modules:
        from torchlike import _locations

        map_location = _locations.default_restore_location if _locations.has_packages() else None
    file, at, is_path = _source(f)
    if mmap and not isinstance(f, str | os.PathLike):
        raise ValueError("f must be a file path in order to use the mmap argument")
    offset = at if is_path and not isinstance(f, str | os.PathLike) else 0
    before, _utils.restoring.location = _utils.restoring.location, asked
    try:
        made, end = _C._load(
            file,
            map_location,
            strict,
            mmap,
            _allowed() if _safe else {},
            offset,
            verify,
            unread=_skipped.fakes is not None,
            encoding=encoding,
        )
    finally:
        _utils.restoring.location = before
    if hasattr(f, "seek"):
        f.seek(at + end)
    return made


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    materialize: bool = False,
) -> None:
    """Writes an object to a path or a binary file object, in PyTorch's zip format, or in that before version 1.6 with
    `_use_new_zipfile_serialization=False`.

    Ties, strides and views are kept. A path gets the whole file or keeps what it had: the bytes go to a temporary
    file that is renamed at the end. Meta tensors are saved without data, as PyTorch does; with `materialize=True`
    those that know where their data comes from are saved with it, one at a time in memory, and stay on meta.
    """
    if pickle_module is not None and pickle_module is not pickle:
        raise TypeError("save(): torchlike writes pickles itself and takes no other pickle_module")
    legacy = not _use_new_zipfile_serialization
    if isinstance(f, str | os.PathLike):
        _C._save(obj, os.fspath(f), materialize, legacy, _skipped.fakes)
        return
    if not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
        )
    _C._save(obj, f, materialize, legacy, _skipped.fakes)
    # what is read by the file's name has to be whole
    flush = getattr(f, "flush", None)
    if callable(flush):
        flush()


class StorageType:
    """A type of storages by the name that pickles have for it."""

    def __init__(self, name: str) -> None:
        import torchlike

        self._dtype = getattr(torchlike, name).dtype

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def __getattr__(name: str) -> Any:
    """What few programs use is loaded when it is asked for."""
    if not name.startswith("_"):
        from torchlike import _locations

        if name in _locations.__all__:
            return getattr(_locations, name)
    raise AttributeError(f"module '{_naming.shown}.serialization' has no attribute '{name}'")


def normalize_storage_type(storage_type: Any) -> Any:
    """The class of this name that `torch` has: `FloatStorage` for `torch.storage`'s."""
    import torchlike as torch

    return getattr(torch, storage_type.__name__)


def _get_layout(name: str) -> Any:
    """The layout of this repr: what PyTorch's plain pickles call."""
    return getattr(_C, name.rpartition(".")[2])


class Converted(NamedTuple):
    """What `convert` wrote."""

    files: list[str]
    tensors: int
    bytes: int
    left_out: list[str]


def _show(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    max_shard_size: int | str | None = None,
    duplicate: bool = False,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    prefix: str = "",
    progress: bool | None = None,
) -> Converted:
    """Writes a checkpoint of any format in another one, tensor by tensor.

    The format is that of the target's ending (`.pt`, `.safetensors`, `.npz`, `.npy`) or `format`. `max_shard_size`
    (bytes or `"5GB"`) makes several files with an index where one does not do. Tensors that share memory are written
    once, unless `duplicate`. `include` and `exclude` are patterns of names; `prefix` is taken off names, and those
    without are left out. No more is in memory than the largest tensor. Formats other than PyTorch's hold tensors
    only: the names of other values are in the result.
    """
    files, *rest = _C._convert(
        os.fspath(source),
        os.fspath(target),
        format,
        max_shard_size,
        duplicate,
        list(include),
        list(exclude),
        prefix,
        _show(progress),
    )
    return Converted([os.fspath(file) for file in files], *rest)


class Verified(NamedTuple):
    """What `verify` found to be right."""

    checked: int
    bytes: int
    without_checksum: int


def verify(path: str | os.PathLike[str], *, progress: bool | None = None) -> Verified:
    """Compares all bytes of a file with its checksums, in parallel.

    Raises `CheckpointError` naming the first tensor that is damaged. Formats without checksums are proved to be whole.
    """
    return Verified(*_C._verify(os.fspath(path), _show(progress)))


def fingerprint(path: str | os.PathLike[str], *, progress: bool | None = None) -> str:
    """A digest of names, dtypes, shapes and elements of all tensors, which no change of format changes."""
    digest: str = _C._fingerprint(os.fspath(path), _show(progress))[0]
    return digest
