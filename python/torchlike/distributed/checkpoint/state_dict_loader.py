"""Loading by several processes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torchlike.distributed.checkpoint._storage_utils import single, storage_of
from torchlike.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from torchlike.distributed.checkpoint.stateful import Stateful
from torchlike.distributed.checkpoint.utils import _all_gather_keys, _DistWrapper

if TYPE_CHECKING:
    import os

    from torchlike.distributed.checkpoint.planner import LoadPlan, LoadPlanner
    from torchlike.distributed.checkpoint.storage import StorageReader

__all__ = ["load", "load_state_dict"]


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Old name of `load`."""
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fills a state dict in place from what `save` wrote, by other ranks or on another mesh, too: of each tensor only
    the bytes that are wanted here are read. Objects with a state dict of their own are given what is read.

    Args:
        state_dict: names and values, as they were saved; tensors are written into, other values replaced.
        checkpoint_id: the folder.
        storage_reader: who reads; a `FileSystemReader` of the folder.
        planner: who decides what is read; a `DefaultLoadPlanner`.
        process_group: the ranks that load; all.
        no_dist: this process alone loads.

    Raises:
        CheckpointException: on all ranks, if loading fails on one: a name or size that is not the checkpoint's.
    """
    alone = single(no_dist, "load")
    reader = storage_of(storage_reader, checkpoint_id, reads=True)
    keys = list(state_dict) if alone else _all_gather_keys(state_dict, process_group)
    own = [key for key in keys if key in state_dict]
    states = {
        key: v.state_dict() if isinstance(v := state_dict[key], Stateful) else v for key in own
    }
    _load_state_dict(states, reader, process_group, 0, alone, planner)
    for key in own:
        if isinstance(state_dict[key], Stateful):
            state_dict[key].load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    plans = planner or DefaultLoadPlanner()

    def local() -> LoadPlan:
        metadata = storage_reader.read_metadata()
        plans.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        storage_reader.set_up_storage_reader(metadata, ranks.is_coordinator)
        return storage_reader.prepare_local_plan(plans.create_local_plan())

    def together(every: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(plans.create_global_plan(every))

    plan: LoadPlan = ranks.reduce_scatter("plan", local, together)

    def read() -> None:
        storage_reader.read_data(plans.finish_plan(plan), plans).wait()

    ranks.all_gather("read", read)


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    process_group: Any = None,
) -> dict[str, Any]:
    """All of a checkpoint, or what is named, as a new state dict."""
    alone = single(False, "load")
    reader = storage_of(storage_reader, checkpoint_id, reads=True)
    wanted = {keys} if isinstance(keys, str) else keys
    made: dict[str, Any] = {}
    _load_state_dict(
        made, reader, process_group, no_dist=alone, planner=_EmptyStateDictLoadPlanner(keys=wanted)
    )
    return made
