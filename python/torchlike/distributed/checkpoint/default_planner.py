"""The usual planners: what several ranks have alike is written once, and pieces are cut anew where they are loaded."""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.checkpoint._traverse import (
    PATH,
    flatten_state_dict,
    set_element,
)
from torchlike.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torchlike.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torchlike.distributed.checkpoint.planner_helpers import (
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    _overlap,
    _Sorted,
)
from torchlike.distributed.checkpoint.utils import find_state_dict_object
from torchlike.distributed.tensor._dtensor import DTensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]


class DefaultSavePlanner(SavePlanner):
    """Writes each piece once.

    Args:
        flatten_state_dict: nested state dicts are written value by value.
        flatten_sharded_tensors: without meaning here.
        dedup_replicated_tensors: without meaning.
        dedup_save_to_lowest_rank: what several ranks have is written by the first of them, not by the one that has
            least to write.
        enable_plan_caching: without meaning here: plans are made for every checkpoint.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, PATH] = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Takes what is to be saved."""
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        """What this rank could write."""
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = replace(plan, planner_data=self.mappings)
        self.plan = plan
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """What each rank writes.

        Raises:
            ValueError: if pieces overlap, lie outside of their tensors or leave elements out.
        """
        plans = _once(all_plans, self.dedup_save_to_lowest_rank)
        self.global_plan, metadata = create_default_global_save_plan(plans)
        if self.flatten_state_dict:
            paths: dict[str, PATH] = {}
            for plan in reversed(self.global_plan):
                paths.update(plan.planner_data)
            metadata = replace(metadata, planner_data=paths)
        wrong = "; ".join(_mistakes(len(all_plans), metadata))
        if wrong:
            shown = wrong if len(wrong) <= 500 else wrong[:500] + "... (truncated)"
            raise ValueError(f"Failed to validate global plan: {shown}")
        self.metadata = metadata
        return self.global_plan, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """This rank's plan."""
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """The tensor, or the file of bytes, of an item."""
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value of an item, which a subclass may find elsewhere."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written of a value, which a subclass may change."""
        if write_item.type == WriteItemType.BYTE_IO:
            made = io.BytesIO()
            torch.save(object, made)
            return made
        return object


class DefaultLoadPlanner(LoadPlanner):
    """Fills the tensors of a state dict in place, and puts other values in.

    Args:
        flatten_state_dict: names lead into nested state dicts.
        flatten_sharded_tensors: without meaning here.
        allow_partial_load: what the checkpoint has not stays as it is.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict: dict[str, Any] = {}
        self.mappings: dict[str, PATH] = {}

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Takes what is to be filled; tensors on meta become real ones in it."""
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """What this rank needs."""
        assert self.metadata is not None
        missing = self.metadata.state_dict_metadata.keys() - self.state_dict.keys()
        if self.flatten_state_dict and missing:
            # PyTorch before 2.4 kept dictionaries without tensors as one value.
            old, paths = flatten_state_dict(self.original_state_dict, whole_dicts=True)
            if old.keys() & missing:
                self.state_dict, self.mappings = old, paths
        return create_default_local_load_plan(
            self.state_dict, self.metadata, not self.allow_partial_load
        )

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The same: every rank reads for itself."""
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        """The same."""
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Puts a value in its place."""
        made = torch.load(value, weights_only=False)
        name = read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], made)
        else:
            self.state_dict[name] = made

    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """The box of a tensor that an item fills."""
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """Nothing is left to do."""

    def lookup_tensor(self, index: MetadataIndex) -> Any:
        """The tensor of an item, which a subclass may find elsewhere."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Any) -> Any:
        """What is filled of a tensor, which a subclass may change."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


