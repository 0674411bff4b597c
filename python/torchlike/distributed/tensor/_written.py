"""Writes through views of tensors on meshes whose elements had to be brought elsewhere first: a view of what was
gathered shares no memory with the pieces, which get what was written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C
from torchlike.distributed.tensor import _moves

if TYPE_CHECKING:
    from torchlike._ops import OpOverload
    from torchlike.distributed.tensor._spec import Spec


class Origin(NamedTuple):
    """What a view was made of: the pieces of the tensor, and the same where the view needed them, which it shares."""

    pieces: list[Any]
    spec: Spec
    brought: list[Any]
    there: Spec
    before: Origin | None


def origin_of(t: Any, brought: list[Any], there: Spec) -> Origin | None:
    """Where writes to a view of `t` go besides its own pieces, if those of `t` were brought `there` for it."""
    before: Origin | None = getattr(t, "_origin", None)
    if t._spec.placements == there.placements:
        return before
    return Origin(list(t._locals), t._spec, brought, there, before)


def follows(made: Any, origin: Origin) -> None:
    """Notes that writes to views go on to their origin. Calls of such a view are not run again without asking."""
    _C._trace_void()
    for t in made if isinstance(made, list | tuple) else (made,):
        t._origin, t._spec = origin, t._spec.followed
        t._hold(t._locals)


def written(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Brings what a call wrote to views to the tensors that they are of."""
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = kwargs.get(a.name) if a.name in kwargs else args[i] if i < len(args) else None
            for t in value if isinstance(value, list | tuple) else (value,):
                origin = getattr(t, "_origin", None)
                if origin is not None:
                    _put_back(t._locals, origin)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _put_back(views: list[Any], origin: Origin) -> None:
    """Gives the pieces those elements that views of the pieces elsewhere cover, and no others: these may be old."""
    regions = [_region(w, v) for w, v in zip(origin.brought, views, strict=True)]
    values = _moves.redistribute(origin.brought, origin.there, origin.spec)
    covered = _moves.redistribute(regions, origin.there.typed(torch.bool), _whole_masks(origin))
    for piece, value, region in zip(origin.pieces, values, covered, strict=True):
        piece.copy_(torch.where(region, value, piece))
    if origin.before is not None:
        _put_back(origin.pieces, origin.before)


def _whole_masks(origin: Origin) -> Spec:
    """How masks of the pieces lie: those of what is partial are the same on all ranks."""
    return origin.spec.typed(torch.bool).placed(origin.spec.unsplit)


def _region(brought: Any, view: Any) -> Any:
    """Which elements a view of `brought` covers."""
    if view.dtype != brought.dtype:
        return torch.ones_like(brought, dtype=torch.bool)
    count = brought.untyped_storage().nbytes() // brought.itemsize
    flat = torch.zeros(count, dtype=torch.bool, device=brought.device)
    flat.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    return flat.as_strided(brought.shape, brought.stride(), brought.storage_offset())
