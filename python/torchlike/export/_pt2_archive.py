"""The records of archives: stored as they are, under one folder, each once and none too long."""

from __future__ import annotations

import json
import zipfile
from typing import Any

from torchlike import CheckpointError

_LONGEST_TEXT = 1 << 28
_MOST_ENTRIES = 1 << 20


class Archive:
    """The records of an archive, below its one folder."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self.file = file
        entries = file.infolist()
        if not entries or len(entries) > _MOST_ENTRIES:
            raise CheckpointError("the archive has no records, or too many")
        self.root = entries[0].filename.partition("/")[0]
        self.sizes: dict[str, int] = {}
        for entry in entries:
            if entry.filename in self.sizes:
                raise CheckpointError(f"the archive has the record {entry.filename!r} twice")
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise CheckpointError(f"the record {entry.filename!r} is compressed or encrypted")
            self.sizes[entry.filename] = entry.file_size

    def has(self, name: str) -> bool:
        """True if there is a record of this name."""
        return f"{self.root}/{name}" in self.sizes

    def bytes(self, name: str, most: int | None = None) -> bytes:
        """A record."""
        full = f"{self.root}/{name}"
        if full not in self.sizes:
            raise CheckpointError(f"the archive has no record {name!r}")
        if most is not None and self.sizes[full] > most:
            raise CheckpointError(f"the record {name!r} is too long")
        return self.file.read(full)

    def json(self, name: str) -> Any:
        """A record of JSON."""
        return json.loads(self.bytes(name, _LONGEST_TEXT))
