"""Checkpoints as folders: a file of pieces by each rank, and `.metadata`."""

from __future__ import annotations

import io
import os
import uuid
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed.checkpoint import metadata as _metadata
from torchlike.distributed.checkpoint.default_planner import narrowed
from torchlike.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torchlike.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torchlike.distributed.checkpoint.staging import BlockingAsyncStager
from torchlike.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torchlike.futures import Future

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.distributed.checkpoint.planner import (
        LoadPlan,
        LoadPlanner,
        ReadItem,
        SavePlan,
        SavePlanner,
        WriteItem,
    )

__all__ = [
    "FileSystem",
    "FileSystemReader",
    "FileSystemWriter",
    "SerializationFormat",
]

_NAME = ".metadata"
_SUFFIX = ".distcp"
CURRENT_DCP_VERSION = "1.0.0"


class SerializationFormat(Enum):
    """How pieces are written."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


@dataclass
class _StorageInfo:
    """Where an item is in a file."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if v is not None}


@dataclass
class _StoragePrefix:
    prefix: str


class FileSystem:
    """What is done with files."""

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[io.IOBase]:
        """An open file."""
        with Path(path).open(mode) as stream:
            yield stream  # type: ignore[misc]

    def concat_path(self, path: Any, suffix: str) -> Any:
        """A path in a folder."""
        return Path(path) / suffix

    def init_path(self, path: Any) -> Any:
        """A path of what a user gave."""
        return Path(path)

    def rename(self, path: Any, new_path: Any) -> None:
        """Renames a file, over another if there is one."""
        Path(path).replace(new_path)

    def mkdir(self, path: Any) -> None:
        """Makes a folder and those around it."""
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether this is a path that can be written."""
        if isinstance(checkpoint_id, Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(p.exists() and os.access(p, os.W_OK) for p in Path(checkpoint_id).parents)

    def exists(self, path: Any) -> bool:
        """Whether there is such a file."""
        return Path(path).exists()

    def rm_file(self, path: Any) -> None:
        """Removes a file."""
        Path(path).unlink()

    def ls(self, path: Any) -> list[str]:
        """What is in a folder."""
        return [str(p) for p in Path(path).iterdir()]


def _allowed() -> dict[str, Any]:
    """The classes that `.metadata` may name."""
    space = "torch.distributed.checkpoint."
    names = [*_metadata.__all__, "_MEM_FORMAT_ENCODING"]
    found = {f"{space}metadata.{n}": getattr(_metadata, n) for n in names}
    return found | {f"{space}filesystem._StorageInfo": _StorageInfo}


def dumped(metadata: Metadata) -> bytes:
    """Metadata as the pickle that PyTorch reads: what a checkpoint of it holds beside storages."""
    made = io.BytesIO()
    torch.save(metadata, made)
    with zipfile.ZipFile(made) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
        return archive.read(name)


def loaded(pickled: bytes) -> Metadata:
    """Metadata of its pickle, none of whose names is looked up or called.

    Raises:
        CheckpointError: if it is damaged, or of something else.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    found, _ = _C._load(made.getvalue(), None, False, None, _allowed(), 0, False)
    if not isinstance(found, Metadata):
        raise torch.CheckpointError(f"{_NAME}: an object that is no Metadata")
    return found


def _buckets(count: int, items: list[WriteItem]) -> list[list[WriteItem]]:
    """The items for several files, of about the same size."""
    if count == 1:
        return [items]
    parts: list[list[WriteItem]] = [[] for _ in range(count)]
    sizes = [0] * count
    small = [i for i in items if i.type == WriteItemType.BYTE_IO]
    large = [i for i in items if i.type != WriteItemType.BYTE_IO]
    for at, item in enumerate(small):
        parts[at % count].append(item)
    for item in sorted(large, key=_stored_size, reverse=True):
        at = sizes.index(min(sizes))
        parts[at].append(item)
        sizes[at] += _stored_size(item)
    return parts


def _stored_size(item: WriteItem) -> int:
    assert item.tensor_data is not None
    return int(
        torch.Size(item.tensor_data.chunk.sizes).numel()
        * item.tensor_data.properties.dtype.itemsize
    )


