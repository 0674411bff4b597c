"""Loading and saving checkpoints. Reading a file never runs code from it, whatever it asks for."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    """Reads a checkpoint from a path or a binary file object.

    `map_location="meta"` reads the header only; each tensor knows its bytes in the file, and
    `torchlike.materialize` reads them. With `mmap=True` tensors lie on the mapped file. `weights_only=False` is
    accepted, but executes nothing either: classes that torchlike does not build raise `UnpicklingError`. With
    `verify=True` all bytes are compared with the file's checksums first, where the format has some.
    """
    if pickle_module is not None or pickle_load_args:
        raise TypeError(
            "load(): torchlike reads pickles itself and takes no pickle_module or arguments for one"
        )
    full = weights_only is None or weights_only
    if isinstance(f, str | os.PathLike):
        return _C._load(os.fspath(f), map_location, full, bool(mmap), verify)
    if not hasattr(f, "read"):
        raise AttributeError(
            f"'{type(f).__name__}' object has no attribute 'read'. You can only torch.load from a file that is "
            "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    if mmap:
        raise ValueError("f must be a string or os.PathLike object in order to use mmap argument")
    return _C._load(f.read(), map_location, full, False, verify)


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
    """Writes an object to a path or a binary file object, in PyTorch's zip format.

    Ties, strides and views are kept. A path gets the whole file or keeps what it had: the bytes go to a temporary
    file that is renamed at the end. Meta tensors are saved without data, as PyTorch does; with `materialize=True`
    those that know where their data comes from are saved with it, one at a time in memory, and stay on meta.
    """
    if pickle_module is not None and pickle_module is not pickle:
        raise TypeError("save(): torchlike writes pickles itself and takes no other pickle_module")
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("save(): the format before PyTorch 1.6 is read and not written")
    if isinstance(f, str | os.PathLike):
        _C._save(obj, os.fspath(f), materialize)
        return
    if not hasattr(f, "write"):
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}"
        )
    _C._save(obj, f, materialize)


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
