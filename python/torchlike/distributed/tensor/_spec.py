"""What is known of a tensor on a mesh besides its pieces: the mesh, the placements, and what the whole looks like."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike.distributed.tensor.placement_types import (
    WHOLE,
    Placement,
    _StridedShard,
    is_cut,
    shard,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchlike.distributed.device_mesh import DeviceMesh


class TensorMeta(NamedTuple):
    """What a whole tensor looks like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


_numbers: dict[Any, int] = {}
_count = itertools.count(1)
_LIMIT = 1 << 16
_KEPT = 64


class Spec:
    """The mesh, the placements, and the whole's shape, strides and dtype.

    `ordered`: strided shards stand for shards that were cut in another order than that of the mesh's dimensions, and
    are not made by views.
    """

    __slots__ = (
        "_hash",
        "_key",
        "_number",
        "_others",
        "dtype",
        "follows",
        "mesh",
        "ordered",
        "placements",
        "shape",
        "stride",
        "tensor_meta",
        "unsplit",
    )
    shape: tuple[int, ...]
    """The whole's shape."""
    stride: tuple[int, ...]
    """The whole's strides."""
    follows: bool
    """Whether a tensor that lies so is a view of one that lies elsewhere, and gives it what is written."""
    unsplit: tuple[Placement, ...]
    """The placements with what is partial reduced."""

    def __init__(
        self,
        mesh: DeviceMesh,
        placements: Iterable[Placement],
        tensor_meta: TensorMeta,
        ordered: bool = True,
    ) -> None:
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta
        self.ordered = ordered
        self.shape, self.stride, self.dtype = tensor_meta
        self.unsplit = tuple([WHOLE if p.is_partial() else p for p in self.placements])
        codes = tuple([p._code for p in self.placements])
        self._key = (mesh, codes, tensor_meta, ordered and any(c[0] == 2 for c in codes))
        self._hash = hash(self._key)
        self._number, self.follows = 0, False
        self._others: dict[Any, Any] = {}

    @property
    def number(self) -> int:
        """A number that specs have in common which are equal, on slices of the same mesh and in the same world."""
        number = self._number
        if not number:
            if len(_numbers) > _LIMIT:
                _numbers.clear()
            key = (self, self.mesh._root, self.mesh._world, self.follows)
            number = self._number = _numbers.get(key) or _numbers.setdefault(key, next(_count))
        return number

    @property
    def ndim(self) -> int:
        """How many dimensions the whole has."""
        return len(self.tensor_meta.shape)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def lies(self) -> tuple[list[tuple[int, int, int]], bool]:
        """The placements as the core takes them."""
        return [p._code for p in self.placements], self.ordered

    @property
    def followed(self) -> Spec:
        """The same of a view of a tensor that lies elsewhere."""
        if self.follows:
            return self
        found: Spec | None = self._others.get("followed")
        if found is None:
            found = self._others["followed"] = Spec(
                self.mesh, self.placements, self.tensor_meta, self.ordered
            )
            found.follows = True
        return found

    @property
    def num_shards(self) -> int:
        """Into how many parts the whole is cut."""
        count = 1
        for i, p in enumerate(self.placements):
            count *= self.mesh.size(i) if is_cut(p) else 1
        return count

    def placed(self, placements: Sequence[Placement], ordered: bool | None = None) -> Spec:
        """The same tensor with other placements."""
        kept = self.ordered if ordered is None else ordered
        if placements is self.placements and kept == self.ordered:
            return self
        return self._other(tuple(placements), self.tensor_meta, kept)

    def of(self, meta: TensorMeta) -> Spec:
        """The same placements of another tensor."""
        if meta == self.tensor_meta:
            return self
        return self._other(self.placements, meta, self.ordered)

    def typed(self, dtype: Any) -> Spec:
        """The same, of another dtype."""
        return self.of(TensorMeta(self.shape, self.stride, dtype))

    def of_gradient(self, now: Spec) -> Spec:
        """Where the gradient of a tensor that lies so goes, which lies as `now`: what was partial has one that is
        replicated, or stays partial."""
        wanted = [
            p if not p.is_partial() else q if q.is_partial() else WHOLE
            for p, q in zip(self.placements, now.placements, strict=True)
        ]
        return now.placed(wanted, self.ordered)

    def of_piece(self, local: Any, placements: tuple[Placement, ...]) -> Spec:
        """A tensor of the same shape with such pieces as `local`, but for a reduction placed alike: as
        `placements` say."""
        key = (placements, local.shape, local.stride(), local.dtype)
        found: Spec | None = self._others.get(key)
        if found is None:
            _, strides = whole_of(local, self.mesh, self.placements)
            meta = TensorMeta(self.shape, strides, local.dtype)
            found = self.of(meta).placed(placements)
            if len(self._others) < _KEPT and not any(p._code[0] > 2 for p in placements):
                self._others[key] = found
        return found

    def _other(self, placements: tuple[Placement, ...], meta: TensorMeta, ordered: bool) -> Spec:
        """Another one on the mesh, which is kept: steps of a program ask for the same ones."""
        codes = tuple([p._code for p in placements])
        key = (codes, meta, ordered)
        found: Spec | None = self._others.get(key)
        if found is None:
            found = Spec(self.mesh, placements, meta, ordered)
            # Masks carry more than their code.
            if all(c[0] < 3 or c[2] == 0 for c in codes) and len(self._others) < _KEPT:
                self._others[key] = found
        return found

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Spec) and self._key == other._key)

    def __repr__(self) -> str:
        from torchlike.fx.node import dtype_abbreviation

        cuts = [p.dim if is_cut(p) else None for p in self.placements]  # type: ignore[attr-defined]
        places = [
            f"{p}[{cuts[:i].count(d)}]" if d is not None and cuts.count(d) > 1 else str(p)
            for i, (p, d) in enumerate(zip(self.placements, cuts, strict=True))
        ]
        return f"Spec({dtype_abbreviation(self.dtype)}{list(self.shape)}({''.join(places)}))"

    def locals(self) -> list[list[int]]:
        """The shapes of the pieces that this process has."""
        lies = self.lies
        return [seat.local(list(self.shape), *lies)[0] for seat in self.mesh._seats]

    def bounds(self, seat: int) -> tuple[Sequence[int], Sequence[int]] | None:
        """Where the piece of a rank that this process plays begins in the whole, and its shape; None if it is no box
        that is cut out."""
        key = ("bounds", seat)
        if key not in self._others:
            found = None
            if any(p._code[0] == 1 for p in self.placements) and all(
                p._code[0] < 2 for p in self.placements
            ):
                shape, at = self.mesh._seats[seat].local(list(self.shape), *self.lies)
                found = (at, shape)
            self._others[key] = found
        bounds: tuple[Sequence[int], Sequence[int]] | None = self._others[key]
        return bounds

    def applied(self) -> list[tuple[int, Placement]]:
        """The dimensions of the mesh and their placements, in the order in which they make pieces."""
        if not (self._key[-1] and self.mesh._seats):
            return list(enumerate(self.placements))
        made = self.mesh._seats[0].applied(list(self.shape), self.lies)
        return [(dim, from_code(code, self.placements)) for dim, code in made]


