"""Which attributes of a module are parameters, buffers and modules, and views over them.

The values themselves are ordinary instance attributes. A module's ``_kinds`` maps each
registered name, in order of registration, to ``"parameter"``, ``"buffer"`` or ``"module"``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from torchlike._C import Tensor
from torchlike.nn.parameter import Buffer, Parameter

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, KeysView, ValuesView

# Exact type of a value -> the kind it is registered as, None for everything ordinary.
kind_by_type: dict[type, str | None] = {}
module_types: list[type] = []


def kind_of(value: Any) -> str | None:
    """Classify a value whose type ``kind_by_type`` has not seen yet, and remember the answer if the type decides."""
    cls = type(value)
    if issubclass(cls, Parameter):
        kind: str | None = "parameter"
    elif issubclass(cls, Buffer):
        kind = "buffer"
    elif issubclass(cls, Tensor):
        if isinstance(value, Parameter):
            return "parameter"
        return "buffer" if isinstance(value, Buffer) else None
    elif issubclass(cls, module_types[0]):
        kind = "module"
    else:
        kind = None
    if len(kind_by_type) > 4096:  # types made at run time must not be kept for ever
        kind_by_type.clear()
    kind_by_type[cls] = kind
    return kind


def type_name(value: Any) -> str:
    """The name that messages give to the type of ``value``."""
    if isinstance(value, Tensor):
        return value.type()
    cls = type(value)
    if cls.__module__ in ("builtins", "__builtin__", None):
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


# What the dictionaries are called that PyTorch's modules have for each kind.
REGISTRIES = {"parameter": "_parameters", "buffer": "_buffers", "module": "_modules"}


def kinds_of(module: Any, kind: str) -> dict[str, str]:
    """What is registered under which kind.

    Raises:
        AttributeError: before the module's constructor has run, naming the registry of ``kind``.
    """
    try:
        return module._state_["_kinds"]
    except KeyError:
        raise AttributeError(
            f"'{type(module).__name__}' object has no attribute '{REGISTRIES[kind]}'"
        ) from None


def members(module: Any, kind: str) -> list[Any]:
    """The registered values of one kind, in order."""
    kinds, state = kinds_of(module, kind), module._state_
    return [state[name] for name, k in kinds.items() if k == kind]


def count(module: Any, kind: str) -> int:
    """How many values of one kind are registered."""
    return list(kinds_of(module, kind).values()).count(kind)


def member(module: Any, kind: str, name: str) -> Any:
    """The value of one kind that is registered under a name; a ``KeyError`` if there is none."""
    if kinds_of(module, kind).get(name) == kind:
        return module._state_[name]
    raise KeyError(name)


class View(MutableMapping[str, Any]):
    """The registered values of one kind, as a mapping that can be written to."""

    __slots__ = ("_kind", "_module")

    def __new__(cls, module: Any = (), kind: str | None = None) -> Any:
        """The view of a module; of anything else the dictionary that PyTorch's modules have here."""
        return dict(module) if kind is None else super().__new__(cls)

    def __init__(self, module: Any, kind: str) -> None:
        self._module = module._state_
        self._kind = kind

    def __getitem__(self, name: str) -> Any:
        state = self._module
        if state["_kinds"].get(name) == self._kind:
            return state[name]
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        state = self._module
        kinds = state["_kinds"]
        if kinds.get(name) != self._kind:
            kinds.pop(name, None)
            kinds[name] = self._kind
        state[name] = value

    def __delitem__(self, name: str) -> None:
        state = self._module
        if state["_kinds"].get(name) != self._kind:
            raise KeyError(name)
        del state["_kinds"][name]
        del state[name]

    def copy(self) -> dict[str, Any]:
        """An ordinary dict of what the view shows now."""
        state, kind = self._module, self._kind
        return {name: state[name] for name, k in state["_kinds"].items() if k == kind}

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.copy())

    def keys(self) -> KeysView[str]:
        """Names, as they are now."""
        return self.copy().keys()

    def values(self) -> ValuesView[Any]:
        """Values, as they are now."""
        return self.copy().values()

    def items(self) -> ItemsView[str, Any]:
        """Names with their values, as they are now."""
        return self.copy().items()

    def __len__(self) -> int:
        return list(self._module["_kinds"].values()).count(self._kind)

    def __contains__(self, name: object) -> bool:
        return self._module["_kinds"].get(name) == self._kind

    def move_to_end(self, name: str, last: bool = True) -> None:
        """Put one name behind (or before) all others, as ordered dicts can."""
        kinds = self._module["_kinds"]
        if kinds.get(name) != self._kind:
            raise KeyError(name)
        others = {} if last else {name: kinds[name]}
        others.update((k, v) for k, v in kinds.items() if k != name)
        others.setdefault(name, self._kind)
        kinds.clear()
        kinds.update(others)

    def __reduce__(self) -> Any:
        return OrderedDict, (list(self.items()),)

    def __or__(self, other: Any) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[str, Any]:
        return {**other, **self}

    def __repr__(self) -> str:
        return repr(dict(self.items()))


_new = object.__new__


class Registry:
    """Descriptor behind ``_parameters``, ``_buffers`` and ``_modules``."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self
        kinds_of(module, self.kind)
        # Without its constructors: models ask for it in every call.
        view = _new(View)
        view._module, view._kind = module._state_, self.kind
        return view

    def __set__(self, module: Any, mapping: Any) -> None:
        state = module._state_
        kinds = state.setdefault("_kinds", {})
        fresh = dict(mapping)
        for name in [n for n, kind in kinds.items() if kind == self.kind]:
            del kinds[name]
            state.pop(name, None)
        for name, value in fresh.items():
            kinds[name] = self.kind
            state[name] = value
