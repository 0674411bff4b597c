"""Deferred initialisation: build now on meta, make real later, with the bits of eager construction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torchlike import _C

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


def is_meta_init() -> bool:
    """True inside `meta_init()`, on this thread."""
    return _C._recording()


def _tensors_of(obj: Any) -> Iterable[_C.Tensor]:
    if isinstance(obj, _C.Tensor):
        yield obj
    elif isinstance(obj, dict):
        for v in obj.values():
            yield from _tensors_of(v)
    elif isinstance(obj, list | tuple | set | frozenset):
        for v in obj:
            yield from _tensors_of(v)
    elif hasattr(obj, "parameters") and hasattr(obj, "buffers"):
        yield from obj.parameters()
        yield from obj.buffers()
    else:
        raise TypeError(
            f"materialize(): expected a tensor, a module or a container of them, got {type(obj).__name__}"
        )


def materialize(obj: T, keep_cache: bool = False) -> T:
    """Makes a tensor, a module or a container of them real, in place, and returns it.

    Tensors keep their identity, views and ties. `keep_cache` keeps intermediate results, so that later calls
    need not compute them again; `clear_meta_init_cache` forgets them.
    """
    for t in _tensors_of(obj):
        if t.is_meta:
            _C._materialize(t, keep_cache)
    return obj


def clear_meta_init_cache() -> None:
    """Forgets what `materialize(..., keep_cache=True)` kept."""
    _C._clear_meta_init_cache()
