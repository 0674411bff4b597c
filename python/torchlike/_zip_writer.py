"""Zip archives whose tensors are streamed: a path gets the whole file or keeps what it had, a tensor's bytes
are had one at a time."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 16 << 20
"""Bytes that are handed to the archive at once."""


def real(tensor: Any) -> Any:
    """The tensor with its values on the host: those of a meta tensor with a source are read or replayed aside."""
    plain = tensor.detach()
    if plain.is_meta:
        return _C._peek(plain)
    return plain.cpu()


def has_values(tensor: Any) -> bool:
    """True unless the tensor is on meta and nothing is known of its values."""
    return not tensor.is_meta or _C._explain(tensor.detach()) is not None


def elements(tensor: Any) -> Any:
    """The bytes of a tensor's elements in row-major order, as a tensor of bytes."""
    return real(tensor).contiguous().reshape(-1).view(torchlike.uint8)


def whole(tensor: Any) -> Any:
    """The bytes of a tensor's whole storage, as a tensor of bytes."""
    return torchlike.empty(0, dtype=torchlike.uint8).set_(real(tensor).untyped_storage())


class Writer:
    """An archive that is being written; all records lie in one folder."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self.archive = archive
        self.root = root

    def text(self, name: str, data: str | bytes) -> None:
        """A record of text or bytes."""
        self.archive.writestr(self._info(name), data)

    def bytes(self, name: str, data: Any) -> None:
        """A record of what a tensor of bytes holds."""
        if data.numel() == 0:
            self.text(name, b"")
            return
        info = self._info(name)
        info.file_size = data.numel()
        with self.archive.open(info, "w") as record, memoryview(data.numpy()) as view:
            for at in range(0, len(view), _PIECE):
                record.write(view[at : at + _PIECE])

    def _info(self, name: str) -> zipfile.ZipInfo:
        # without a time, so that equal programs make equal files
        return zipfile.ZipInfo(f"{self.root}/{name}")


@contextlib.contextmanager
def writing(f: Any) -> Iterator[Writer]:
    """An archive at a path or in a file, which is complete at the end of the block; an error leaves a path as
    it was."""
    if not isinstance(f, str | os.PathLike):
        with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
            yield Writer(archive, "archive")
        return
    path = Path(f)
    handle, name = tempfile.mkstemp(dir=path.parent or ".", prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            yield Writer(archive, path.stem or "archive")
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
