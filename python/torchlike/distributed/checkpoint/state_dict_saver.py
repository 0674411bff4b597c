"""Saving by several processes."""

from __future__ import annotations

import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchlike.distributed.checkpoint._storage_utils import single, storage_of
from torchlike.distributed.checkpoint.default_planner import DefaultSavePlanner
from torchlike.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from torchlike.distributed.checkpoint.stateful import Stateful
from torchlike.distributed.checkpoint.utils import _DistWrapper

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
    async_stager: AsyncStager | None = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:
    """As `save`, on another thread, of a copy on the CPU of what the state dict has now: the program may go on at once.

    Args:
        async_stager: who copies; the writer, if it is one, or a stager that copies before this returns. A stager that
            gives a future copies while the program goes on, and this gives an `AsyncSaveResponse`.

    Raises:
        NotImplementedError: for a process of its own.
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError(
            "torch.distributed.checkpoint.async_save(async_checkpointer_type=AsyncCheckpointerType.PROCESS) is not "
            "supported by torchlike: a thread saves a copy"
        )
    stager: Any = async_stager
    if stager is None and isinstance(storage_writer, AsyncStager):
        stager = storage_writer
    stager = stager or DefaultStager(StagingOptions(False, False, False, False))
    copied = stager.stage(_stateful_to_state_dict(state_dict))

    def saved() -> Metadata:
        return save(
            copied.result() if isinstance(copied, Future) else copied,
            checkpoint_id=checkpoint_id,
            storage_writer=storage_writer,
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
            use_collectives=use_collectives,
        )

    pool = ThreadPoolExecutor(max_workers=1)
    done = pool.submit(saved)
    pool.shutdown(wait=False)
    if not isinstance(copied, Future):
        if stager.should_synchronize_after_execute:
            stager.synchronize_staging()
        return done
    return AsyncSaveResponse(_when(copied), done)


def _when(done: Future[Any]) -> Future[None]:
    """A future of nothing that is ready when another one is."""
    ready: Future[None] = Future()

    def told(of: Future[Any]) -> None:
        error = of.exception()
        if error is None:
            ready.set_result(None)
        else:
            ready.set_exception(error)

    done.add_done_callback(told)
    return ready


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
