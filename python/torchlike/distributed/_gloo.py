"""Collectives between processes: every rank sends what the others need at once, and what comes is put together in the
order of ranks, so that all have the same bits.

`written` answers the operators of `c10d`, which write tensors, `made` those of `_c10d_functional`, which give new ones.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed._groups import ProcessGroup, Work, world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POINT_TO_POINT = 1 << 63
#: The tag of objects, which no tensor has.
_OBJECTS = (1 << 63) + 1


def _data(t: Any) -> bytes:
    """The elements of a tensor, in their order."""
    if t.is_meta:
        raise RuntimeError("No backend type associated with device type meta")
    flat = t.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1)
    made: bytes = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return made


def _tensor(data: bytearray, like: Any, shape: Sequence[int] | None = None) -> Any:
    """A tensor of what was sent, in the type of `like`, and in its shape if no other is given.

    Raises:
        RuntimeError: if another rank sent something else.
    """
    shape = list(like.shape if shape is None else shape)
    want = like.dtype.itemsize
    for n in shape:
        want *= n
    if len(data) != want:
        raise RuntimeError(
            f"ranks disagree: {want} bytes of {like.dtype} in the shape {shape} were expected, and {len(data)} came"
        )
    if not data:
        return torch.empty(shape, dtype=like.dtype)
    return torch.frombuffer(data, dtype=like.dtype).view(shape)


class Exchange:
    """One exchange of a group: what this rank sends is on its way at once, what it gets is there on demand."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        self.key = (group.number, group.next_number())

    def send(self, rank: int, data: bytes) -> None:
        """Sends bytes to a rank of the group."""
        world().wire.post(self.group.ranks[rank], self.key, data)

    def take(self, rank: int) -> bytearray:
        """What a rank of the group has sent."""
        return world().wire.take(self.group.ranks[rank], self.key)

    def to_all(self, data: bytes) -> None:
        """Sends the same to all others."""
        for rank in range(self.size):
            if rank != self.rank:
                self.send(rank, data)

    def from_all(self, own: Any, build: Callable[[bytearray], Any]) -> list[Any]:
        """What all ranks have sent, in their order, and `own` in this one's place."""
        return [own if r == self.rank else build(self.take(r)) for r in range(self.size)]

    def here(self, ranks: Sequence[int]) -> bool:
        """Whether something has come from all these ranks."""
        others = (self.group.ranks[r] for r in ranks if r != self.rank)
        return all(world().wire.here(rank, self.key) for rank in others)


_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


def _reduced(parts: Sequence[Any], op: Any) -> Any:
    """The parts of all ranks as one."""
    name = (op if isinstance(op, str) else op.name).lower()
    combine = _REDUCTIONS.get(name)
    if combine is None:
        raise RuntimeError(f"Cannot use ReduceOp.{name.upper()} with Gloo")
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    if name == "avg":
        total = (
            total / len(parts)
            if total.is_floating_point() or total.is_complex()
            else total // len(parts)
        )
    return total


def _store(to: Any, of: Any) -> None:
    with torch.no_grad():
        to.copy_(of.view(to.shape))


