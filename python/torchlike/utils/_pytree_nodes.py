"""What counts as a container in trees: the registered types, and how each is taken apart."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike._naming import own
from torchlike._size import Size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A place in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """What stands there."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """What stands there."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """An attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute's value."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """How a registered type is taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Any]] | None
    serialized_type_name: str | None = None
    to_dumpable_context: Callable[[Any], Any] | None = None
    from_dumpable_context: Callable[[Any], Any] | None = None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
CONSTANT_NODES: set[type] = set()


def _sequence_keys(items: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(SequenceKey(i), item) for i, item in enumerate(items)]


def register_pytree_node(
    cls: type,
    flatten_fn: Any,
    unflatten_fn: Any,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """Makes a type a container.

    Args:
        flatten_fn: gives a list of children, and what else is needed to make the object again.
        unflatten_fn: makes an object of both.

    Raises:
        ValueError: if the type is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must "
            "be None or registered."
        )
    SUPPORTED_NODES[cls] = NodeDef(
        cls,
        flatten_fn,
        unflatten_fn,
        flatten_with_keys_fn,
        serialized_type_name,
        to_dumpable_context,
        from_dumpable_context,
    )


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Makes a dataclass a container of its fields; fields that are None, or dropped, are no children."""
    if field_names is None and not dataclasses.is_dataclass(cls):
        raise ValueError(
            f"register_dataclass: field_names must be specified when registering a class that is not a dataclass: {cls}"
        )
    dropped = drop_field_names or []
    names = field_names or [
        f.name for f in dataclasses.fields(cls) if f.init and f.name not in dropped
    ]

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        present = [n for n in names if getattr(obj, n) is not None]
        absent = [n for n in names if n not in present]
        return [getattr(obj, n) for n in present], [present, absent]

    def with_keys(obj: Any) -> tuple[list[Any], Any]:
        values, context = flatten(obj)
        keys = [GetAttrKey(n) for n in context[0]]
        return list(zip(keys, values, strict=True)), context

    def unflatten(values: Any, context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=with_keys,
    )


def register_constant(cls: type) -> None:
    """Makes the objects of a type part of the structure: containers without children."""
    if not any("__eq__" in vars(c) for c in cls.__mro__ if c is not object):
        raise TypeError(
            f"register_constant(cls) expects `cls` to have a non-default `__eq__` implementation: {cls}"
        )
    register_pytree_node(
        cls, lambda obj: ([], obj), lambda _, obj: obj, flatten_with_keys_fn=lambda obj: ([], obj)
    )
    CONSTANT_NODES.add(cls)


def is_namedtuple_class(cls: Any) -> bool:
    """True for classes that `namedtuple` made, and their subclasses."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(getattr(cls, "_fields", None), tuple)
        and all(type(f) is str for f in cls._fields)  # type: ignore[attr-defined]
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """True for named tuples."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """True for named tuples and their classes."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """True for tuple classes of C, such as `os.stat_result`."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and isinstance(getattr(cls, "n_fields", None), int)
        and isinstance(getattr(cls, "n_sequence_fields", None), int)
    )


def is_structseq_instance(obj: Any) -> bool:
    """True for objects of such classes."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """True for such objects and classes."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def node_type(tree: Any) -> Any:
    """The key of a tree's root among the registered types, or None if it is a leaf."""
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    if not issubclass(kind, tuple):
        return None
    if own(kind.__module__) == "torchlike.return_types":
        _register_result(kind)
        return kind
    return namedtuple if is_namedtuple_class(kind) else None


def _register_result(cls: Any) -> None:
    """Results with names are nodes of their own class, as they are in PyTorch."""
    register_pytree_node(
        cls,
        lambda t: (list(t), None),
        lambda items, _: cls(items),
        flatten_with_keys_fn=lambda t: (_sequence_keys(t), None),
    )


# the containers of Python --------------------------------------------------------------------


def _mapping_keys(flatten: Any) -> Any:
    def with_keys(d: Any) -> tuple[list[Any], Any]:
        values, context = flatten(d)
        return [(MappingKey(k), v) for k, v in zip(d, values, strict=True)], context

    return with_keys


def _dict(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


def _defaultdict(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), [d.default_factory, list(d)]


def _zipped(values: Any, keys: Any) -> Any:
    return zip(keys, values, strict=True)


def _named(t: Any) -> tuple[list[Any], Any]:
    return list(t), type(t)


def _named_keys(t: Any) -> tuple[list[Any], Any]:
    return [(GetAttrKey(n), v) for n, v in zip(t._fields, t, strict=True)], type(t)


def _sequence(make: Any, cls: type, name: str) -> None:
    register_pytree_node(
        cls,
        lambda s: (list(s), None),
        lambda items, _: make(items),
        serialized_type_name=name,
        flatten_with_keys_fn=lambda s: (_sequence_keys(s), None),
    )


def _mapping(make: Any, cls: type, name: str) -> None:
    register_pytree_node(
        cls,
        _dict,
        lambda values, keys: make(_zipped(values, keys)),
        serialized_type_name=name,
        flatten_with_keys_fn=_mapping_keys(_dict),
    )


def _register_builtins() -> None:
    _sequence(tuple, tuple, "builtins.tuple")
    _sequence(list, list, "builtins.list")
    _sequence(tuple, Size, "torch.Size")
    _mapping(dict, dict, "builtins.dict")
    _mapping(OrderedDict, OrderedDict, "collections.OrderedDict")
    register_pytree_node(
        defaultdict,
        _defaultdict,
        lambda values, context: defaultdict(context[0], _zipped(values, context[1])),
        serialized_type_name="collections.defaultdict",
        flatten_with_keys_fn=_mapping_keys(_defaultdict),
    )
    register_pytree_node(
        deque,
        lambda d: (list(d), d.maxlen),
        lambda items, maxlen: deque(items, maxlen=maxlen),
        serialized_type_name="collections.deque",
        flatten_with_keys_fn=lambda d: (_sequence_keys(d), d.maxlen),
    )
    register_pytree_node(
        namedtuple,  # type: ignore[arg-type]
        _named,
        lambda items, cls: cls(*items),
        serialized_type_name="collections.namedtuple",
        flatten_with_keys_fn=_named_keys,
    )


_register_builtins()
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
