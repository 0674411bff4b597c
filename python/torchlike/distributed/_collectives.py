"""The functions of `torchlike.distributed` that processes talk to each other by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _lazy
from torchlike.distributed import _checks, _groups
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


@_checks.for_members
def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Any:
    """Reduces the tensors of all ranks, into all of them."""
    _checks.tensor(tensor, "tensor")
    return _done(c10d.allreduce_([tensor], _one(group, "all_reduce"), _default(op)), async_op)


@_checks.for_members
def all_reduce_coalesced(
    tensors: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces several tensors at once."""
    group = _one(group, "all_reduce_coalesced")
    return _done(c10d.allreduce_coalesced_(list(tensors), group, _default(op)), async_op)


@_checks.for_members
def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Gives all ranks the tensor of one."""
    group = _one(group, "broadcast")
    root = _checks.place(group, src, group_src)
    _checks.tensor(tensor, "tensor")
    return _done(c10d.broadcast_([tensor], group, root), async_op)


@_checks.for_members
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
    root = _checks.place(group, dst, group_dst)
    _checks.tensor(tensor, "tensor")
    return _done(c10d.reduce_([tensor], group, _default(op), root), async_op)


@_checks.for_members
def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    """Gives all ranks the tensors of all, in a list."""
    _checks.tensors(tensor_list, "tensor_list")
    _checks.tensor(tensor, "tensor")
    _checks.alike(tensor_list, tensor)
    return _done(c10d.allgather_([tensor_list], [tensor], _one(group, "all_gather")), async_op)


@_checks.for_members
def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Any:
    """Gives all ranks the tensors of all, one after the other in `output_tensor`."""
    _checks.tensor(input_tensor, "input_tensor")
    _checks.tensor(output_tensor, "output_tensor")
    group = _one(group, "all_gather_into_tensor")
    return _done(c10d._allgather_base_(output_tensor, input_tensor, group), async_op)


@_checks.for_members
def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces the tensors of all ranks, and gives each a part."""
    _checks.tensor(output, "output")
    _checks.tensor(input, "input")
    group = _one(group, "reduce_scatter_tensor")
    return _done(c10d._reduce_scatter_base_(output, input, group, _default(op)), async_op)