def meta_of(t: Any) -> TensorMeta:
    """What a tensor looks like."""
    return TensorMeta(tuple(t.shape), tuple(t.stride()), t.dtype)


def twin(meta: TensorMeta) -> Any:
    """A tensor that looks like this, on meta."""
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")


def replicated(mesh: DeviceMesh) -> tuple[Placement, ...]:
    """The whole everywhere."""
    return (WHOLE,) * mesh.ndim


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def local_strides(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense piece of this shape, whose dimensions lie as the whole's do."""
    found, step = [0] * len(strides), 1
    for dim in sorted(range(len(strides)), key=lambda d: strides[d]):
        found[dim] = step
        step *= shape[dim]
    return tuple(found)


def whole_of(
    local: Any, mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and strides of a whole of which all pieces are as large as this one.

    Raises:
        RuntimeError: if a placement cuts a dimension that the piece has not.
    """
    shape, strides = list(local.shape), list(local.stride())
    for i, p in enumerate(placements):
        if not is_cut(p):
            continue
        dim, parts = p.dim, mesh.size(i)  # type: ignore[attr-defined]
        if not 0 <= dim < len(shape):
            raise RuntimeError(
                f"Sharding dim {dim} greater than tensor ndim {len(shape)} for placement number {i}."
            )
        shape[dim] *= parts
        for d, step in enumerate(strides):
            if d != dim and step >= strides[dim]:
                strides[d] = step * parts
    return tuple(shape), tuple(strides)


def from_code(code: tuple[int, int, int], known: Iterable[Placement] = ()) -> Placement:
    """The placement of three numbers; those that carry more than these are looked up among those that are known."""
    kind, a, b = code
    if kind == 0:
        return WHOLE
    if kind == 1:
        return shard(a)
    if kind == 2:
        return _StridedShard(a, split_factor=b)
    from torchlike.distributed.tensor.placement_types import _REDUCTIONS, Partial

    if b == 0:
        return Partial(_REDUCTIONS[a])
    return next(p for p in known if p._code == code)
