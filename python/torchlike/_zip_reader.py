"""The records of a file that `torch.save` wrote, one by one."""

from __future__ import annotations

from typing import Any

from torchlike import _C


class PyTorchFileReader:
    """The records of a checkpoint in PyTorch's zip format, from a path or a binary file object."""

    def __init__(self, file: Any) -> None:
        from zipfile import ZipFile

        self._zip = ZipFile(file)
        self._root = self._zip.namelist()[0].partition("/")[0]

    def _info(self, name: str) -> Any:
        try:
            return self._zip.getinfo(f"{self._root}/{name}")
        except KeyError:
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found"
            ) from None

    def get_all_records(self) -> list[str]:
        """Their names."""
        return [n.partition("/")[2] for n in self._zip.namelist()]

    def has_record(self, name: str) -> bool:
        """Whether there is a record of this name."""
        return f"{self._root}/{name}" in self._zip.namelist()

    def get_record(self, name: str) -> bytes:
        """The bytes of a record.

        Raises:
            RuntimeError: if there is none.
        """
        return self._zip.read(self._info(name))

    def get_record_offset(self, name: str) -> int:
        """Where the bytes of a record begin in the file."""
        info = self._info(name)
        file: Any = self._zip.fp
        file.seek(info.header_offset + 26)
        name_size, extra_size = (int.from_bytes(file.read(2), "little") for _ in range(2))
        return int(info.header_offset + 30 + name_size + extra_size)

    def get_record_size(self, name: str) -> int:
        """How many bytes a record is."""
        return int(self._info(name).file_size)

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """The elements of a record, as a tensor of one dimension."""
        return _C.frombuffer(bytearray(self.get_record(name)), dtype=dtype, count=numel)

    def serialization_id(self) -> str:
        """What tells this file from others, if it says so."""
        known = ".data/serialization_id"
        return self.get_record(known).decode() if self.has_record(known) else ""
