"""The functions of `torchlike.distributed` that processes talk to each other by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _lazy
from torchlike.distributed import _groups
from torchlike.distributed._groups import ProcessGroup, Work, group_of
from torchlike.distributed._ops import c10d

if TYPE_CHECKING:
    from torchlike.distributed import _gloo
else:
    _gloo = _lazy.module("torchlike.distributed._gloo")


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
    if async_op:
        return work
    work.wait()
    return None


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
    if group.connected and src is not None and src not in group.ranks:
        if group is not _groups.world().default:
            return get_group_rank(group, src)
        return src
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
    if gather_list is None and group.rank() == root:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
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


def _other(group: ProcessGroup, rank: int | None, group_rank: int | None, what: str) -> int:
    """The place of another rank in the group.

    Raises:
        ValueError: if it is this process's own.
    """
    place = _source(group, rank, group_rank)
    if place == group.rank():
        raise ValueError(
            f"Invalid {what} rank: {what} rank should not be the same as the rank of the current process."
        )
    return place


def isend(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> Any:
    """Begins to send a tensor to a rank."""
    group = _one(group, "isend")
    return c10d.send([tensor], group, _other(group, dst, group_dst, "destination"), tag)


def send(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> None:
    """Sends a tensor to a rank."""
    isend(tensor, dst, group, tag, group_dst).wait()


def irecv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> Any:
    """Begins to receive a tensor from a rank, or from any where none is named."""
    group = _one(group, "irecv")
    if src is None and group_src is None and group.connected:
        return _gloo.Receiving(group, tensor, None, tag)
    return c10d.recv_([tensor], group, _other(group, src, group_src, "source"), tag)


def recv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> int:
    """Receives a tensor from a rank, whose number is returned; from any where none is named."""
    found = _one(group, "recv")
    work = irecv(tensor, src, found, tag, group_src)
    work.wait()
    if isinstance(work, _gloo.Receiving):
        return work._source_rank()
    return found.ranks[_source(found, src, group_src)]


class P2POp:
    """A tensor that `batch_isend_irecv` sends or receives: `op` is `isend` or `irecv`."""

    def __init__(
        self,
        op: Any,
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = group_of(group)
        self.group_peer = _source(self.group, peer, group_peer)
        self.peer = self.group.ranks[self.group_peer]


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Begins several sends and receives; gives what can be waited for."""
    _groups.world()
    if not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to be of type ``torch.distributed.P2POp``."
        )
    return [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """Waits for all ranks; those that are played here are there."""
    return _done(c10d.barrier(torch.empty(0), _one(group, "barrier")), async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Waits for all ranks, no longer than `timeout`.

    Raises:
        RuntimeError: if one does not come.
    """
    found = _one(group, "monitored_barrier")
    if found.connected:
        _gloo.meet(found, None if timeout is None else timeout.total_seconds())


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Gives all ranks an object of each; a `fake` group has only this rank's, in every place."""
    found = _one(group, "all_gather_object")
    made = _gloo.objects(found, obj) if found.connected else [obj] * found.size()
    object_list[: found.size()] = made


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Gives one rank an object of each.

    Raises:
        ValueError: if that rank has no list for them.
    """
    found = _one(group, "gather_object")
    here = found.rank() == _source(found, dst, group_dst)
    if here and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    made = _gloo.objects(found, obj) if found.connected else [obj] * found.size()
    if here and object_gather_list is not None:
        object_gather_list[: found.size()] = made


def broadcast_object_list(
    object_list: list[Any],
    src: Any = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Gives all ranks the objects of one: they stay what they are on a `fake` group."""
    found = _one(group, "broadcast_object_list")
    if found.connected:
        object_list[:] = _gloo.one_object(found, list(object_list), _source(found, src, group_src))


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Gives each rank one object of a list of one rank's; a `fake` group gives this rank's place of its own list."""
    found = _one(group, "scatter_object_list")
    given = list(scatter_object_input_list or ())
    if found.connected:
        given = _gloo.one_object(found, given, _source(found, src, group_src))
    if len(given) == found.size():
        scatter_object_output_list[0] = given[found.rank()]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
) -> None:
    """Sends objects to a rank, which receives as many."""
    found = _one(group, "send_object_list")
    place = _other(found, dst, group_dst, "destination")
    if found.connected:
        _gloo.send_objects(found, list(object_list), place)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> int:
    """Receives objects from a rank, whose number is returned; on a `fake` group they stay what they are."""
    found = _one(group, "recv_object_list")
    place = _other(found, src, group_src, "source")
    if found.connected:
        object_list[:] = _gloo.receive_objects(found, place)
    return found.ranks[place]


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


def get_backend_config(group: Any = None) -> str:
    """Which backend moves the data of which device."""
    found = group_of(group)
    return f"cpu:{found.backend}"


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
    name = (backend or world.backend).lower().rpartition(":")[2]
    if name not in _groups.BACKENDS or (name == "gloo") != (world.backend == "gloo"):
        raise NotImplementedError(
            f"torch.distributed.new_group: a group of the backend {name!r} in a world of {world.backend!r} is not "
            "supported by torchlike"
        )
    if not set(chosen) & set(world.here):
        world.made += 1
        return GroupMember.NON_GROUP_MEMBER
    return world.add(chosen, group_desc or "", name)


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of so many neighbours: that of this process, and all.

    Raises:
        ValueError: if the world cannot be divided into them.
    """
    size = _groups.world().size
    if group_size is None:
        raise ValueError(
            "Default group size only takes effect when CUDA is available. If your subgroup using a backend that does "
            "not depend on CUDA, please pass in 'group_size' correctly."
        )
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})"
        )
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by '{group_size=}'")
    starts = range(0, size, group_size)
    made = [new_group(range(i, i + group_size), timeout, backend, pg_options) for i in starts]
    return made[get_rank() // group_size], made


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Any,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks: that of this process (None if it is in none), and all.

    Raises:
        ValueError: without lists, and if a rank is in two.
    """
    if ranks_per_subgroup_list is None or len(ranks_per_subgroup_list) == 0:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    lists = [list(ranks) for ranks in ranks_per_subgroup_list]
    seen: set[int] = set()
    for ranks in lists:
        if seen & set(ranks):
            raise ValueError(
                f"Rank {min(seen & set(ranks))} has appeared in more than one subgroup"
            )
        seen.update(ranks)
    made = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in lists
    ]
    mine = [g for g, ranks in zip(made, lists, strict=True) if get_rank() in ranks]
    return (mine[0] if mine else None), made


def split_group(
    parent_pg: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """Divides a group; that part which this process is in, or None. All ranks of the group call it alike.

    Args:
        parent_pg: what is divided; all ranks by default.
        split_ranks: lists of ranks within that group, none of which is in two.

    Raises:
        ValueError: without lists, and if a rank is in two or not in the group.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = _groups.group_of(parent_pg)
    flat = [r for ranks in split_ranks for r in ranks]
    if len(set(flat)) < len(flat):
        raise ValueError("the split group cannot have duplicate ranks")
    if any(not 0 <= r < parent.size() for r in flat):
        raise ValueError(
            f"the split group's ranks have to be within the {parent.size()} of the parent group"
        )
    mine = None
    for ranks in split_ranks:
        chosen = [parent.ranks[r] for r in ranks]
        made = new_group(chosen, timeout, backend, pg_options, group_desc=group_desc)
        if get_rank() in chosen:
            mine = made
    return mine
