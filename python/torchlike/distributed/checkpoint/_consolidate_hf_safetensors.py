"""Pieces of tensors in safetensors files, put together in files of whole tensors with an index."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torchlike as torch
from torchlike import distributed as dist
from torchlike.distributed.checkpoint.utils import _DistWrapper
from torchlike.safetensors import save_file

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]

INDEX_NAME = "model.safetensors.index.json"


def file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    """The name of file `index`, and of the pieces of one rank if that is given."""
    shard = "" if shard_index is None else f"shard-{shard_index:05}-"
    return f"{shard}model-{index:05}-of-{largest_index:05}.safetensors"


def write_index(folder: str | os.PathLike[str], files: dict[str, str], total: int) -> None:
    """Writes the index: the file of each name, and the bytes of all."""
    index = {"metadata": {"total_size": total}, "weight_map": files}
    Path(folder, INDEX_NAME).write_text(json.dumps(index, indent=2), encoding="utf-8")


def consolidate_safetensors_files(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
) -> None:
    """Puts the pieces of tensors together, one tensor at a time in each thread.

    Args:
        input_dir: a folder that `HuggingFaceStorageWriter(save_distributed=True)` wrote.
        output_dir: where files of whole tensors and their index are written.
        fqn_to_index_mapping: the number of its file for each name, from 1 on; what it does not name is left out.
        num_threads: files that are written at a time.

    Raises:
        CheckpointError: if a tensor is missing, or its pieces do not cover it.
    """
    last = max(fqn_to_index_mapping.values())
    files, total = _consolidated(input_dir, output_dir, fqn_to_index_mapping, last, num_threads)
    write_index(output_dir, files, total)


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any = None,
) -> None:
    """As `consolidate_safetensors_files`, by all ranks of a group: each makes the files whose number is its rank,
    modulo how many ranks there are. The first one writes the index.

    Raises:
        CheckpointException: on all ranks, if one fails.
    """
    ranks = _DistWrapper(process_group, dist.is_initialized(), 0)
    last, size = max(fqn_to_index_mapping.values()), ranks.get_world_size()
    own = {name: i for name, i in fqn_to_index_mapping.items() if i % size == ranks.get_rank()}

    def write() -> tuple[dict[str, str], int]:
        return _consolidated(input_dir, output_dir, own, last, num_threads) if own else ({}, 0)

    def finish(every: list[Any]) -> None:
        merged = {name: file for files, _ in every for name, file in files.items()}
        write_index(output_dir, merged, sum(total for _, total in every))

    ranks.all_reduce("consolidate", write, finish)


def _consolidated(
    source: str, target: str, numbers: dict[str, int], last: int, threads: int
) -> tuple[dict[str, str], int]:
    """Writes files; gives the file of each name, and the bytes of all tensors."""
    tensors = torch.load(source, map_location="meta")
    missing = next((name for name in numbers if name not in tensors), None)
    if missing is not None:
        raise torch.CheckpointError(f"'{source}' has no tensor '{missing}'")
    files = {name: file_name(number, last) for name, number in numbers.items()}
    by_file: dict[str, dict[str, Any]] = {}
    for name, file in files.items():
        by_file.setdefault(file, {})[name] = tensors[name]

    def write(file: str) -> None:
        # Readers of whole models ask whose tensors these are.
        save_file(by_file[file], Path(target, file), {"format": "pt"}, duplicate=True)

    with ThreadPoolExecutor(max(threads, 1)) as pool:
        list(pool.map(write, by_file))
    return files, sum(tensors[name].nbytes for name in numbers)
