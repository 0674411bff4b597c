"""How a tensor lies along one dimension of a mesh."""

from __future__ import annotations

import functools
from itertools import count
from typing import TYPE_CHECKING, Any

import torchlike as torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


class Placement:
    """What one dimension of a mesh has of a tensor. `_code` is what the core calls it, and all that equality looks
    at."""

    _code: tuple[int, int, int]

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each device has a part, along `dim` if it is given."""
        return False

    def is_replicate(self) -> bool:
        """Whether each device has the whole."""
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each device has a part of a sum, or of another reduction."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._code == other._code

    def __hash__(self) -> int:
        return hash(self._code)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r} of {self!r}")

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


class Shard(Placement):
    """Each device has a part along the dimension `dim`, in order; the first parts are the larger ones."""

    dim: int

    def __init__(self, dim: int) -> None:
        self._set(dim=dim, _code=(1, dim, 0))

    def is_shard(self, dim: int | None = None) -> bool:
        """True, if it is along `dim` or that is not given."""
        return dim is None or self.dim == dim

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"

    def __reduce__(self) -> Any:
        return Shard, (self.dim,)


class _StridedShard(Placement):
    """The dimension is cut into `split_factor` pieces, and each device has a part of each of them."""

    dim: int
    split_factor: int

    def __init__(self, dim: int, *, split_factor: int = 1, sf: int | None = None) -> None:
        factor = split_factor if sf is None else sf
        self._set(dim=dim, split_factor=factor, _code=(2, dim, factor))

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"

    def __reduce__(self) -> Any:
        return _strided, (self.dim, self.split_factor)


def _strided(dim: int, factor: int) -> _StridedShard:
    return _StridedShard(dim, split_factor=factor)


class Replicate(Placement):
    """Each device has the whole."""

    _code = (0, 0, 0)

    def is_replicate(self) -> bool:
        """True."""
        return True

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


WHOLE = Replicate()
"""What is replicated, the same one each time."""


class Partial(Placement):
    """Each device has a part of a reduction that is not done yet: `sum`, `avg`, `product`, `min`, `max`, or of bits."""

    LINEAR_REDUCE_OPS = ("sum", "avg")
    ALL_REDUCE_OPS = ("sum", "avg", "min", "max", "product")
    reduce_op: str

    def __init__(self, reduce_op: str | None = None) -> None:
        op = reduce_op or "sum"
        if op not in _REDUCTIONS:
            raise ValueError(f"{op!r} is no reduction: {', '.join(_REDUCTIONS)}")
        self._set(reduce_op=op, _code=(3, _REDUCTIONS.index(op), 0))

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """True, if it is this reduction or none is given."""
        return reduce_op is None or self.reduce_op == reduce_op

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"

    def __reduce__(self) -> Any:
        return Partial, (self.reduce_op,)

    def _partition(self, pieces: Sequence[Any], mesh: Any, dim: int) -> list[Any]:
        """The pieces of replicated tensors as parts of a reduction.

        Raises:
            ValueError: for reductions that cannot be taken apart.
        """
        if self.reduce_op == "sum":
            if pieces and not (pieces[0].is_floating_point() or pieces[0].is_complex()):
                # Whole numbers are not divided: one rank has them.
                return [
                    p if place[dim] == 0 else p.new_zeros(p.shape)
                    for p, place in zip(pieces, mesh._places, strict=True)
                ]
            return [p / mesh.size(dim) for p in pieces]
        if self.reduce_op in ("avg", "min", "max"):
            return list(pieces)
        raise ValueError(f"Replicate to Partial({self.reduce_op}) conversion is not supported.")

    def _before(self, pieces: Sequence[Any]) -> list[Any]:
        """What is reduced of the pieces."""
        return list(pieces)

    def _after(self, pieces: Sequence[Any]) -> list[Any]:
        """The result, of what was reduced."""
        return list(pieces)


_kinds: dict[Any, int] = {}
_counter = count(1)


class _NormPartial(Partial):
    """Parts of a norm: powers are summed, and the root taken."""

    norm_type: float

    def __init__(self, norm_type: float = 2) -> None:
        kind = _kinds.setdefault(("norm", norm_type), 0) or next(_counter)
        _kinds["norm", norm_type] = kind
        self._set(reduce_op="sum", norm_type=norm_type, _code=(3, 0, kind))

    def _partition(self, pieces: Sequence[Any], mesh: Any, dim: int) -> list[Any]:
        return [p / mesh.size(dim) ** (1 / self.norm_type) for p in pieces]

    def _before(self, pieces: Sequence[Any]) -> list[Any]:
        return [p**self.norm_type for p in pieces]

    def _after(self, pieces: Sequence[Any]) -> list[Any]:
        return [p ** (1.0 / self.norm_type) for p in pieces]

    def __repr__(self) -> str:
        return f"_NormPartial({self.norm_type})"

    def __str__(self) -> str:
        return f"_NormP({self.norm_type})"

    def __reduce__(self) -> Any:
        return _NormPartial, (self.norm_type,)


class _MaskPartial(Partial):
    """Of rows of a table that is cut: each device has those that are its own, and zeros for others.

    Positions are made relative to a device's part, one dimension of the mesh after the other; which were outside is
    remembered until the rows were taken.
    """

    offset_shape: Any
    offset_dim: int
    masks: list[Any]
    _whole: list[Any]
    _cuts: list[int]

    def __init__(
        self, reduce_op: str | None = None, offset_shape: Any = None, offset_dim: int = 0
    ) -> None:
        super().__init__(reduce_op)
        code = (3, self._code[1], next(_counter))
        shape = None if offset_shape is None else torch.Size(offset_shape)
        self._set(_code=code, offset_shape=shape, offset_dim=offset_dim)
        self._set(masks=[], _whole=[], _cuts=[])

    def _partition(self, pieces: Sequence[Any], mesh: Any, dim: int) -> list[Any]:
        if not self._cuts:
            self._set(_whole=list(pieces))
        self._cuts.append(dim)
        codes = [Shard(0)._code if d in self._cuts else Replicate._code for d in range(mesh.ndim)]
        made: list[Any] = []
        self.masks.clear()
        for seat, indices in zip(mesh._seats, self._whole, strict=True):
            (length,), (start,) = seat.local([self.offset_shape[self.offset_dim]], codes)
            mask = (indices < start) | (indices >= start + length)
            self.masks.append(mask)
            made.append((indices - start).masked_fill(mask, 0))
        return made

    def applied(self, rows: Sequence[Any]) -> list[Any]:
        """The rows that were taken, with zeros where positions were outside."""
        made = []
        for taken, mask in zip(rows, self.masks, strict=True):
            shape = [*mask.shape, *[1] * (taken.ndim - mask.ndim)]
            made.append(taken.masked_fill(mask.view(shape), 0))
        self._set(masks=[], _whole=[], _cuts=[])
        return made

    def __repr__(self) -> str:
        return (
            f"_MaskPartial(reduce_op={self.reduce_op}, offset_shape={self.offset_shape}, "
            f"offset_dim={self.offset_dim})"
        )

    def __str__(self) -> str:
        return f"MaskP({self.reduce_op}, {self.offset_shape}, {self.offset_dim})"


@functools.lru_cache(maxsize=64)
def shard(dim: int) -> Shard:
    """A shard along a dimension, the same one each time."""
    return Shard(dim)


def is_cut(p: Placement) -> bool:
    """True for shards, strided ones too."""
    return p._code[0] in (1, 2)


def moved(p: Placement, dim: int) -> Placement:
    """A shard along another dimension; other placements are as they were."""
    if isinstance(p, _StridedShard):
        return _StridedShard(dim, split_factor=p.split_factor)
    return shard(dim) if isinstance(p, Shard) else p


def normalized(p: Placement, ndim: int) -> Placement:
    """A shard whose dimension is counted from the first."""
    return moved(p, p._code[1] + ndim) if p._code[1] < 0 else p


def check_mixed(placements: Sequence[Placement]) -> None:
    """Refuses partial placements that cannot stand beside each other.

    Raises:
        ValueError: if there are several reductions, but for sums and means.
    """
    found = {p.reduce_op for p in placements if isinstance(p, Partial)}
    if len(found) > 1 and found != {"sum", "avg"}:
        raise ValueError(
            "Mixed Partial reduce types are not supported in the same placement list. "
            f"Found reduce ops: {found}. Please ensure all Partial placements use the same reduce operation."
        )
