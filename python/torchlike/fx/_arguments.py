"""Arguments of nodes: trees of containers, with nodes and plain values as leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike.fx.immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from collections.abc import Callable

_EMPTY = immutable_dict()
# what stands in arguments as it is; the common types, asked first
PLAIN = frozenset((int, float, bool, str, type(None), complex, bytes, type(...)))


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """The tree with `fn` applied to each leaf; lists and dictionaries become immutable."""
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)._make(items) if hasattr(a, "_make") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict([(k, map_aggregate(v, fn)) for k, v in a.items()])
    if isinstance(a, slice):
        return slice(
            map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn)
        )
    return fn(a)


def frozen(a: Any, node_type: type, used: dict[Any, None]) -> Any:
    """The tree with immutable containers; the nodes in it are noted in `used`."""
    kind = type(a)
    if kind is node_type:
        used[a] = None
        return a
    if kind in PLAIN:
        return a
    if kind is tuple:
        return tuple([frozen(x, node_type, used) for x in a])
    if isinstance(a, tuple):
        items = [frozen(x, node_type, used) for x in a]
        return kind._make(items) if hasattr(a, "_make") else tuple(items)
    if isinstance(a, list):
        return immutable_list([frozen(x, node_type, used) for x in a])
    if isinstance(a, dict):
        if not a:
            return _EMPTY
        return immutable_dict([(k, frozen(v, node_type, used)) for k, v in a.items()])
    if kind is slice:
        return slice(*[frozen(x, node_type, used) for x in (a.start, a.stop, a.step)])
    if isinstance(a, node_type):
        used[a] = None
    return a


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """An argument as text, nodes as `%name`."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return arg._custom_fx_repr_fn()
    if isinstance(arg, list | tuple):
        shown = [_format_arg(a) for i, a in enumerate(arg) if i < max_list_len]
        items = ", ".join(shown)
        rest = "" if len(arg) < max_list_len + 1 else f", ...[total_len={len(arg)}]"
        if isinstance(arg, list):
            return f"[{items}{rest}]"
        return f"({items}{',' if len(arg) == 1 else ''}{rest})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v)}" for k, v in arg.items()) + "}"
    if hasattr(arg, "format_node"):
        return f"%{arg}"
    return str(arg)
