"""Sharding rules: with which placements an operator can be called, and how its results lie then.

A rule is a function of a call, under the operator's name (`mm`) or an overload's (`mm.default`). It gives either rows
for
one dimension of a mesh, `[results..., tensors among the arguments...]`, of which the core chooses the cheapest for each
dimension, or placements that follow from those of the arguments at once. That every argument may be replicated goes
without saying. The rules, and the order of their rows, are PyTorch's, so that placements are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike.distributed.tensor._spec import Spec
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    is_cut,
    moved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = ["Call", "Cut", "Fixed", "P", "R", "Rows", "dims_of", "follow", "rule", "rule_of"]

R = Replicate()
P = Partial


class Cut(NamedTuple):
    """A shard along `dim`, of any kind that the arguments have."""

    dim: int


class Rows(NamedTuple):
    """What can be chosen for each dimension of the mesh. `even`: the rows, if pieces of several sizes are chosen."""

    rows: list[list[Any]]
    uneven: bool = False
    even: list[list[Any]] | None = None


class Fixed(NamedTuple):
    """Placements that follow from the arguments': of each result, of each tensor among the arguments.

    `args` replaces arguments that are no tensors; `ordered` says what strided shards of the results mean.
    """

    results: list[Sequence[Placement] | None]
    inputs: list[Sequence[Placement]]
    args: tuple[Any, ...] | None = None
    ordered: bool | None = None


class Call:
    """A call whose tensors are `Spec`s."""

    def __init__(
        self,
        name: str,
        overload: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: int,
    ) -> None:
        self.name, self.overload, self.args, self.kwargs = name, overload, args, kwargs
        self.results = results
        self.specs: list[Spec] = []
        for value in (*self.args, *self.kwargs.values()):
            items = value if isinstance(value, list | tuple) else (value,)
            self.specs += [v for v in items if isinstance(v, Spec)]

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh of the arguments."""
        return self.specs[0].mesh

    @property
    def first(self) -> Spec:
        """The first tensor."""
        return self.specs[0]

    def arg(self, i: int, default: Any = None) -> Any:
        """A positional argument, or its default."""
        return self.args[i] if i < len(self.args) else default

    @property
    def in_place(self) -> bool:
        """True if the first argument is written."""
        return self.name.endswith("_") and not self.name.endswith("__")


_RULES: dict[str, Callable[[Call], Rows | Fixed]] = {}
# The rooms that nobody has asked yet.
_missing = [
    "pointwise",
    "reduce",
    "views",
    "arrange",
    "products",
    "index",
    "layers",
    "images",
    "formulas",
    "create",
    "whole",
]


def rule(*names: str) -> Callable[[Any], Any]:
    """Gives operators, or overloads, a rule."""

    def note(f: Any) -> Any:
        for text in names:
            for name in text.split():
                _RULES[name] = f
        return f

    return note


def replaced(name: str, overload: str, f: Callable[[Call], Rows | Fixed]) -> None:
    """Gives an overload a rule in place of the one that it has."""
    rule_of(name, overload)
    _RULES[f"{name}.{overload}"] = f


def has_rule(name: str) -> bool:
    """Whether an operator has a rule by now."""
    return name in _RULES


def ruled() -> set[str]:
    """The operators of which an overload has a rule."""
    rule_of("mm", "default")
    return {name.partition(".")[0] for name in _RULES}


def rule_of(name: str, overload: str) -> Callable[[Call], Rows | Fixed] | None:
    """The rule of an overload, if there is one."""
    for room in _missing:
        import_module(f"{__name__}.{room}")
    _missing.clear()
    return _RULES.get(f"{name}.{overload}") or _RULES.get(name)


def dims_of(dims: Any, ndim: int) -> list[int]:
    """Dimensions counted from the first; all, if none is said."""
    if dims is None:
        return list(range(ndim))
    listed = [dims] if isinstance(dims, int) else list(dims)
    if not listed or (ndim == 0 and listed in ([0], [-1])):
        return list(range(ndim))
    return [d + ndim if d < 0 else d for d in listed]


def dim_of(dim: int, ndim: int) -> int:
    """A dimension counted from the first."""
    return dim + ndim if dim < 0 else dim


def uncut(
    placements: Sequence[Placement], dims: Sequence[int], partial: bool = True
) -> list[Placement]:
    """Replicated where one of these dimensions is cut, and where partial if that is said."""
    return [
        R
        if (is_cut(p) and p.dim in dims) or (partial and isinstance(p, Partial))  # type: ignore[attr-defined]
        else p
        for p in placements
    ]


def inserted(placements: Sequence[Placement], dim: int) -> list[Placement]:
    """Where the shards are once a dimension was put in."""
    return [moved(p, p.dim + 1) if is_cut(p) and p.dim >= dim else p for p in placements]  # type: ignore[attr-defined]


def removed(placements: Sequence[Placement], dim: int) -> list[Placement]:
    """Where the shards are once a dimension was taken out."""
    return [moved(p, p.dim - 1) if is_cut(p) and p.dim > dim else p for p in placements]  # type: ignore[attr-defined]


def follow(call: Call) -> Fixed:
    """The result lies as the only tensor does."""
    placements = call.first.placements
    return Fixed([placements], [placements], ordered=call.first.ordered)


def filled(
    rows: list[list[Any]], specs: Sequence[Spec], length: int
) -> list[list[Placement | None]]:
    """The rows with shards of the kinds that the arguments have, and the one in which everything is replicated."""
    builders: list[Any] = []
    factors: list[int | None] = []
    for p in (p for s in specs for p in s.placements):
        if isinstance(p, Shard) and None not in factors:
            factors.append(None)
            builders.append(Shard)
        elif isinstance(p, _StridedShard) and p.split_factor not in factors:
            factors.append(p.split_factor)
            builders.append(lambda d, f=p.split_factor: _StridedShard(d, split_factor=f))
    if not any(all(p is None or p == R for p in row) for row in rows):
        gaps = rows[0] if rows else [R] * length
        rows = [[None if p is None else R for p in gaps], *rows]
    made: list[list[Placement | None]] = []
    for row in rows:
        if not any(isinstance(p, Cut) for p in row):
            made.append(row)
            continue
        made += [[build(p.dim) if isinstance(p, Cut) else p for p in row] for build in builders]
    return made
