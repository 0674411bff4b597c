"""Steps that several ranks take together, and what they look for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torchlike as torch
from torchlike import distributed as dist
from torchlike.distributed.checkpoint.api import (
    CheckpointException,
    _is_wrapped_exception,
    _wrap_exception,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.distributed.checkpoint.metadata import MetadataIndex

__all__ = ["find_state_dict_object", "find_tensor_shard"]

T = TypeVar("T")


def _raise_failures(step: str, results: list[Any]) -> None:
    failures = {rank: r for rank, r in enumerate(results) if _is_wrapped_exception(r)}
    if failures:
        raise CheckpointException(step, failures)


def _tried(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except BaseException as error:
        # Sent to the other ranks, which would wait forever.
        return _wrap_exception(error)


class _DistWrapper:
    """Steps of all ranks of a group, of which one coordinates; without a group, of this process alone.

    An error on one rank is raised on all, as a `CheckpointException`.
    """

    def __init__(self, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        # A process that plays all ranks has all that they have.
        use_dist = use_dist and dist.get_backend(group) != "local"
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        self.rank = dist.get_rank(group) if use_dist else 0
        self.is_coordinator = not use_dist or self.rank == coordinator_rank
        own = group is None or not use_dist
        self.global_coordinator_rank = (
            coordinator_rank if own else dist.get_global_rank(group, coordinator_rank)
        )

    def get_rank(self) -> int:
        """This rank, in the group."""
        return self.rank

    def get_world_size(self) -> int:
        """Ranks of the group."""
        return dist.get_world_size(self.group) if self.use_dist else 1

    def _gathered(self, value: Any) -> list[Any] | None:
        if not self.use_dist:
            return [value]
        found = [None] * self.get_world_size() if self.is_coordinator else None
        dist.gather_object(value, found, dst=self.global_coordinator_rank, group=self.group)
        return found

    def _scattered(self, values: list[Any] | None) -> Any:
        if not self.use_dist:
            assert values is not None
            return values[0]
        found = [None]
        dist.scatter_object_list(found, values, src=self.global_coordinator_rank, group=self.group)
        return found[0]

    def _sent(self, value: Any) -> Any:
        if not self.use_dist:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=self.global_coordinator_rank, group=self.group)
        return values[0]

    def reduce_scatter(
        self, step: str, map_fun: Callable[[], Any], reduce_fun: Callable[[list[Any]], list[Any]]
    ) -> Any:
        """`map_fun` on every rank; the coordinator makes of all results one for each rank."""
        every = self._gathered(_tried(map_fun))
        results: list[Any] | None = None
        if every is not None:
            failed = _tried(_raise_failures, step, every)
            made = failed if failed is not None else _tried(reduce_fun, every)
            results = [made] * len(every) if _is_wrapped_exception(made) else made
        return self._checked(step, self._scattered(results))

    def all_reduce(
        self, step: str, map_fun: Callable[[], Any], reduce_fun: Callable[[list[Any]], Any]
    ) -> Any:
        """`map_fun` on every rank; the coordinator makes of all results one for all."""
        every = self._gathered(_tried(map_fun))
        result: Any = None
        if every is not None:
            failed = _tried(_raise_failures, step, every)
            result = failed if failed is not None else _tried(reduce_fun, every)
        return self._checked(step, self._sent(result))

    def all_gather(self, step: str, map_fun: Callable[[], Any]) -> list[Any]:
        """`map_fun` on every rank; all results."""
        value = _tried(map_fun)
        every = [value]
        if self.use_dist:
            every = [None] * self.get_world_size()
            dist.all_gather_object(every, value, group=self.group)
        _raise_failures(step, every)
        return every

    def broadcast(self, step: str, map_fun: Callable[[], Any]) -> Any:
        """`map_fun` on the coordinator alone; its result for all."""
        value = _tried(map_fun) if self.is_coordinator else None
        return self._checked(step, self._sent(value))

    def barrier(self) -> None:
        """Waits for all ranks."""
        if self.use_dist:
            dist.barrier(group=self.group)

    def _checked(self, step: str, result: Any) -> Any:
        if not _is_wrapped_exception(result):
            return result
        error = result[0]
        if isinstance(error, CheckpointException):
            raise error
        raise CheckpointException(step, {self.coordinator_rank: result})


def find_tensor_shard(tensor: Any, index: MetadataIndex) -> Any:
    """The piece of a tensor that an index means.

    Raises:
        ValueError: if it is not here.
    """
    from torchlike.distributed.checkpoint.planner_helpers import pieces_of

    if hasattr(tensor, "__get_tensor_shard__"):
        return tensor.__get_tensor_shard__(index)
    for chunk, piece in pieces_of(tensor):
        if index.offset is None or tuple(chunk.offsets) == tuple(index.offset):
            return piece
    raise ValueError(f"Could not find shard at '{index.offset}' for FQN: '{index.fqn}'")


def find_state_dict_object(state_dict: dict[str, Any], index: MetadataIndex) -> Any:
    """The value that an index means; of a tensor, the piece.

    Raises:
        ValueError: if there is none.
    """
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    value = state_dict[index.fqn]
    if isinstance(value, torch.Tensor):
        return find_tensor_shard(value, index)
    if index.offset is not None:
        raise ValueError(
            f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'"
        )
    return value


def _all_gather_keys(state_dict: dict[str, Any], process_group: Any = None) -> list[str]:
    """The names that any rank has, in order."""
    keys = list(state_dict)
    if not dist.is_initialized() or dist.get_backend(process_group) == "local":
        return sorted(keys)
    every: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(every, keys, group=process_group)
    return sorted({key for own in every for key in own})
