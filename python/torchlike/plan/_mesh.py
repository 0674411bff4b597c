"""Plans of sharded models: meshes of ranks that need not exist, how a model is put on one, and what its ranks send.

One rank is played, as on the world `fake`: the model is sharded by the library's own functions, and runs. What lives is
what that rank holds; every collective that runs is noted with its bytes, padding included.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = ["Comm", "Sharded"]

_STYLES = {
    "colwise": "ColwiseParallel",
    "rowwise": "RowwiseParallel",
    "sequence": "SequenceParallel",
}
_WHOLE = ("fsdp", "fully_shard")


class Comm(NamedTuple):
    """A collective that a rank takes part in."""

    kind: str
    """`all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `broadcast` ..."""
    dim: str
    """The dimension of the mesh, or the number of its group."""
    ranks: int
    dtype: str
    sent: int
    """Bytes that the rank gives."""
    received: int
    """Bytes that it gets, its own part included."""
    phase: str
    module: str

    @property
    def wire(self) -> int:
        """Bytes that leave the rank where ranks form a ring: derived from the kind, not measured."""
        n = self.ranks
        whole = max(self.sent, self.received)
        if self.kind == "all_reduce":
            return 2 * whole * (n - 1) // n
        if self.kind in ("all_gather", "reduce_scatter", "all_to_all"):
            return whole * (n - 1) // n
        return whole


class Sharded(NamedTuple):
    """How a parameter lies on the mesh."""

    name: str
    shape: tuple[int, ...]
    placements: str
    bytes: int
    """Of the rank that is played."""
    parts: tuple[int, ...]
    """Which part each of the first ranks has, in order: equal numbers are the same elements."""


_worlds: dict[Any, tuple[Any, DeviceMesh]] = {}
_KEPT = 8


@contextlib.contextmanager
def placed(mesh: Any, device: torch.device) -> Iterator[DeviceMesh]:
    """A mesh of a world that moves nothing, until the context ends.

    Args:
        mesh: sizes by name (`{"dp": 128, "tp": 8}`), or sizes.
        device: whose type the mesh has.

    Raises:
        ValueError: if it has no ranks, or is something else.
    """
    from torchlike.distributed import _groups
    from torchlike.distributed.device_mesh import init_device_mesh

    names = tuple(mesh) if isinstance(mesh, dict) else None
    sizes = tuple(mesh.values()) if isinstance(mesh, dict) else mesh
    if not isinstance(sizes, tuple | list) or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueError(f"plan(mesh=): expected sizes as {{'dp': 128, 'tp': 8}}, got {mesh!r}")
    before = _groups._state.world
    key = (device.type, tuple(sizes), names)
    world, known = _worlds.pop(key, (None, None))
    _groups._state.world = world or _groups.World("fake", 0, prod(sizes), None)
    try:
        ranks = known or init_device_mesh(device.type, tuple(sizes), mesh_dim_names=names)
        yield ranks
        # What calls came down to is known of the mesh by its world: the next plan on it is a quick one.
        _worlds[key] = (_groups._state.world, ranks)
        if len(_worlds) > _KEPT:
            _worlds.pop(next(iter(_worlds)))
    finally:
        _groups._state.world = before


def parallelize(model: Any, mesh: DeviceMesh, how: Any) -> Any:
    """The model as it lies on a mesh.

    Args:
        how: a function of model and mesh; or for each dimension of the mesh by name what is done along it: `"fsdp"`,
            `{"fsdp": ["layers.*"]}` (patterns of modules that are groups of their own), or styles by pattern
            (`{"layers.*.q": "colwise"}`: `colwise`, `rowwise`, `sequence`, or a style).

    Raises:
        ValueError: for a dimension that the mesh has not, or something else.
    """
    if how is None:
        raise ValueError("plan(mesh=): say how the model lies on the mesh, by parallel=")
    if callable(how):
        made = how(model, mesh)
        return model if made is None else made
    if not isinstance(how, dict):
        raise ValueError(
            f"plan(parallel=): expected a function or a dictionary by dimension, got {how!r}"
        )
    names = mesh.mesh_dim_names or ()
    unknown = [name for name in how if name not in names]
    if unknown:
        raise ValueError(
            f"plan(parallel=): the mesh has no dimension {unknown[0]!r}, but {', '.join(names)}"
        )
    # Styles first: what they make of parameters is what is cut further.
    for name, what in sorted(how.items(), key=lambda item: _is_fsdp(item[1])):
        along = mesh[name] if len(names) > 1 else mesh
        (_fully if _is_fsdp(what) else _styled)(model, along, what)
    return model


def _is_fsdp(what: Any) -> bool:
    return what in _WHOLE or (isinstance(what, dict) and any(k in _WHOLE for k in what))


def _fully(model: Any, mesh: DeviceMesh, what: Any) -> None:
    from torchlike.distributed.fsdp import fully_shard

    patterns: Sequence[str] = () if isinstance(what, str) else next(iter(what.values()))
    patterns = [patterns] if isinstance(patterns, str) else patterns
    # A pattern's star stands for one name, as in the plans of styles.
    wanted: dict[int, list[str]] = {}
    for p in patterns:
        wanted.setdefault(p.count("."), []).append(p)
    for name, module in model.named_modules():
        if any([fnmatchcase(name, p) for p in wanted.get(name.count("."), ())]):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _styled(model: Any, mesh: DeviceMesh, what: Any) -> None:
    from torchlike.distributed.tensor import parallel

    def style(pattern: str, value: Any) -> Any:
        if isinstance(value, parallel.ParallelStyle):
            return value
        if value not in _STYLES:
            raise ValueError(
                f"plan(parallel=): no style {value!r} for {pattern!r}: one of {', '.join(_STYLES)}"
            )
        return getattr(parallel, _STYLES[value])()

    if not isinstance(what, dict):
        raise ValueError(f"plan(parallel=): expected 'fsdp' or styles by pattern, got {what!r}")
    # Every rank is taken to have the model already: sending it is not a part of the step.
    styles = {p: style(p, v) for p, v in what.items()}
    parallel.parallelize_module(model, mesh, styles, src_data_rank=None)


def release(model: Any) -> None:
    """Lets a model that was planned go: nobody looks for cycles meanwhile, and there would be many at once."""
    state = sys.modules.get("torchlike.distributed.fsdp._fully_shard._state")
    if state is not None:
        state.release(model)


class Spread:
    """A model on a mesh, and the collectives of a step."""

    def __init__(self, model: Any, mesh: DeviceMesh) -> None:
        self.sizes = dict(zip(_names(mesh), mesh.shape, strict=True))
        self.dims = {mesh.get_group(i).ranks: name for i, name in enumerate(self.sizes)}
        self.groups: dict[Any, str] = {}
        self.sharding = shards(model, mesh)
        self.told: list[tuple[str, str, int, str, int, int, str, str]] = []
        self.phase = "forward"
        self._module: Callable[[], str] = str

    @contextlib.contextmanager
    def watch(self, program: Any) -> Iterator[None]:
        """Notes the collectives until the context ends, with the modules that are at work."""
        from torchlike.distributed import _ops
        from torchlike.distributed.tensor import _dispatch

        @contextlib.contextmanager
        def aside() -> Iterator[None]:
            program.pause()
            try:
                yield
            finally:
                program.start()

        self._module = program.module
        _ops.watchers.append(self._note)
        _dispatch.asides.append(aside)
        try:
            yield
        finally:
            _ops.watchers.remove(self._note)
            _dispatch.asides.remove(aside)

    def _note(self, kind: str, group: Any, inputs: list[Any], outputs: list[Any]) -> None:
        dim = self.groups.get(group)
        if dim is None:
            dim = self.dims.get(group.ranks) or f"group {group.group_name}"
            self.groups[group] = dim
        dtype = _dtype_name((inputs or outputs)[0].dtype)
        sent, received = sum([t.nbytes for t in inputs]), sum([t.nbytes for t in outputs])
        self.told.append(
            (kind, dim, len(group.ranks), dtype, sent, received, self.phase, self._module())
        )

    def as_dict(self) -> dict[str, Any]:
        """What a plan keeps of it."""
        comms = [Comm(*about) for about in self.told]
        return {"mesh": self.sizes, "comms": comms, "sharding": self.sharding}


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or tuple(map(str, range(mesh.ndim)))


@functools.cache
def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


SHOWN = 64
"""Ranks in pictures."""


def shards(model: Any, mesh: DeviceMesh) -> list[Sharded]:
    """How the parameters of a model lie."""
    from torchlike.distributed.tensor import DTensor

    ranks = mesh._flat[:SHOWN]
    found = []
    alike: dict[int, tuple[Any, ...]] = {}
    seats: dict[Any, list[Any]] = {}
    for name, p in model.named_parameters():
        if not isinstance(p, DTensor):
            found.append(Sharded(name, tuple(p.shape), "replicated", p.nbytes, (0,) * len(ranks)))
            continue
        spec = p._spec
        rest = alike.get(id(spec))
        if rest is None:
            own = spec.mesh
            if own not in seats:
                seats[own] = _seats(own, mesh, ranks)
            numbers: dict[Any, int] = {}
            offsets = [_offset(seat, spec) for seat in seats[own]]
            parts = tuple([numbers.setdefault(at, len(numbers)) for at in offsets])
            placements = ", ".join(map(str, p.placements))
            rest = alike[id(spec)] = (spec.shape, placements, p._local_tensor.nbytes, parts)
        found.append(Sharded(name, *rest))
    return found


def _seats(own: Any, mesh: DeviceMesh, ranks: Sequence[int]) -> list[Any]:
    """Where ranks of a mesh are on one of its slices."""
    dims = [_names(mesh).index(n) for n in _names(own)]
    places = [mesh._position(rank) for rank in ranks]
    return [_C._Mesh(list(own.shape), [at[i] for i in dims], own._hosts()) for at in places]


def _offset(seat: Any, spec: Any) -> tuple[Any, ...]:
    """Which elements a rank has."""
    return tuple(map(tuple, seat.local(list(spec.shape), spec.lies[0])))


def traffic(comms: Sequence[Comm]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By kind and dimension: how many collectives, the bytes that a rank gives, and those on the wire."""
    counts: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    wire: Counter[tuple[str, str]] = Counter()
    for c in comms:
        key = (c.kind, c.dim)
        counts[key] += 1
        sent[key] += c.sent
        wire[key] += c.wire
    return {key: (counts[key], sent[key], wire[key]) for key in counts}
