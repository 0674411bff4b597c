"""Deferred initialisation: build now on meta, make real later, with the bits of eager construction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torchlike import _C
from torchlike._parts import plain_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["clear_meta_init_cache", "is_meta_init", "materialize", "meta_init"]

T = TypeVar("T")


class meta_init:
    """Inside, every factory records a recipe on the meta device instead of allocating.

    `materialize` makes the tensors and modules real afterwards, whole or in parts, in any order.
    """

    __slots__ = ()

    def __enter__(self) -> meta_init:
        _C._record(True)
        return self

    def __exit__(self, *exc: object) -> None:
        _C._record(False)

    def __call__(self, func: Any) -> Any:
        from torchlike.context import _with_context

        return _with_context(self, func)


class _not_recorded:
    """Inside, factories make what they say, within `meta_init()` too."""

    __slots__ = ("_depth",)

    def __enter__(self) -> None:
        self._depth = 0
        while _C._recording():
            _C._record(False)
            self._depth += 1

    def __exit__(self, *exc: object) -> None:
        for _ in range(self._depth):
            _C._record(True)


def is_meta_init() -> bool:
    """True inside `meta_init()`, on this thread."""
    return _C._recording()


def _named(obj: Any, name: str = "") -> Iterable[tuple[str, _C.Tensor]]:
    """The tensors of a container with their names: keys and positions joined by dots."""
    if isinstance(obj, _C.Tensor):
        yield name, obj
        return
    dot = name and name + "."
    if isinstance(obj, dict):
        for k, v in obj.items():
            if isinstance(v, _C.Tensor | dict | list | tuple) or hasattr(v, "named_parameters"):
                yield from _named(v, f"{dot}{k}")
    elif isinstance(obj, list | tuple | set | frozenset):
        for i, v in enumerate(obj):
            yield from _named(v, f"{dot}{i}")
    elif hasattr(obj, "named_parameters") and hasattr(obj, "named_buffers"):
        for k, v in (*obj.named_parameters(), *obj.named_buffers()):
            yield f"{dot}{k}", v
    else:
        raise TypeError(
            f"materialize(): expected a tensor, a module or a container of them, got {type(obj).__name__}"
        )


def _chosen(obj: Any, names: str | Iterable[str] | None) -> list[_C.Tensor]:
    found = _named(obj)
    if names is None:
        return [t for _, t in found]
    from fnmatch import fnmatchcase

    patterns = [names] if isinstance(names, str) else list(names)
    matched: set[str] = set()
    chosen = []
    for name, t in found:
        hits = [p for p in patterns if fnmatchcase(name, p)]
        if hits:
            matched.update(hits)
            chosen.append(t)
    for p in patterns:
        if p not in matched:
            raise KeyError(f"materialize(): no tensor is named '{p}'")
    return chosen


def materialize(
    obj: T,
    keep_cache: bool = False,
    *,
    names: str | Iterable[str] | None = None,
    index: Any = None,
    device: Any = None,
) -> T:
    """Makes a tensor, a module or a container of them real, in place, and returns it.

    Tensors keep their identity, views and ties; those that come from files are read in parallel. `names` takes only the
    tensors whose names match a pattern (`"layers.0.*"`), `device` says where to (the CPU if not given). With
    `index`, of one tensor, the elements at that index come back as a new real tensor and the tensor itself stays as it
    is: of a file only the bytes of those elements are read. `keep_cache` keeps intermediate results of recorded
    initialisations, so that later calls need not compute them again; `clear_meta_init_cache` forgets them.
    """
    if index is not None:
        if not isinstance(obj, _C.Tensor) or names is not None:
            raise TypeError("materialize(): an index is for one tensor")
        made = _C._extract(obj.detach()[index])
        return made if device is None else made.to(device)
    chosen = (p for t in _chosen(obj, names) for p in plain_parts(t))
    parts = [p for t in chosen for p in _C._parts(t)]
    _C._materialize_all([p for p in parts if p.is_meta], keep_cache, device)
    return obj


def clear_meta_init_cache() -> None:
    """Forgets what `materialize(..., keep_cache=True)` kept."""
    _C._clear_meta_init_cache()
