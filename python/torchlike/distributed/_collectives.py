"""The functions of `torchlike.distributed` that processes talk to each other by."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.distributed import _groups
from torchlike.distributed._groups import ProcessGroup, Work, group_of
from torchlike.distributed._ops import c10d


def _one(group: ProcessGroup | None, what: str) -> ProcessGroup:
    """The group, of which this process plays one rank.

    Raises:
        NotImplementedError: on a `local` group: its ranks are all here, and share no tensor of this process.
    """
    found = group_of(group)
    if found.backend == "local" and found.size() > 1:
        raise NotImplementedError(
            f"torch.distributed.{what} takes the tensor of one rank, and a 'local' group plays all {found.size()} of "
            "them in this process; data moves between the pieces of a DTensor there"
        )
    return found


def _done(work: Work, async_op: bool) -> Work | None:
    return work if async_op else None


def _default(op: Any) -> Any:
    from torchlike.distributed import ReduceOp

    return ReduceOp.SUM if op is None else op


def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    """Reduces the tensors of all ranks, into all of them."""
    return _done(c10d.allreduce_([tensor], _one(group, "all_reduce"), _default(op)), async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces several tensors at once."""
    group = _one(group, "all_reduce_coalesced")
    return _done(c10d.allreduce_coalesced_(list(tensors), group, _default(op)), async_op)


def _source(group: ProcessGroup, src: int | None, group_src: int | None) -> int:
    if group_src is not None:
        return group_src
    return group.ranks.index(src) if src in group.ranks else 0


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Gives all ranks the tensor of one."""
    group = _one(group, "broadcast")
    return _done(c10d.broadcast_([tensor], group, _source(group, src, group_src)), async_op)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Reduces the tensors of all ranks into that of one."""
    group = _one(group, "reduce")
    work = c10d.reduce_([tensor], group, _default(op), _source(group, dst, group_dst))
    return _done(work, async_op)


def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    """Gives all ranks the tensors of all, in a list."""
    return _done(c10d.allgather_([tensor_list], [tensor], _one(group, "all_gather")), async_op)


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Any:
    """Gives all ranks the tensors of all, one after the other in `output_tensor`."""
    group = _one(group, "all_gather_into_tensor")
    return _done(c10d._allgather_base_(output_tensor, input_tensor, group), async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces the tensors of all ranks, and gives each a part."""
    group = _one(group, "reduce_scatter_tensor")
    return _done(c10d._reduce_scatter_base_(output, input, group, _default(op)), async_op)


def reduce_scatter(
    output: Any, input_list: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces lists of tensors of all ranks, and gives each rank one."""
    group = _one(group, "reduce_scatter")
    return _done(c10d.reduce_scatter_([output], [input_list], group, _default(op)), async_op)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Gives each rank a part of each rank's tensor."""
    group = _one(group, "all_to_all_single")
    splits = (list(output_split_sizes or []), list(input_split_sizes or []))
    return _done(c10d.alltoall_base_(output, input, group, *splits), async_op)


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Any:
    """Gives each rank one tensor of each rank's list."""
    group = _one(group, "all_to_all")
    return _done(c10d.alltoall_(output_tensor_list, input_tensor_list, group), async_op)


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Gives one rank the tensors of all."""
    group = _one(group, "gather")
    root = _source(group, dst, group_dst)
    lists = [gather_list] if gather_list else []
    return _done(c10d.gather_(lists, [tensor], group, root), async_op)


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Gives each rank one tensor of a list of one rank's."""
    group = _one(group, "scatter")
    root = _source(group, src, group_src)
    lists = [list(scatter_list)] if scatter_list else []
    return _done(c10d.scatter_([tensor], lists, group, root), async_op)


def send(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> None:
    """Sends a tensor to a rank."""
    group = _one(group, "send")
    c10d.send([tensor], group, _source(group, dst, group_dst), tag)


def recv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> int:
    """Receives a tensor from a rank, whose number is returned."""
    group = _one(group, "recv")
    root = _source(group, src, group_src)
    c10d.recv_([tensor], group, root, tag)
    return group.ranks[root]


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """Waits for all ranks; those that are played here are there."""
    work = c10d.barrier(torch.empty(0), _one(group, "barrier"))
    return _done(work, async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Gives all ranks an object of each; a `fake` group has only this rank's, in every place."""
    for i in range(_one(group, "all_gather_object").size()):
        object_list[i] = obj


def broadcast_object_list(object_list: list[Any], src: Any = None, group: Any = None) -> None:
    """Gives all ranks the objects of one: they stay what they are on a `fake` group."""
    _one(group, "broadcast_object_list")


def get_rank(group: Any = None) -> int:
    """This process's place in the group; -1 if it has none, or there is no world to have one in."""
    return group_of(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has; -1 if this process is not among them."""
    found = group_of(group)
    return found.size() if found.rank() >= 0 else -1


def get_backend(group: Any = None) -> str:
    """The name of what moves the group's data."""
    return group_of(group).backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of the group, as the world numbers them."""
    return list(group_of(group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place of a rank in the group.

    Raises:
        ValueError: if it has none.
    """
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank at a place of the group.

    Raises:
        ValueError: if the group is smaller.
    """
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def new_group(
    ranks: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some ranks; a number that says so, if this process is not among them.

    Raises:
        ValueError: if a rank is not in the world.
    """
    from torchlike.distributed import GroupMember

    world = _groups.world()
    chosen = sorted(range(world.size) if ranks is None else ranks)
    if any(not 0 <= r < world.size for r in chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(
            "the new group's rank should be within the world_size set by init_process_group"
        )
    if not set(chosen) & set(world.here):
        return GroupMember.NON_GROUP_MEMBER
    return world.add(chosen, group_desc or "", backend)