@_checks.for_members
def reduce_scatter(
    output: Any, input_list: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Any:
    """Reduces lists of tensors of all ranks, and gives each rank one."""
    _checks.tensor(output, "output")
    _checks.tensors(input_list, "input_list")
    _checks.alike(output, input_list)
    group = _one(group, "reduce_scatter")
    return _done(c10d.reduce_scatter_([output], [input_list], group, _default(op)), async_op)


@_checks.for_members
def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Gives each rank a part of each rank's tensor."""
    _checks.tensor(output, "output")
    _checks.tensor(input, "input")
    _checks.alike(output, input)
    group = _one(group, "all_to_all_single")
    splits = (list(output_split_sizes or []), list(input_split_sizes or []))
    return _done(c10d.alltoall_base_(output, input, group, *splits), async_op)


@_checks.for_members
def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Any:
    """Gives each rank one tensor of each rank's list."""
    _checks.tensors(output_tensor_list, "output_tensor_list")
    _checks.tensors(input_tensor_list, "input_tensor_list")
    _checks.alike(output_tensor_list, input_tensor_list)
    group = _one(group, "all_to_all")
    return _done(c10d.alltoall_(output_tensor_list, input_tensor_list, group), async_op)


@_checks.for_members
def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Gives one rank the tensors of all."""
    _checks.tensor(tensor, "tensor")
    if gather_list:
        _checks.tensors(gather_list, "gather_list")
        _checks.alike(tensor, gather_list)
    group = _one(group, "gather")
    root = _checks.place(group, dst, group_dst, usual=0)
    _checks.gathered(group, root, gather_list)
    lists = [gather_list] if gather_list else []
    return _done(c10d.gather_(lists, [tensor], group, root), async_op)


@_checks.for_members
def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Gives each rank one tensor of a list of one rank's."""
    _checks.tensor(tensor, "tensor")
    if scatter_list:
        _checks.tensors(scatter_list, "scatter_list")
        _checks.alike(tensor, scatter_list)
    group = _one(group, "scatter")
    root = _checks.place(group, src, group_src, usual=0)
    _checks.scattered(group, root, scatter_list)
    lists = [scatter_list] if scatter_list else []
    return _done(c10d.scatter_([tensor], lists, group, root), async_op)


def _other(group: ProcessGroup, rank: int | None, group_rank: int | None, what: str) -> int:
    """The place of another rank in the group.

    Raises:
        ValueError: if it is this process's own.
    """
    place = _checks.place(group, rank, group_rank)
    if place == group.rank():
        raise ValueError(
            f"Invalid {what} rank: {what} rank should not be the same as the rank of the current process."
        )
    return place


def _anyone(group: ProcessGroup) -> int:
    """The place of some other rank."""
    return 0 if group.rank() > 0 or group.size() == 1 else 1


@_checks.for_members
def isend(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> Any:
    """Begins to send a tensor to a rank."""
    group = _one(group, "isend")
    place = _other(group, dst, group_dst, "destination")
    _checks.tensor(tensor, "tensor")
    return c10d.send([tensor], group, place, tag)


def send(
    tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> None:
    """Sends a tensor to a rank."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


@_checks.for_members
def irecv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> Any:
    """Begins to receive a tensor from a rank, or from any where none is named."""
    _checks.tensor(tensor, "tensor")
    group = _one(group, "irecv")
    if src is None and group_src is None:
        if group.connected:
            return _gloo.Receiving(group, tensor, None, tag)
        group_src = _anyone(group)
    return c10d.recv_([tensor], group, _other(group, src, group_src, "source"), tag)


def recv(
    tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> int:
    """Receives a tensor from a rank, whose number is returned; from any where none is named."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    found = group_of(group)
    if isinstance(work, _gloo.Receiving):
        return work._source_rank()
    anyone = src is None and group_src is None
    return found.ranks[_anyone(found) if anyone else _checks.place(found, src, group_src)]


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
        self.group_peer = _checks.place(self.group, peer, group_peer)
        self.peer = self.group.ranks[self.group_peer]


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Begins several sends and receives; gives what can be waited for."""
    _groups.world()
    if not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to be of type ``torch.distributed.P2POp``."
        )
    return [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]


@_checks.for_members
def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Any:
    """Waits for all ranks, with `timeout` no longer than that; those that are played here are there."""
    found = _one(group, "barrier")
    if timeout is not None and found.connected:
        _gloo.meet(found, timeout.total_seconds())
    return _done(c10d.barrier(torch.empty(0), found), async_op)


@_checks.for_members
def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Waits for all ranks, no longer than `timeout`.

    Raises:
        RuntimeError: if one does not come.
        ValueError: on a `fake` group.
    """
    found = _one(group, "monitored_barrier")
    if found.backend == "fake":
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    if found.connected:
        _gloo.meet(found, None if timeout is None else timeout.total_seconds())


@_checks.for_members
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Gives all ranks an object of each; a `fake` group has only this rank's, in every place."""
    found = _one(group, "all_gather_object")
    made = _gloo.objects(found, obj) if found.connected else [obj] * found.size()
    object_list[: found.size()] = made


@_checks.for_members
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
    root = _checks.place(found, dst, group_dst, usual=0)
    here = found.rank() == root
    _checks.gathered(found, root, object_gather_list)
    made = _gloo.objects(found, obj) if found.connected else [obj] * found.size()
    if here and object_gather_list is not None:
        object_gather_list[: found.size()] = made


@_checks.for_members
def broadcast_object_list(
    object_list: list[Any],
    src: Any = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Gives all ranks the objects of one: they stay what they are on a `fake` group."""
    found = _one(group, "broadcast_object_list")
    root = _checks.place(found, src, group_src, usual=0)
    if found.connected:
        object_list[:] = _gloo.one_object(found, list(object_list), root)


@_checks.for_members
def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Gives each rank one object of a list of one rank's; a `fake` group gives this rank's place of its own list."""
    found = _one(group, "scatter_object_list")
    root = _checks.place(found, src, group_src, usual=0)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    if scatter_object_input_list is None and found.rank() == root:
        raise ValueError("source rank must provide non-None scatter_object_input_list")
    given = list(scatter_object_input_list or ())
    if found.connected:
        given = _gloo.one_object(found, given, root)
    if len(given) == found.size():
        scatter_object_output_list[0] = given[found.rank()]


@_checks.for_members
def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Sends objects to a rank, which receives as many."""
    found = _one(group, "send_object_list")
    place = _other(found, dst, group_dst, "destination")
    if found.connected:
        _gloo.send_objects(found, list(object_list), place)


@_checks.for_members
def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receives objects from a rank, whose number is returned; on a `fake` group they stay what they are."""
    found = _one(group, "recv_object_list")
    place = _other(found, src, group_src, "source")
    if found.connected:
        object_list[:] = _gloo.receive_objects(found, place)
    return found.ranks[place]
