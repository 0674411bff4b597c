"""Lists and dictionaries that stand in the arguments of nodes, where writing would go unnoticed."""

from __future__ import annotations

from typing import Any, NoReturn

from torchlike.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _no_mutation(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to "
        "modify the kwargs or args of a torch.fx.Node object,\n"
        "instead create a new copy of it and assign the copy to the node:\n\n"
        "    new_args = ...  # copy and mutate args\n"
        "    node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that cannot be written, and has a hash."""

    __slots__ = ()

    append = clear = extend = insert = pop = remove = reverse = sort = _no_mutation
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _no_mutation

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dictionary that cannot be written, and has a hash."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _no_mutation
    __delitem__ = __ior__ = __setitem__ = _no_mutation

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self.items()),)


def _register(kind: Any, plain: Any) -> None:
    node = _pytree.SUPPORTED_NODES[plain]
    _pytree.register_pytree_node(
        kind,
        node.flatten_fn,
        lambda values, context: kind(node.unflatten_fn(values, context)),
        serialized_type_name=f"torch.fx.immutable_collections.{kind.__name__}",
        flatten_with_keys_fn=node.flatten_with_keys_fn,
    )


_register(immutable_list, list)
_register(immutable_dict, dict)