def narrowed(tensor: Any, offsets: Any, lengths: Any) -> Any:
    """A box of a tensor, as a view."""
    for dim, (start, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length < tensor.size(dim):
            tensor = tensor.narrow(dim, start, length)
    return tensor


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads into an empty state dict all that a checkpoint has, or what `keys` name."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _is_wanted(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        path = (metadata.planner_data or {}).get(key, ())
        return any(".".join(map(str, path[: n + 1])) in self.keys for n in range(len(path)))

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Fills the empty state dict with tensors to be read."""
        assert not state_dict and metadata is not None
        paths = metadata.planner_data or {}
        for key, value in metadata.state_dict_metadata.items():
            if not self._is_wanted(key, metadata):
                continue
            made: Any = value
            if isinstance(value, TensorStorageMetadata):
                made = torch.empty(value.size, dtype=value.properties.dtype)
            set_element(state_dict, paths.get(key, (key,)), made)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def create_default_local_load_plan(
    state_dict: dict[str, Any], metadata: Metadata, strict: bool = True
) -> LoadPlan:
    """What is read for a state dict.

    Raises:
        RuntimeError: for what the checkpoint has not, if `strict`.
        ValueError: for tensors of another size.
    """
    items: list[ReadItem] = []
    for name, value in state_dict.items():
        stored = metadata.state_dict_metadata.get(name)
        if stored is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            continue
        sized = isinstance(stored, TensorStorageMetadata) and isinstance(value, torch.Tensor)
        if sized and tuple(stored.size) != tuple(value.shape):  # type: ignore[union-attr]
            raise ValueError(
                f"Size mismatch between saved {stored.size} and current: {value.size()} for {name}"  # type: ignore[union-attr]
            )
        if not isinstance(value, DTensor) or value.device_mesh._seats:
            items += _create_read_items(name, stored, value)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The same: every rank reads for itself."""
    return all_plans


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """All that this rank has."""
    items: list[WriteItem] = []
    for name, value in state_dict.items():
        if not isinstance(value, DTensor) or value.device_mesh._seats:
            items += _create_write_items(name, value)
    return SavePlan(items)


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """The plans, whose items know their places in the lists of pieces, and what the checkpoint consists of."""
    found: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name, data = item.index.fqn, item.tensor_data
            if item.type != WriteItemType.SHARD and name in found:
                raise AssertionError(f"{name} is to be written twice")
            if item.type == WriteItemType.BYTE_IO:
                found[name] = BytesStorageMetadata()
                items.append(item)
                continue
            assert data is not None
            stored = found.setdefault(
                name, TensorStorageMetadata(data.properties, data.size, chunks=[])
            )
            if rewrite_index_hints:
                item = replace(item, index=replace(item.index, index=len(stored.chunks)))
            items.append(item)
            stored.chunks.append(data.chunk)
        plans.append(replace(plan, items=items))
    return plans, Metadata(found)


def _create_default_local_metadata(state_dict: dict[str, Any]) -> Metadata:
    """What a checkpoint of this state dict would consist of."""
    return create_default_global_save_plan([create_default_local_save_plan(state_dict, True)])[1]


def _once(all_plans: list[SavePlan], lowest: bool) -> list[SavePlan]:
    """The plans without what another rank writes: each item goes to the rank that has least to write so far."""
    owners: dict[MetadataIndex, list[int]] = defaultdict(list)
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            owners[item.index].append(rank)
            items[item.index] = item
    load = [0] * len(all_plans)
    chosen: dict[MetadataIndex, int] = {}
    for index, ranks in owners.items():
        rank = min(ranks) if lowest else min(ranks, key=load.__getitem__)
        # Nobody knows how large something is that is no tensor.
        load[rank] += items[index].tensor_storage_size() or 1
        chosen[index] = rank
    return [
        replace(plan, items=[item for item in plan.items if chosen[item.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]


def _mistakes(ranks: int, metadata: Metadata) -> Iterable[str]:
    """What is wrong with the pieces of tensors."""
    for name, stored in metadata.state_dict_metadata.items():
        if isinstance(stored, BytesStorageMetadata) or not len(stored.size):
            continue
        for chunk in stored.chunks:
            if not _lies_inside(chunk, stored.size):
                yield f"key:{name} has out of bounds chunk: tensor-size:{stored.size} chunk: {chunk}"
        boxes = _Sorted(stored.chunks)
        for i, chunk in enumerate(stored.chunks):
            for j, other in boxes.near(chunk):
                if j > i and _overlap(chunk, other) is not None:
                    yield f"key:{name} has overlapping chunks: {chunk} {other}"
        there, wanted = sum(prod(c.sizes) for c in stored.chunks), prod(stored.size)
        if ranks > 1 and there != wanted:
            yield f"key:{name} invalid fill tensor-volume: {wanted} chunks-volume: {there}"


def _lies_inside(chunk: ChunkStorageMetadata, size: Any) -> bool:
    boxes = zip(chunk.offsets, chunk.sizes, size, strict=True)
    return all(o >= 0 and n >= 0 and o + n <= whole for o, n, whole in boxes)
