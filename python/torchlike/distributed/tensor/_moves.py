"""Collectives between the pieces of tensors on a mesh, and redistribution by them.

Every function takes the pieces that this process has, one for each rank it plays, and gives as many. On a `local` world
data moves between them here; otherwise each collective is an operator, which dispatch modes see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed._ops import dtensor as ops_dtensor
from torchlike.distributed._ops import functional
from torchlike.distributed.tensor._spec import Spec, from_code
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _MaskPartial,
    _StridedShard,
    check_mixed,
    is_cut,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.distributed.device_mesh import DeviceMesh


def _plays_all(mesh: DeviceMesh) -> bool:
    return mesh._world.backend == "local"


def _peers(mesh: DeviceMesh, dim: int) -> list[list[int]]:
    """For each piece, the places of the pieces along a dimension, in order."""
    at = {rank: i for i, rank in enumerate(mesh._here)}
    return [[at[r] for r in mesh._peers(dim, rank)] for rank in mesh._here]


def _unrolled(t: Any, parts: int, dim: int) -> Any:
    """Parts that lie one after the other in the first dimension, as parts of another."""
    return t if dim == 0 else torch.cat(t.chunk(parts, 0), dim)


def all_gather(pieces: Sequence[Any], mesh: DeviceMesh, dim: int, along: int) -> list[Any]:
    """Every rank gets the pieces of all along a dimension of the mesh, joined along a dimension of the tensor."""
    parts = mesh.size(dim)
    if _plays_all(mesh):
        return [torch.cat([pieces[p] for p in peers], along) for peers in _peers(mesh, dim)]
    name = mesh.get_group(dim).group_name
    made = [functional.all_gather_into_tensor.default(p, parts, name) for p in pieces]
    return [_unrolled(m, parts, along) for m in made]


def _reduced(tensors: list[Any], op: str) -> Any:
    """A reduction in the order of the ranks; sums of 16-bit numbers in single precision."""
    dtype = tensors[0].dtype
    wide = dtype.is_floating_point and dtype.itemsize < 4
    tensors = [t.float() for t in tensors] if wide else tensors
    total = tensors[0]
    for t in tensors[1:]:
        if op in ("sum", "avg"):
            total = total + t
        elif op == "product":
            total = total * t
        elif op in ("min", "max"):
            total = torch.minimum(total, t) if op == "min" else torch.maximum(total, t)
        elif op == "band":
            total = total & t
        else:
            total = total | t if op == "bor" else total ^ t
    if op == "avg":
        total = total / len(tensors)
    return total.to(dtype)


def all_reduce(pieces: Sequence[Any], mesh: DeviceMesh, dim: int, op: str) -> list[Any]:
    """Every rank gets the reduction of the pieces along a dimension of the mesh."""
    if _plays_all(mesh):
        return [_reduced([pieces[p] for p in peers], op) for peers in _peers(mesh, dim)]
    name = mesh.get_group(dim).group_name
    return [functional.all_reduce.default(p, op, name) for p in pieces]


def reduce_scatter(
    pieces: Sequence[Any], mesh: DeviceMesh, dim: int, op: str, along: int
) -> list[Any]:
    """Every rank gets a part, along a dimension of the tensor, of the reduction along a dimension of the mesh."""
    parts = mesh.size(dim)
    if _plays_all(mesh):
        made = []
        for at, peers in zip(_at(mesh, dim), _peers(mesh, dim), strict=True):
            total = _reduced([pieces[p] for p in peers], op)
            made.append(total.chunk(parts, along)[at].contiguous())
        return made
    name = mesh.get_group(dim).group_name
    if along:
        pieces = [torch.cat(p.chunk(parts, along), 0) for p in pieces]
    return [functional.reduce_scatter_tensor.default(p, op, parts, name) for p in pieces]


def all_to_all(
    pieces: Sequence[Any], mesh: DeviceMesh, dim: int, gather: int, shard: int
) -> list[Any]:
    """Parts along the dimension `gather` of the tensor become parts along `shard`."""
    parts = mesh.size(dim)
    if _plays_all(mesh) or mesh.device_type == "cpu":
        whole = all_gather(pieces, mesh, dim, gather)
        pairs = zip(whole, _at(mesh, dim), strict=True)
        return [w.chunk(parts, shard)[i].contiguous() for w, i in pairs]
    name = mesh.get_group(dim).group_name
    return [ops_dtensor.shard_dim_alltoall.default(p, gather, shard, name) for p in pieces]


def _at(mesh: DeviceMesh, dim: int) -> list[int]:
    """Where along a dimension the ranks are that this process plays."""
    return [place[dim] for place in mesh._places]


def _padded(t: Any, dim: int, size: int) -> Any:
    """Zeros after the last row, until there are `size` rows."""
    missing = size - t.shape[dim]
    if missing:
        t = torch.nn.functional.pad(t, [0, 0] * (t.ndim - dim - 1) + [0, missing])
    return t.contiguous()


def _taken(t: Any, placement: Any, parts: int, at: int) -> Any:
    """A part of a whole, as its own tensor."""
    dim, size = placement.dim, t.shape[placement.dim]
    if isinstance(placement, Shard):
        whole = -(-size // parts)
        start = min(whole * at, size)
        return t.narrow(dim, start, min(whole, size - start)).clone()
    index = _positions(placement, size, parts)[at]
    return t.index_select(dim, torch.tensor(index, dtype=torch.int64, device=t.device))


def _positions(placement: _StridedShard, size: int, parts: int) -> list[list[int]]:
    """The elements of a dimension that each part of a strided shard has."""
    found: list[list[int]] = [[] for _ in range(parts)]
    first = -(-size // placement.split_factor) or 1
    for begin in range(0, size, first):
        length = min(first, size - begin)
        second = -(-length // parts) or 1
        for i in range(length):
            found[i // second].append(begin + i)
    return found


def gathered(
    pieces: Sequence[Any], mesh: DeviceMesh, dim: int, placement: Any, sizes: Sequence[int]
) -> list[Any]:
    """The pieces of a dimension as wholes of these sizes: padded alike, gathered, and put in order."""
    along, parts = placement.dim, mesh.size(dim)
    if isinstance(placement, Shard):
        padded = [_padded(p, along, -(-n // parts)) for p, n in zip(pieces, sizes, strict=True)]
        made = all_gather(padded, mesh, dim, along)
        pairs = zip(made, sizes, strict=True)
        # A whole lies as one that was never cut.
        return [m.narrow(along, 0, n).contiguous() if m.shape[along] != n else m for m, n in pairs]
    orders = [_positions(placement, n, parts) for n in sizes]
    longest = [max(map(len, order), default=0) for order in orders]
    padded = [_padded(p, along, n) for p, n in zip(pieces, longest, strict=True)]
    made = all_gather(padded, mesh, dim, along)
    found = []
    for m, order, n, size in zip(made, orders, longest, sizes, strict=True):
        places = {e: r * n + i for r, part in enumerate(order) for i, e in enumerate(part)}
        index = torch.tensor([places[e] for e in range(size)], dtype=torch.int64, device=m.device)
        found.append(m.index_select(along, index))
    return found


def _scattered(
    pieces: Sequence[Any], mesh: DeviceMesh, dim: int, source: Partial, placement: Shard
) -> list[Any]:
    along, parts = placement.dim, mesh.size(dim)
    pieces = source._before(pieces)
    sizes = [p.shape[along] for p in pieces]
    pieces = [
        _spread(p, along, parts) if p.shape[along] % parts else p.contiguous() for p in pieces
    ]
    made = source._after(reduce_scatter(pieces, mesh, dim, source.reduce_op, along))
    return [
        _cut(m, along, n, parts, i) for m, n, i in zip(made, sizes, _at(mesh, dim), strict=True)
    ]


def _cut(t: Any, dim: int, size: int, parts: int, at: int) -> Any:
    """A padded part without what was padded."""
    if size % parts == 0:
        return t
    whole = -(-size // parts)
    return t.narrow(dim, 0, max(0, min(whole, size - whole * at)))


def _spread(t: Any, dim: int, parts: int) -> Any:
    """The parts of a dimension, each padded to the size of the first."""
    size = t.shape[dim]
    whole = -(-size // parts)
    starts = [min(whole * i, size) for i in range(parts)]
    found = [_padded(t.narrow(dim, s, min(whole, size - s)), dim, whole) for s in starts]
    return torch.cat(found, dim)


def _exchanged(
    pieces: Sequence[Any],
    mesh: DeviceMesh,
    dim: int,
    source: Shard,
    target: Shard,
    shapes: Sequence[Sequence[int]],
) -> list[Any]:
    """Parts along one dimension become parts along another; both are padded so that all are alike."""
    parts, a, b = mesh.size(dim), source.dim, target.dim
    padded = []
    for piece, shape in zip(pieces, shapes, strict=True):
        tall = _padded(piece, a, -(-shape[a] // parts))
        padded.append(_padded(tall, b, -(-shape[b] // parts) * parts))
    found = []
    made = all_to_all(padded, mesh, dim, a, b)
    for m, shape, at in zip(made, shapes, _at(mesh, dim), strict=True):
        m = m.narrow(a, 0, shape[a]) if shape[a] % parts else m
        found.append(_cut(m, b, shape[b], parts, at))
    return found


def step(
    pieces: Sequence[Any],
    mesh: DeviceMesh,
    dim: int,
    source: Placement,
    target: Placement,
    shapes: Sequence[Sequence[int]],
) -> list[Any]:
    """Changes one placement. `shapes`: what the dimension of the mesh finds, for each piece.

    Raises:
        RuntimeError: if a shard is to become partial.
    """
    parts = mesh.size(dim)
    if parts == 1:
        return list(pieces)
    if isinstance(source, Partial) and isinstance(target, Shard):
        return _scattered(pieces, mesh, dim, source, target)
    if isinstance(source, Partial) and not isinstance(target, Partial):
        pieces = all_reduce(source._before(pieces), mesh, dim, source.reduce_op)
        pieces, source = source._after(pieces), Replicate()
    elif isinstance(source, Shard) and isinstance(target, Shard):
        return _exchanged(pieces, mesh, dim, source, target, shapes)
    elif is_cut(source):
        if isinstance(target, Partial):
            raise RuntimeError(f"redistribute from {source} to {target} not supported yet")
        sizes = [s[source.dim] for s in shapes]  # type: ignore[attr-defined]
        pieces = gathered(pieces, mesh, dim, source, sizes)
        source = Replicate()
    if is_cut(target):
        return [_taken(p, target, parts, i) for p, i in zip(pieces, _at(mesh, dim), strict=True)]
    if isinstance(target, Partial):
        if isinstance(source, Partial):
            raise RuntimeError(
                f"Redistribution from one partial type ({source}) to another ({target}) is unsupported."
            )
        return target._partition(pieces, mesh, dim)
    return list(pieces)


def redistribute(pieces: Sequence[Any], current: Spec, target: Spec) -> list[Any]:
    """The pieces of the tensor `current` as those of `target`.

    Raises:
        NotImplementedError: if the meshes differ.
        RuntimeError: if a shard is to become partial.
    """
    mesh = current.mesh
    if not mesh._seats:
        return list(pieces)
    here, there = current.number, target.number
    steps = _plans.get((here, there))
    if steps is None:
        return _stepped(pieces, mesh, _planned(current, target))
    return _C._moved(pieces, here, there, _stepped, (pieces, mesh, steps))


def _stepped(pieces: Sequence[Any], mesh: DeviceMesh, steps: list[Any]) -> list[Any]:
    made = list(pieces)
    for dim, source, goal, shapes in steps:
        made = step(made, mesh, dim, source, goal, shapes)
    return made


_plans: dict[tuple[int, int], list[Any]] = {}
_LIMIT = 1 << 14


def _planned(current: Spec, target: Spec) -> list[Any]:
    """The steps between two specs: `(dimension of the mesh, placement before, after, shapes that it finds)`."""
    if current.mesh != target.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    check_mixed(current.placements)
    check_mixed(target.placements)
    shape, size = list(current.shape), current.dtype.itemsize
    plans = [seat.plan(shape, size, current.lies, target.lies) for seat in current.mesh._seats]
    known = (*current.placements, *target.placements)
    steps = [
        (dim, from_code(a, known), from_code(b, known), [plan[i][3] for plan in plans])
        for i, (dim, a, b, _) in enumerate(plans[0])
    ]
    # What is masked is remembered, and has to have the size that the piece has in the end.
    steps.sort(key=lambda s: isinstance(s[2], _MaskPartial))
    if not any(isinstance(p, _MaskPartial) for p in known):
        if len(_plans) >= _LIMIT:
            _plans.clear()
        _plans[current.number, target.number] = steps
    return steps


def own_part(whole: Any, spec: Spec, seat: int) -> Any:
    """The piece of a whole that a rank has, as a new tensor."""
    part = whole
    at = spec.mesh._places[seat]
    for dim, p in spec.applied():
        if is_cut(p):
            part = _taken(part, p, spec.mesh.size(dim), at[dim])
    return part.clone() if part is whole else part
