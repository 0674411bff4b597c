"""Saving by several processes."""

from __future__ import annotations

import copy
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.checkpoint._storage_utils import single, storage_of
from torchlike.distributed.checkpoint.default_planner import DefaultSavePlanner
from torchlike.distributed.checkpoint.stateful import Stateful
from torchlike.distributed.checkpoint.utils import _DistWrapper
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    import os

    from torchlike.distributed.checkpoint.metadata import Metadata
    from torchlike.distributed.checkpoint.planner import SavePlan, SavePlanner
    from torchlike.distributed.checkpoint.storage import StorageWriter

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Who saves while the program goes on."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """When the tensors are copied, and when the checkpoint is written."""

    staging_completion: Future[None]
    upload_completion: Future[Any]


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Old name of `save`."""
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_writer.reset()
    return _save_state_dict(
        state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner
    )


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Saves a state dict of which each rank has its part: pieces of `DTensor`s are written by those that have them,
    what is alike by one rank. Objects with a state dict of their own are asked for it. `torchlike.load` reads the
    folder, and so does PyTorch.

    Args:
        state_dict: names and values, nested as they like.
        checkpoint_id: the folder.
        storage_writer: who writes; a `FileSystemWriter` of the folder.
        planner: who decides what is written where.
        process_group: the ranks that save; all.
        no_dist: this process alone saves.
        use_collectives: only True.

    Raises:
        CheckpointException: on all ranks, if saving fails on one.
    """
    if not use_collectives:
        raise NotImplementedError(
            "torch.distributed.checkpoint.save(use_collectives=False) is not supported by torchlike: metadata are "
            "written by one rank"
        )
    alone = single(no_dist, "save")
    writer = storage_of(storage_writer, checkpoint_id, reads=False)
    return _save_state_dict(
        _stateful_to_state_dict(state_dict), writer, process_group, 0, alone, planner
    )


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Any]:
    """As `save`, on another thread, of a copy on the CPU of what the state dict has now: the program may go on at once.

    Raises:
        NotImplementedError: for a process of its own, or a stager.
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD or async_stager is not None:
        raise NotImplementedError(
            "torch.distributed.checkpoint.async_save(async_checkpointer_type=, async_stager=) is not supported by "
            "torchlike: a thread saves a copy"
        )
    copied = staged(_stateful_to_state_dict(state_dict))
    pool = ThreadPoolExecutor(max_workers=1)
    done = pool.submit(
        save,
        copied,
        checkpoint_id=checkpoint_id,
        storage_writer=storage_writer,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
        use_collectives=use_collectives,
    )
    pool.shutdown(wait=False)
    return done


def staged(state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict whose tensors are copies on the CPU."""

    def copied(value: Any) -> Any:
        if isinstance(value, DTensor):
            pieces = [_on_cpu(piece) for piece in value._locals]
            return DTensor._of(pieces, value._spec, value.requires_grad)
        return _on_cpu(value) if isinstance(value, torch.Tensor) else copy.deepcopy(value)

    made: dict[str, Any] = pytree.tree_map(copied, state_dict)
    return made


def _on_cpu(tensor: Any) -> Any:
    made = tensor.detach().cpu()
    return made.clone() if made.data_ptr() == tensor.data_ptr() else made


def _stateful_to_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state dict with the state dicts of what has one in their places."""
    return {
        key: value.state_dict() if isinstance(value, Stateful) else value
        for key, value in state_dict.items()
    }


def _save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    plans = planner or DefaultSavePlanner()
    about: list[Metadata] = []

    def local() -> SavePlan:
        plans.set_up_planner(state_dict, storage_writer.storage_meta(), ranks.is_coordinator)
        storage_writer.set_up_storage_writer(ranks.is_coordinator)
        return storage_writer.prepare_local_plan(plans.create_local_plan())

    def together(every: list[SavePlan]) -> list[SavePlan]:
        every, metadata = plans.create_global_plan(every)
        about.append(metadata)
        return storage_writer.prepare_global_plan(every)

    plan: SavePlan = ranks.reduce_scatter("plan", local, together)

    def write() -> Any:
        written = storage_writer.write_data(plans.finish_plan(plan), plans)
        written.wait()
        return written.value()

    def finish(results: list[Any]) -> Metadata:
        storage_writer.finish(about[0], results)
        return about[0]

    made: Metadata = ranks.all_reduce("write", write, finish)
    return made
