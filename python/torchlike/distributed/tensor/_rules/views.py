"""Views: which dimension of the result a dimension of the input becomes, and what that does to its cuts.

A dimension of the result is a dimension of the input (`Input`), several in one (`Flat`), a piece of such (`Split`),
or new.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from torchlike.distributed.tensor._rules import Call, Cut, Fixed, P, Rows, dim_of, dims_of, rule
from torchlike.distributed.tensor.placement_types import (
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    is_cut,
)


class New:
    """A dimension that the input has not, or has only one element of."""


class Input(NamedTuple):
    """A dimension of the input."""

    dim: int


class Flat(NamedTuple):
    """Several dimensions of the input, in one."""

    dims: tuple[int, ...]


class Split(NamedTuple):
    """The piece `at` of a dimension that is taken apart into `sizes`."""

    of: Input | Flat
    sizes: tuple[int, ...]
    at: int


class Repeat(NamedTuple):
    """A dimension of the input several times over: it cannot be cut."""

    dim: int


Piece = New | Input | Flat | Split | Repeat


def _flat(dims: list[int]) -> Any:
    if not dims:
        return New()
    return Input(dims[0]) if len(dims) == 1 else Flat(tuple(dims))


def _split(of: Any, sizes: tuple[int, ...], at: int) -> Piece:
    if isinstance(of, New) or (sizes[at] == 1 and len(sizes) > 1):
        return New()
    if len(sizes) == 1:
        return of
    kept = [i for i, s in enumerate(sizes) if s != 1]
    if len(kept) == 1 and isinstance(of, Input | Flat):
        return Split(of, (sizes[at],), 0)
    return Split(of, tuple(sizes[i] for i in kept), kept.index(at))


def reshaped(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[Piece, ...]:
    """What each dimension of a new shape is of an old one: the smallest groups of both that have as many elements."""
    count = prod(old)
    if -1 in new:
        others = prod(s for s in new if s != -1)
        new = tuple(count // max(others, 1) if s == -1 else s for s in new)
    made: list[Piece] = []
    i = j = 0
    while i < len(old) or j < len(new):
        dims, sizes = [], []
        f = t = 1
        if i < len(old):
            f, i = old[i], i + 1
            dims.append(i - 1)
        if j < len(new):
            t, j = new[j], j + 1
            sizes.append(t)
        if f == 1 and t != 1:
            j, sizes = j - len(sizes), []
        elif f != 1 and t == 1:
            i, dims = i - len(dims), []
        else:
            while f != t:
                if f < t and i < len(old):
                    f, i = f * old[i], i + 1
                    dims.append(i - 1)
                elif j < len(new):
                    t, j = t * new[j], j + 1
                    sizes.append(new[j - 1])
                else:
                    break
        if sizes:
            of = _flat(dims)
            made += [_split(of, tuple(sizes), k) for k in range(len(sizes))]
    return tuple(made)


class _Propagation:
    """How the cuts of an input become cuts of a view. `strict`: it may not move data."""

    def __init__(self, placements: Any, shape: Any, pieces: Any, sizes: Any, strict: bool) -> None:
        self.source, self.shape, self.pieces = list(placements), tuple(shape), tuple(pieces)
        self.sizes, self.strict = tuple(sizes), strict
        here = {d for p in self.pieces for d in _dims(p)}
        self.allowed = {d: [d in here] * len(self.sizes) for d in range(len(self.shape))}
        self.matched: set[int] = set()
        self.given_up: set[tuple[int, int]] = set()
        self.claimed: set[tuple[int, int]] = set()

    def run(self) -> tuple[list[Placement], list[Placement]]:
        """The placements that the input has to have, and those of the result.

        Raises:
            RuntimeError: if a strict view would have to move data.
        """
        becomes: dict[int, list[int]] = {}
        for out, piece in enumerate(self.pieces):
            dims = self._look(piece)
            if isinstance(piece, Flat):
                becomes.update({d: [out] for d in dims})
            elif dims:
                becomes.setdefault(dims[0], []).append(out)
            elif isinstance(piece, Split):
                root = piece.of.dim if isinstance(piece.of, Input) else piece.of.dims[0]
                if root in becomes:
                    becomes[root].append(out)
        target: list[Placement] = []
        for m, p in enumerate(self.source):
            if is_cut(p) and not self.allowed[p.dim][m]:
                if self.strict and (p.dim, m) not in self.given_up:
                    raise RuntimeError(
                        f"This operation would remove or reshape sharded dimension {p.dim}, which requires "
                        "redistribution. Please redistribute the input first."
                    )
                target.append(Replicate())
            else:
                target.append(p)
        return target, self._rewrite(target, becomes)

    def _plain(self, dim: int) -> int | None:
        return next((m for m, p in enumerate(self.source) if p == Shard(dim)), None)

    def _look(self, piece: Piece) -> list[int]:
        if isinstance(piece, Input):
            return [piece.dim]
        if isinstance(piece, Flat):
            return self._look_flat(piece)
        if isinstance(piece, Split):
            return self._look_split(piece)
        if isinstance(piece, Repeat):
            self.allowed[piece.dim] = [False] * len(self.sizes)
        return []

    def _look_flat(self, piece: Flat) -> list[int]:
        self._look_strided(piece)
        cut: list[int] = []
        for i, dim in enumerate(piece.dims):
            m = self._plain(dim)
            if m is None:
                continue
            uneven = self.shape[dim] % self.sizes[m] != 0
            can = True
            if self.strict:
                if i < len(piece.dims) - 1 and uneven:
                    raise RuntimeError(
                        f"Cannot flatten unevenly sharded tensor: dimension {dim} (size {self.shape[dim]}) is not "
                        f"evenly divisible by mesh dimension {m} (size {self.sizes[m]}). Please redistribute the "
                        "tensor before this operation."
                    )
                cut.append(dim)
            elif i == 0:
                cut.append(dim)
                can = not uneven
            else:
                can = False
            self.allowed[dim] = [can] * len(self.sizes)
        return cut or [piece.dims[0]]

    def _look_strided(self, piece: Flat) -> None:
        """Blocks of several sizes are no blocks of one size once every element is several."""
        for m, p in enumerate(self.source):
            if not isinstance(p, _StridedShard) or p.dim not in piece.dims:
                continue
            uneven = p.dim != piece.dims[-1] and self.shape[p.dim] % (
                self.sizes[m] * p.split_factor
            )
            if uneven or Shard(p.dim) in self.source[m + 1 :]:
                if self.strict:
                    raise RuntimeError(
                        f"Cannot flatten unevenly sharded tensor: dimension {p.dim} (size {self.shape[p.dim]}) is not "
                        f"evenly divisible by mesh dimension {m} (size {self.sizes[m]}). Please redistribute the "
                        "tensor before this operation."
                    )
                self.allowed[p.dim][m] = False

    def _look_split(self, piece: Split) -> list[int]:
        dims = self._look(piece.of)
        if not dims:
            return []
        dim = dims[0]
        if isinstance(piece.of, Flat):
            for other in piece.of.dims[1:]:
                for at, p in enumerate(self.source):
                    if p == Shard(other):
                        self.allowed[other][at] = False
                        self.given_up.add((other, at))
        size = piece.sizes[piece.at]
        found = self._cut_for(piece, dim)
        if piece.at == 0:
            self.allowed[dim] = [size % n == 0 for n in self.sizes]
            m = self._plain(dim)
            if self.strict and m is not None and not self.allowed[dim][m]:
                self._uneven(piece.at, size, m)
        if found is not None and isinstance(self.source[found], _StridedShard):
            last = piece.at == len(piece.sizes) - 1
            if self.strict and not last and size % self.sizes[found]:
                self._uneven(piece.at, size, found)
            self.matched.add(found)
            self.allowed[dim][found] = size % self.sizes[found] == 0 or last
        return [dim] if piece.at == 0 else []

    def _uneven(self, at: int, size: int, m: int) -> None:
        raise RuntimeError(
            f"Cannot unflatten unevenly sharded tensor: output dimension {at} (size {size}) is not evenly divisible "
            f"by mesh dimension {m} (size {self.sizes[m]}). Please redistribute the tensor before this operation."
        )

    def _cut_for(self, piece: Split, dim: int) -> int | None:
        """The dimension of the mesh that cuts this piece of a dimension."""
        for m, p in enumerate(self.source):
            if not is_cut(p) or p.dim != dim or m in self.matched:
                continue
            if (
                not isinstance(p, _StridedShard)
                or self._factor(piece, dim, m, self.source) == p.split_factor
            ):
                return m
        return None

    def _factor(self, piece: Split, dim: int, mesh_dim: int, placements: Any) -> int | None:
        factor = prod(piece.sizes[: piece.at])
        for m in range(mesh_dim):
            p = placements[m]
            if is_cut(p) and p.dim == dim:
                if factor % self.sizes[m]:
                    return None
                factor //= self.sizes[m]
        return factor

    def _rewrite(self, target: list[Placement], becomes: dict[int, list[int]]) -> list[Placement]:
        local = list(self.shape)
        made: list[Placement] = []
        for m, p in enumerate(target):
            if isinstance(p, Shard):
                made.append(self._of_plain(p, m, target, becomes, local))
            elif isinstance(p, _StridedShard):
                made.append(self._of_strided(p, m, target, becomes))
            else:
                made.append(p)
                continue
            local[p.dim] //= self.sizes[m]
        return made

    def _open(self, dim: int, becomes: dict[int, list[int]]) -> list[int]:
        return [d for d in becomes.get(dim, []) if (dim, d) not in self.claimed]

    def _of_plain(
        self,
        p: Shard,
        m: int,
        target: list[Placement],
        becomes: dict[int, list[int]],
        local: list[int],
    ) -> Placement:
        outs = self._open(p.dim, becomes)
        first = (d for d in outs if isinstance(q := self.pieces[d], Split) and q.at == 0)
        out = outs[0] if len(outs) == 1 else next(first, None)
        if out is None:
            raise RuntimeError(f"no dimension of the result is that of {p!r} on mesh dim {m}")
        piece = self.pieces[out]
        if not isinstance(piece, Flat):
            return Shard(out)
        start, end = piece.dims[0], piece.dims[-1] + 1
        inner = any(
            is_cut(q) and start <= q.dim < end and q.dim >= p.dim  # type: ignore[attr-defined]
            for q in target[m + 1 :]
        )
        if local[p.dim] % self.sizes[m] and inner:
            raise RuntimeError(
                f"Cannot shard unevenly distributed tensor: dimension {p.dim} (size {local[p.dim]}) is not evenly "
                f"divisible by mesh dimension {m} (size {self.sizes[m]}). Please redistribute the tensor before this "
                "operation."
            )
        if p.dim == start:
            return Shard(out)
        return _StridedShard(out, split_factor=prod(local[start : p.dim]))

    def _of_strided(
        self, p: _StridedShard, m: int, target: list[Placement], becomes: dict[int, list[int]]
    ) -> Placement:
        outs = self._open(p.dim, becomes)
        for out in outs:
            piece = self.pieces[out]
            if isinstance(piece, Split) and self._factor(piece, p.dim, m, target) == p.split_factor:
                self.claimed.add((p.dim, out))
                return Shard(out)
        kept = self._keeping(outs, p, m)
        if kept is None:
            if self.strict and any(isinstance(self.pieces[d], Split) for d in outs):
                raise RuntimeError(
                    f"Cannot unflatten tensor with _StridedShard placement: split_factor={p.split_factor} does not "
                    "match any output dimension. Please redistribute the tensor before this operation."
                )
            if not outs:
                raise RuntimeError(f"no dimension of the result is that of {p!r} on mesh dim {m}")
            kept = outs[0]
        return _StridedShard(kept, split_factor=p.split_factor)

    def _keeping(self, outs: list[int], p: _StridedShard, m: int) -> int | None:
        """The piece of a dimension in which a strided shard stays what it is."""
        parts = self.sizes[m] * p.split_factor
        if self.shape[p.dim] % parts:
            return None
        for out in outs:
            piece = self.pieces[out]
            if isinstance(piece, Split):
                after = piece.of.dims if isinstance(piece.of, Flat) else ()
                after = after[after.index(p.dim) + 1 :] if p.dim in after else ()
                run = self.shape[p.dim] // parts * prod(self.shape[d] for d in after)
                inner = prod(piece.sizes[piece.at + 1 :])
                if run >= inner and run % inner == 0:
                    return out
        return None


def _dims(piece: Piece) -> tuple[int, ...]:
    if isinstance(piece, Input | Repeat):
        return (piece.dim,)
    if isinstance(piece, Flat):
        return piece.dims
    return _dims(piece.of) if isinstance(piece, Split) else ()


def _viewed(call: Call, pieces: Any, strict: bool = False) -> Fixed:
    spec = call.first
    run = _Propagation(spec.placements, spec.shape, pieces, call.mesh.shape, strict)
    inputs, out = run.run()
    others = [s.placements for s in call.specs[1:]]
    return Fixed([out] * call.results, [inputs, *others], ordered=False)


@rule("view.default _unsafe_view")
def _view(call: Call) -> Fixed:
    return _viewed(call, reshaped(call.first.shape, tuple(call.args[1])), strict=True)


@rule("view_copy.default reshape.default")
def _reshape(call: Call) -> Fixed:
    return _viewed(call, reshaped(call.first.shape, tuple(call.args[1])))


@rule("squeeze squeeze_")
def _squeeze(call: Call) -> Fixed:
    shape = call.first.shape
    dims = [] if call.arg(1) == [] else dims_of(call.arg(1), len(shape))
    kept = [d for d in range(len(shape)) if shape[d] != 1 or d not in dims]
    return _viewed(call, [Input(d) for d in kept], strict=True)


@rule("unsqueeze")
def _unsqueeze(call: Call) -> Fixed:
    ndim = call.first.ndim
    at = dim_of(call.args[1], ndim + 1)
    pieces: list[Piece] = [Input(d) for d in range(ndim)]
    return _viewed(call, [*pieces[:at], New(), *pieces[at:]])


@rule("expand expand_copy")
def _expand(call: Call) -> Fixed:
    shape, sizes = call.first.shape, tuple(call.args[1])
    pad = len(sizes) - len(shape)
    pieces: list[Piece] = []
    for i, size in enumerate(sizes):
        old = shape[i - pad] if i >= pad else 1
        pieces.append(Input(i - pad) if i >= pad and size in (old, -1, 1) else New())
    return _viewed(call, pieces)


@rule("permute")
def _permute(call: Call) -> Fixed:
    ndim = call.first.ndim
    return _viewed(call, [Input(dim_of(d, ndim)) for d in call.args[1]])


@rule("transpose.int")
def _transpose(call: Call) -> Fixed:
    ndim = call.first.ndim
    dims = list(range(ndim))
    a, b = (dim_of(d, ndim) for d in call.args[1:3])
    if ndim:
        dims[a], dims[b] = dims[b], dims[a]
    return _viewed(call, [Input(d) for d in dims])


@rule("repeat")
def _repeat(call: Call) -> Fixed:
    times, ndim = call.args[1], call.first.ndim
    pad = len(times) - ndim
    pieces: list[Piece] = [New() for _ in range(pad)]
    pieces += [Input(d) if times[pad + d] == 1 else Repeat(d) for d in range(ndim)]
    return _viewed(call, pieces)


@rule("view_as_complex")
def _complex(call: Call) -> Rows:
    rows: list[list[Any]] = [[Cut(d), Cut(d)] for d in range(call.first.ndim - 1)]
    return Rows([*rows, [P("sum"), P("sum")], [P("avg"), P("avg")]])


@rule("view_as_real")
def _real(call: Call) -> Fixed:
    return _viewed(call, [*(Input(d) for d in range(call.first.ndim)), New()])