class FileSystemWriter(StorageWriter, BlockingAsyncStager):
    """Writes a folder, which becomes a checkpoint with `.metadata` at the end.

    Args:
        path: the folder.
        single_file_per_rank: one file by each rank (and thread), not one for each piece.
        sync_files: wait until files are on the disk.
        thread_count: threads that write.
        per_thread_copy_ahead: without meaning here.
        cache_staged_state_dict: whether `async_save` copies into its last copy.
        overwrite: whether a checkpoint that is there is written over.
        serialization_format: only `TORCH_SAVE` (`HuggingFaceStorageWriter` writes safetensors).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:
        plain = serialization_format is SerializationFormat.TORCH_SAVE
        if _extensions or (not plain and type(self) is FileSystemWriter):
            raise NotImplementedError(
                "torch.distributed.checkpoint.FileSystemWriter(_extensions=, serialization_format=) is not supported "
                "by torchlike: it writes pieces as torch.save does, HuggingFaceStorageWriter as safetensors"
            )
        BlockingAsyncStager.__init__(self, cache_staged_state_dict)
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank, self.sync_files = single_file_per_rank, sync_files
        self.thread_count, self.overwrite = thread_count, overwrite
        self.save_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    @property
    def metadata_path(self) -> str:
        """The name of the file that says what is in the others."""
        return _NAME

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a checkpoint, in another folder if one is given."""
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing is to be known."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Makes the folder.

        Raises:
            RuntimeError: if a checkpoint is there that must not be written over.
        """
        self.fs.mkdir(self.path)
        if self.fs.exists(self.fs.concat_path(self.path, self.metadata_path)):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
            warnings.warn(
                f"Detected an existing checkpoint in {self.path}, overwriting since {self.overwrite=}. Past version "
                "2.5 of PyTorch, `overwrite` will default to False. Set this variable to True to maintain this "
                "functionality or False to raise when an existing checkpoint is found.",
                stacklevel=2,
            )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives every rank names of files of its own."""
        return [
            replace(p, storage_data=_StoragePrefix(f"__{i}_")) if p.storage_data is None else p
            for i, p in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future:
        """Writes this rank's files."""
        if self.single_file_per_rank:
            parts = _buckets(self.thread_count, plan.items)
        else:
            parts = [[item] for item in plan.items]
        named = [(f"{plan.storage_data.prefix}{i}{_SUFFIX}", part) for i, part in enumerate(parts)]
        with ThreadPoolExecutor(max(self.thread_count, 1)) as pool:
            written = pool.map(lambda at: self._write(at[0], at[1], planner), named)
        done = Future()
        done.set_result([result for results in written for result in results])
        return done

    def _write(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        results = []
        # Small things first, as in PyTorch's files.
        ordered = sorted(items, key=lambda item: item.type != WriteItemType.BYTE_IO)
        path = self.fs.concat_path(self.path, name)
        with self.fs.create_stream(path, "wb") as stream:
            for item in ordered:
                start = stream.tell()
                data = planner.resolve_data(item)
                if item.type == WriteItemType.BYTE_IO:
                    stream.write(data.getbuffer())
                else:
                    torch.save(alone(data), stream)
                length = stream.tell() - start
                results.append(WriteResult(item.index, length, _StorageInfo(name, start, length)))
            if self.sync_files:
                stream.flush()
                os.fsync(stream.fileno())
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes `.metadata`."""
        metadata.version = CURRENT_DCP_VERSION
        metadata.storage_data = {r.index: r.storage_data for rank in results for r in rank}
        metadata.storage_meta = self.storage_meta()
        path = self.fs.concat_path(self.path, _NAME)
        unfinished = self.fs.concat_path(self.path, f"{_NAME}.tmp")
        with self.fs.create_stream(unfinished, "wb") as stream:
            stream.write(dumped(metadata))
            if self.sync_files:
                stream.flush()
                os.fsync(stream.fileno())
        self.fs.rename(unfinished, path)

    def storage_meta(self) -> StorageMeta | None:
        """Which checkpoint this is."""
        return StorageMeta(checkpoint_id=str(self.path), save_id=self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a path that can be written."""
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def alone(tensor: Any) -> Any:
    """A tensor on the CPU that is all of its storage: a piece is saved without what is around it."""
    tensor = tensor.detach().cpu()
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return (
        tensor
        if whole and tensor.is_contiguous()
        else tensor.clone(memory_format=torch.contiguous_format)
    )


class FileSystemReader(StorageReader):
    """Reads a folder, of each stored piece only the bytes that are wanted."""

    def __init__(self, path: str | os.PathLike[str], _extension_registry: Any = None) -> None:
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data: dict[MetadataIndex, _StorageInfo] = {}
        self.load_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins to read, another folder if one is given."""
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """All about the checkpoint."""
        with self.fs.create_stream(self.fs.concat_path(self.path, _NAME), "rb") as stream:
            metadata = loaded(stream.read())
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Notes where the pieces are."""
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The same."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The same."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future:
        """Reads."""
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self._place(item).relative_path, []).append(item)
        for name, items in by_file.items():
            path = self._file(name)
            for item in items:
                self._read(path, item, planner)
        done = Future()
        done.set_result(None)
        return done

    def _place(self, item: ReadItem) -> _StorageInfo:
        found = self.storage_data.get(item.storage_index)
        if found is None:
            raise torch.CheckpointError(f"{item.storage_index} has no place in a file")
        if found.transform_descriptors:
            raise NotImplementedError(
                "torch.distributed.checkpoint: compressed or encrypted pieces are not supported by torchlike"
            )
        return found

    def _file(self, name: str) -> Any:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise torch.CheckpointError(
                f"{_NAME} names '{name}', which is not a file of the folder"
            )
        return self.fs.concat_path(self.path, name)

    def _read(self, path: Any, item: ReadItem, planner: LoadPlanner) -> None:
        place = self._place(item)
        if item.type == LoadItemType.BYTE_IO:
            with self.fs.create_stream(path, "rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                if min(place.offset, place.length) < 0 or place.offset + place.length > size:
                    raise torch.CheckpointError(
                        f"{_NAME} places {item.storage_index} outside of '{place.relative_path}'"
                    )
                stream.seek(place.offset)
                planner.load_bytes(item, io.BytesIO(stream.read(place.length)))
            return
        stored = _C._load(
            os.fspath(path), "meta", True, None, {}, place.offset, False, length=place.length
        )[0]
        wanted = torch.materialize(narrowed(stored, item.storage_offsets, item.lengths))
        self._take(wanted, item, planner)

    def _take(self, wanted: Any, item: ReadItem, planner: LoadPlanner) -> None:
        """Gives the planner what an item asked for."""
        target = planner.resolve_tensor(item).detach()
        if target.size() != wanted.size():
            raise AssertionError(
                f"req {item.storage_index} mismatch sizes {target.size()} vs {wanted.size()}"
            )
        target.copy_(wanted)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a path."""
        return FileSystem.validate_checkpoint_id(checkpoint_id)