class PendingWork(Work):
    """An exchange whose results are put in their place when it is waited for."""

    def __init__(
        self, result: Any, exchange: Exchange, ranks: Sequence[int], finish: Callable[[], None]
    ) -> None:
        super().__init__(result)
        self._exchange, self._ranks, self._finish = exchange, ranks, finish
        self._done = False

    def wait(self, timeout: Any = None) -> bool:
        """Waits for what others send.

        Raises:
            RuntimeError: if it does not come in time.
        """
        if not self._done:
            self._done = True
            self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether all is there."""
        if not self._done and self._exchange.here(self._ranks):
            self.wait()
        return self._done

    def result(self) -> Any:
        """The tensors that it wrote."""
        self.wait()
        return self._result


def _root(group: ProcessGroup, name: str, root: int) -> int:
    if not 0 <= root < group.size():
        raise RuntimeError(f"ProcessGroupGloo::{name}: invalid root rank: {root}")
    return root


def _flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value or () for t in _flat(v)]


def _all_reduce(group: ProcessGroup, tensors: Any, op: Any) -> Work:
    exchanges = [Exchange(group) for _ in tensors]
    own = [t.detach().clone() for t in tensors]
    for exchange, t in zip(exchanges, own, strict=True):
        exchange.to_all(_data(t))

    def finish() -> None:
        for exchange, t, to in zip(exchanges, own, tensors, strict=True):
            _store(to, _reduced(exchange.from_all(t, partial(_tensor, like=t)), op))

    return PendingWork(tensors, exchanges[-1], range(group.size()), finish)


def _broadcast(group: ProcessGroup, tensors: Any, root: int) -> Work:
    exchange, root = Exchange(group), _root(group, "broadcast", root)
    if exchange.rank == root:
        exchange.to_all(_data(tensors[0]))
        return Work(tensors)

    def finish() -> None:
        _store(tensors[0], _tensor(exchange.take(root), tensors[0]))

    return PendingWork(tensors, exchange, [root], finish)


def _reduce(group: ProcessGroup, tensors: Any, op: Any, root: int) -> Work:
    exchange, root = Exchange(group), _root(group, "reduce", root)
    own = tensors[0].detach().clone()
    if exchange.rank != root:
        exchange.send(root, _data(own))
        return Work(tensors)

    def finish() -> None:
        _store(tensors[0], _reduced(exchange.from_all(own, lambda d: _tensor(d, own)), op))

    return PendingWork(tensors, exchange, range(group.size()), finish)


def _spread(group: ProcessGroup, sent: Sequence[Any], into: Sequence[Any]) -> Work:
    """Sends one tensor to each rank, and stores what each has sent."""
    exchange = Exchange(group)
    own = sent[exchange.rank].detach().clone()
    for rank, t in enumerate(sent):
        if rank != exchange.rank:
            exchange.send(rank, _data(t))

    def finish() -> None:
        for rank, to in enumerate(into):
            _store(to, own if rank == exchange.rank else _tensor(exchange.take(rank), to))

    return PendingWork(list(into), exchange, range(group.size()), finish)


def _all_gather(group: ProcessGroup, outputs: Any, own: Any) -> Work:
    for i, to in enumerate(outputs):
        if to.numel() != own.numel():
            raise RuntimeError(
                f"ProcessGroupGloo::allgather: invalid tensor size at index {i} "
                f"(expected ({', '.join(map(str, own.shape))}), got ({', '.join(map(str, to.shape))}))"
            )
    return _spread(group, [own] * group.size(), outputs)


def _reduce_scatter(group: ProcessGroup, output: Any, parts: Sequence[Any], op: Any) -> Work:
    exchange = Exchange(group)
    own = parts[exchange.rank].detach().clone()
    for rank, t in enumerate(parts):
        if rank != exchange.rank:
            exchange.send(rank, _data(t))

    def finish() -> None:
        _store(output, _reduced(exchange.from_all(own, lambda d: _tensor(d, own)), op))

    return PendingWork([output], exchange, range(group.size()), finish)


def _gather(group: ProcessGroup, lists: Any, own: Any, root: int) -> Work:
    exchange, root = Exchange(group), _root(group, "gather", root)
    if exchange.rank != root:
        exchange.send(root, _data(own))
        return Work(lists)
    outputs, kept = _flat(lists), own.detach().clone()

    def finish() -> None:
        for rank, to in enumerate(outputs):
            _store(to, kept if rank == root else _tensor(exchange.take(rank), to))

    return PendingWork(outputs, exchange, range(group.size()), finish)


def _scatter(group: ProcessGroup, output: Any, lists: Any, root: int) -> Work:
    exchange, root = Exchange(group), _root(group, "scatter", root)
    if exchange.rank == root:
        for rank, t in enumerate(_flat(lists)):
            if rank == root:
                _store(output, t)
            else:
                exchange.send(rank, _data(t))
        return Work([output])
    return PendingWork(
        [output], exchange, [root], lambda: _store(output, _tensor(exchange.take(root), output))
    )


def _parts(whole: Any, sizes: Sequence[int], count: int) -> list[Any]:
    """A tensor cut along its first dimension, evenly if no sizes are given."""
    if sizes:
        return list(whole.split(list(sizes)))
    if whole.shape[:1] and whole.shape[0] % count:
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    return list(whole.view(count, -1)) if whole.numel() else [whole] * count


def _send(group: ProcessGroup, tensor: Any, rank: int, tag: int) -> Work:
    wire = world().wire
    wire.post(group.ranks[rank], (group.number | _POINT_TO_POINT, tag), _data(tensor))
    return Work([tensor])


class Receiving(Work):
    """A tensor that a rank sends, or any rank if none is named."""

    def __init__(self, group: ProcessGroup, tensor: Any, rank: int | None, tag: int) -> None:
        super().__init__([tensor])
        self._group, self._tensor, self._rank, self._tag = group, tensor, rank, tag
        self._done = False

    def wait(self, timeout: Any = None) -> bool:
        """Waits for it.

        Raises:
            RuntimeError: if it does not come in time.
        """
        if not self._done:
            self._done = True
            group, wire = self._group, world().wire
            key = (group.number | _POINT_TO_POINT, self._tag)
            if self._rank is None:
                others = [r for r in group.ranks if r != world().rank]
                found, data = wire.take_any(others, key)
                self._rank = group.ranks.index(found)
            else:
                limit = None if timeout is None else timeout.total_seconds()
                data = wire.take(group.ranks[self._rank], key, limit)
            _store(self._tensor, _tensor(data, self._tensor))
        return True

    def is_completed(self) -> bool:
        """Whether it is there."""
        if not self._done and self._rank is not None:
            key = (self._group.number | _POINT_TO_POINT, self._tag)
            if world().wire.here(self._group.ranks[self._rank], key):
                self.wait()
        return self._done

    def _source_rank(self) -> int:
        """Who sent it, as the world numbers ranks."""
        return self._group.ranks[self._rank or 0]


def _barrier(group: ProcessGroup) -> Work:
    exchange = Exchange(group)
    exchange.to_all(b"")

    def finish() -> None:
        exchange.from_all(None, len)

    return PendingWork(None, exchange, range(group.size()), finish)


def written(name: str, args: tuple[Any, ...], group: ProcessGroup) -> Work:
    """A collective that writes tensors, by its name in `c10d`."""
    size = group.size()
    if name in ("allreduce_", "allreduce_coalesced_"):
        return _all_reduce(group, args[0], args[2])
    if name == "broadcast_":
        return _broadcast(group, args[0], args[2])
    if name == "reduce_":
        return _reduce(group, args[0], args[2], args[3])
    if name == "allgather_":
        return _all_gather(group, _flat(args[0]), args[1][0])
    if name == "_allgather_base_":
        return _spread(group, [args[1]] * size, _parts(args[0].view(-1), (), size))
    if name in ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_"):
        single = "_allgather_base_" if name.startswith("allgather") else "_reduce_scatter_base_"
        works = [
            written(single, (o, i, *args[2:]), group) for o, i in zip(args[0], args[1], strict=True)
        ]
        for work in works:
            work.wait()
        return Work(args[0])
    if name == "_reduce_scatter_base_":
        return _reduce_scatter(group, args[0], _parts(args[1].reshape(-1), (), size), args[3])
    if name == "reduce_scatter_":
        return _reduce_scatter(group, args[0][0], _flat(args[1]), args[3])
    if name == "alltoall_base_":
        return _spread(group, _parts(args[1], args[4], size), _parts(args[0], args[3], size))
    if name == "alltoall_":
        return _spread(group, list(args[1]), list(args[0]))
    if name == "gather_":
        return _gather(group, args[0], args[1][0], args[3])
    if name == "scatter_":
        return _scatter(group, args[0][0], args[1], args[3])
    if name == "send":
        return _send(group, args[0][0], args[2], args[3])
    if name == "recv_":
        return Receiving(group, args[0][0], args[2], args[3])
    return _barrier(group)


def made(name: str, args: tuple[Any, ...], group: ProcessGroup) -> Any:
    """A collective that gives new tensors, by its name in `_c10d_functional` and `_dtensor`."""
    if name.endswith("_coalesced"):
        single = name.removesuffix("_coalesced")
        return [made(single, (t, *args[1:]), group) for t in args[0]]
    given, size = args[0], group.size()
    if name == "wait_tensor":
        return given
    exchange = Exchange(group)
    if name == "all_reduce":
        exchange.to_all(_data(given))
        return _reduced(exchange.from_all(given, lambda d: _tensor(d, given)), args[1]).clone()
    if name == "broadcast":
        if exchange.rank == args[1]:
            exchange.to_all(_data(given))
            return given.clone()
        return _tensor(exchange.take(args[1]), given).clone()
    if name == "all_gather_into_tensor":
        exchange.to_all(_data(given))
        return torch.cat(exchange.from_all(given, lambda d: _tensor(d, given)))
    if name == "reduce_scatter_tensor":
        parts = list(given.chunk(size))
    elif name == "all_to_all_single":
        parts = list(given.split(list(args[2])))
    else:  # shard_dim_alltoall
        parts = list(given.chunk(size, dim=args[2]))
    for rank, part in enumerate(parts):
        if rank != exchange.rank:
            exchange.send(rank, _data(part))
    own = parts[exchange.rank]
    if name == "all_to_all_single":
        rows = list(args[1])
        found = [
            own
            if r == exchange.rank
            else _tensor(exchange.take(r), given, [rows[r], *given.shape[1:]])
            for r in range(size)
        ]
        return torch.cat(found)
    found = exchange.from_all(own, lambda d: _tensor(d, own))
    if name == "reduce_scatter_tensor":
        return _reduced(found, args[1]).clone()
    return torch.cat(found, dim=args[1])


def objects(group: ProcessGroup, own: Any) -> list[Any]:
    """An object of each rank, by pickle."""
    exchange = Exchange(group)
    exchange.to_all(pickle.dumps(own))
    return exchange.from_all(own, lambda d: pickle.loads(bytes(d)))


def one_object(group: ProcessGroup, own: Any, root: int) -> Any:
    """The object of one rank, by pickle."""
    exchange, root = Exchange(group), _root(group, "broadcast", root)
    if exchange.rank == root:
        exchange.to_all(pickle.dumps(own))
        return own
    return pickle.loads(bytes(exchange.take(root)))


def send_objects(group: ProcessGroup, items: list[Any], rank: int) -> None:
    """Sends objects to a rank, by pickle."""
    key = (group.number | _POINT_TO_POINT, _OBJECTS)
    world().wire.post(group.ranks[rank], key, pickle.dumps(items))


def receive_objects(group: ProcessGroup, rank: int) -> list[Any]:
    """Objects that a rank sent, by pickle."""
    key = (group.number | _POINT_TO_POINT, _OBJECTS)
    made: list[Any] = pickle.loads(bytes(world().wire.take(group.ranks[rank], key)))
    return made


def meet(group: ProcessGroup, timeout: float | None) -> None:
    """Waits for all ranks of a group, each no longer than `timeout` seconds.

    Raises:
        RuntimeError: if one does not come.
    """
    exchange = Exchange(group)
    exchange.to_all(b"")
    for rank in range(exchange.size):
        if rank != exchange.rank:
            world().wire.take(group.ranks[rank], exchange.key, timeout)
