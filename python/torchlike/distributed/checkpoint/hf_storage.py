"""Checkpoints as safetensors, named as Hugging Face names them: whole tensors, or a file of pieces by each rank."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed.checkpoint._consolidate_hf_safetensors import (
    INDEX_NAME,
    consolidate_safetensors_files,
    file_name,
    write_index,
)
from torchlike.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    SerializationFormat,
    _StorageInfo,
    alone,
)
from torchlike.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torchlike.distributed.checkpoint.storage import WriteResult
from torchlike.futures import Future
from torchlike.safetensors import safe_open, save_file

if TYPE_CHECKING:
    from torchlike.distributed.checkpoint.planner import (
        LoadPlan,
        LoadPlanner,
        ReadItem,
        SavePlan,
        SavePlanner,
        WriteItem,
    )

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

_SUFFIX = ".safetensors"
_SHARDED = "sharded"
# What PyTorch's files say of themselves: where pieces belong, and in which version of this.
_PLACES, _VERSION = "DCP_SHARDING_INFO", {"DCP_VERSION": "1.0", "format": "pt"}


@dataclass
class _HFStorageInfo:
    """The file of a piece, and what the piece looks like."""

    relative_path: str
    shape: torch.Size
    dtype: torch.dtype


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes tensors as safetensors. `torchlike.load` reads the folder, also one of pieces.

    Args:
        path: the folder.
        fqn_to_index_mapping: the number of its file for each name, from 1 on; one file.
        thread_count: threads that write.
        save_distributed: every rank writes the pieces that it has. Otherwise tensors have to be whole.
        enable_consolidation: pieces are written to the folder `sharded` in `path`, and put together in `path`.
        thread_count_consolidation: threads that put together.
    """

    def __init__(
        self,
        path: str,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
    ) -> None:
        super().__init__(
            path, thread_count=thread_count, serialization_format=SerializationFormat.SAFETENSORS
        )
        self.fqn_to_index_mapping = fqn_to_index_mapping
        self.save_distributed = save_distributed
        self.enable_consolidation = enable_consolidation
        self.thread_count_consolidation = thread_count_consolidation
        self.consolidated_output_path: str | None = None
        self._divide()

    def _divide(self) -> None:
        if self.enable_consolidation:
            self.consolidated_output_path = str(self.path)
            self.path = self.fs.concat_path(self.path, _SHARDED)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a checkpoint, in another folder if one is given."""
        super().reset(checkpoint_id)
        if checkpoint_id:
            self._divide()

    @property
    def metadata_path(self) -> str:
        """The name of the index."""
        return INDEX_NAME

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Makes the folder.

        Raises:
            ValueError: for a value that is no tensor, a piece of a tensor without `save_distributed`, or a name that
                `fqn_to_index_mapping` has not.
        """
        for item in plan.items:
            name = item.index.fqn
            if item.tensor_data is None:
                raise ValueError(
                    f"HuggingFaceStorageWriter: safetensors hold tensors, '{name}' is none"
                )
            if self.fqn_to_index_mapping is not None and name not in self.fqn_to_index_mapping:
                raise ValueError(f"HuggingFaceStorageWriter: fqn_to_index_mapping has no '{name}'")
            whole = torch.Size(item.tensor_data.chunk.sizes) == torch.Size(item.tensor_data.size)
            if not self.save_distributed and not whole:
                raise ValueError(
                    f"HuggingFaceStorageWriter: '{name}' is a piece of a tensor; save_distributed=True writes pieces"
                )
        return super().prepare_local_plan(plan)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives every rank the numbers of its files."""
        most = max((_most(plan.items) for plan in plans), default=1)
        made = []
        for i, plan in enumerate(plans):
            data: dict[str, Any] = {}
            if self.fqn_to_index_mapping is not None:
                data["fqn_to_index_mapping"] = self.fqn_to_index_mapping
            if self.save_distributed:
                data["shard_index"] = i * most + 1
            made.append(replace(plan, storage_data=data))
        return made

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future:
        """Writes this rank's files."""
        files = _files(plan)
        with ThreadPoolExecutor(max(self.thread_count, 1)) as pool:
            written = pool.map(lambda f: self._write_file(f, files[f], planner), files)
        done = Future()
        done.set_result([result for results in written for result in results])
        return done

    def _write_file(
        self, name: str, items: list[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:
        tensors, places, results = {}, {}, []
        for item in items:
            assert item.tensor_data is not None
            tensor = alone(planner.resolve_data(item))
            tensors[item.index.fqn] = tensor
            places[item.index.fqn] = {"saved_offsets": list(item.tensor_data.chunk.offsets)}
            place = _StorageInfo(name, 0, tensor.nbytes)
            results.append(WriteResult(item.index, tensor.nbytes, place))
        metadata = {_PLACES: json.dumps(places), **_VERSION}
        # Ties would be names without a place of their own.
        path = os.fspath(self.fs.concat_path(self.path, name))
        save_file(tensors, path, metadata, duplicate=True)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Puts pieces together, or writes the index of whole tensors; pieces that stay pieces have none."""
        if not self.save_distributed:
            written = [r for rank in results for r in rank]
            files = {r.index.fqn: r.storage_data.relative_path for r in written}
            write_index(self.path, files, sum(r.storage_data.length for r in written))
        elif self.enable_consolidation:
            assert self.consolidated_output_path is not None
            consolidate_safetensors_files(
                str(self.path),
                self.consolidated_output_path,
                self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1),
                self.thread_count_consolidation,
            )


def _most(items: list[WriteItem]) -> int:
    """How many pieces of one tensor there are at most: of several ranks, where one process has them."""
    return max(Counter(item.index.fqn for item in items).values(), default=1)


def _files(plan: SavePlan) -> dict[str, list[WriteItem]]:
    """What a rank writes, by file: no file has two pieces of a tensor."""
    numbers = plan.storage_data.get("fqn_to_index_mapping")
    shard = plan.storage_data.get("shard_index")
    last = max(numbers.values()) if numbers else 1
    met: Counter[str] = Counter()
    files: dict[str, list[WriteItem]] = {}
    for item in plan.items:
        name = item.index.fqn
        at = None if shard is None else shard + met[name]
        met[name] += 1
        number = numbers[name] if numbers else 1
        files.setdefault(file_name(number, last, at), []).append(item)
    return files


class HuggingFaceStorageReader(FileSystemReader):
    """Reads a folder of safetensors, of each tensor only what is wanted: whole tensors, or pieces that
    `HuggingFaceStorageWriter` wrote.

    Args:
        path: the folder.
        thread_count: threads that read, a file each.
    """

    def __init__(self, path: str, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """All about the tensors, from the heads of the files.

        Raises:
            CheckpointError: if a file is damaged, or does not say where a tensor of it belongs although it is one of
                pieces.
        """
        tensors: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for path in sorted(f for f in self.fs.ls(self.path) if f.endswith(_SUFFIX)):
            starts = _starts(path, dict(_C._file_metadata(path)[1]))
            for name, tensor in torch.load(path, map_location="meta").items():
                start = torch.Size(starts(name, tensor.ndim))
                end = [at + n for at, n in zip(start, tensor.shape, strict=True)]
                chunk = ChunkStorageMetadata(start, tensor.shape)
                known = tensors.get(name)
                if known is None:
                    properties = TensorProperties(dtype=tensor.dtype)
                    tensors[name] = TensorStorageMetadata(properties, torch.Size(end), [chunk])
                else:
                    known.chunks.append(chunk)
                    known.size = torch.Size(map(max, known.size, end))
                index = MetadataIndex(name, start)
                places[index] = _HFStorageInfo(path, tensor.shape, tensor.dtype)
        meta = StorageMeta()
        meta.load_id = self.load_id
        found: dict[str, Any] = {**tensors}
        return Metadata(state_dict_metadata=found, storage_data=places, storage_meta=meta)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future:
        """Reads."""
        by_file: dict[str, list[ReadItem]] = {}
        places: Any = self.storage_data
        for item in plan.items:
            by_file.setdefault(places[item.storage_index].relative_path, []).append(item)

        def read(path: str) -> None:
            with safe_open(path) as file:
                for item in by_file[path]:
                    self._process_read_request(file, item, planner)

        with ThreadPoolExecutor(max(self.thread_count, 1)) as pool:
            list(pool.map(read, by_file))
        done = Future()
        done.set_result(None)
        return done

    def _process_read_request(self, f: Any, req: ReadItem, planner: LoadPlanner) -> None:
        self._take(self._wanted(f, req), req, planner)

    def _wanted(self, file: Any, item: ReadItem) -> Any:
        """The box of a stored tensor that an item asks for."""
        box = zip(item.storage_offsets, item.lengths, strict=True)
        return file.get_slice(item.storage_index.fqn)[tuple(slice(at, at + n) for at, n in box)]


def _starts(path: str, metadata: dict[str, str]) -> Any:
    """Where the tensors of a file belong: a function of name and dimensions."""
    text = metadata.get(_PLACES)
    if not text:
        return lambda name, ndim: [0] * ndim
    try:
        places = json.loads(text)
    except ValueError as error:
        raise torch.CheckpointError(f"'{path}': {_PLACES} is not JSON: {error}") from None

    def start(name: str, ndim: int) -> list[int]:
        try:
            found = [int(n) for n in places[name]["saved_offsets"]]
        except (KeyError, TypeError, ValueError):
            found = [-1]
        if len(found) != ndim or min(found, default=0) < 0:
            raise torch.CheckpointError(
                f"'{path}': {_PLACES} does not say where tensor '{name}' belongs"
            )
        return found

    return start
