"""Objects that checkpoints hold besides tensors, made from plain data without importing or calling what a file names.

The tables below say which names have a meaning here. Each maps to a function of ours that checks its arguments and
builds the object; a name that is in no table is refused, or kept as an `Opaque`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchlike._opaque import Opaque, OpaqueClass

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TEXT = 10_000


class Refused(Exception):
    """What a file asks for has no meaning here."""


def need(condition: bool, what: str) -> None:
    """Refuse arguments that the real class would not have been saved with."""
    if not condition:
        raise Refused(what)


class Builder:
    """How objects of one name are made (`make`) and then filled (`fill`)."""

    __slots__ = ("give", "make")

    def __init__(
        self, make: Callable[..., Any], give: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self.make = make
        self.give = give

    def start(self, args: tuple[Any, ...], kwargs: Any, new: bool) -> Any:
        """Make an object, by a call or (`new`) as `__new__` does."""
        return self.make(args, kwargs)

    def fill(self, obj: Any, items: list[Any], pairs: list[Any], states: list[Any]) -> Any:
        """Add what the file adds to an object after making it."""
        need(not items and not pairs, "items are added to an object that takes none")
        need(not states or self.give is not None, "an object that takes no state is given one")
        for state in states:
            done = self.give(obj, state) if self.give is not None else None
            obj = obj if done is None else done
        return obj


class ListBuilder(Builder):
    """The same for what takes items, as a list does."""

    __slots__ = ()

    def fill(self, obj: Any, items: list[Any], pairs: list[Any], states: list[Any]) -> Any:
        for item in items:
            obj.append(item)
        return super().fill(obj, [], pairs, states)


class DictBuilder(Builder):
    """The same for what takes keys and values, as a dictionary does."""

    __slots__ = ()

    def fill(self, obj: Any, items: list[Any], pairs: list[Any], states: list[Any]) -> Any:
        for key, value in pairs:
            obj[key] = value
        return super().fill(obj, items, [], states)


class OpaqueBuilder:
    """Keeps everything that the file says of an object."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def start(self, args: tuple[Any, ...], kwargs: Any, new: bool) -> Opaque:
        """An object with nothing but its arguments."""
        return Opaque(self.module, self.name, args, kwargs, new)

    def fill(self, obj: Any, items: list[Any], pairs: list[Any], states: list[Any]) -> Any:
        """Add items, pairs and state as they are."""
        obj.items.extend(items)
        obj.pairs.update(pairs)
        if states:
            obj.state = states[0] if len(states) == 1 else states
        return obj


class UserBuilder:
    """Calls a class or function that the user has registered."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target

    def start(self, args: tuple[Any, ...], kwargs: Any, new: bool) -> Any:
        """Call it, as an ordinary unpickler would."""
        if new:
            return self.target.__new__(self.target, *args, **(kwargs or {}))
        return self.target(*args, **(kwargs or {}))

    def fill(self, obj: Any, items: list[Any], pairs: list[Any], states: list[Any]) -> Any:
        """Append, set and restore, as an ordinary unpickler would."""
        for item in items:
            obj.append(item)
        for key, value in pairs:
            obj[key] = value
        for state in states:
            restore = getattr(obj, "__setstate__", None)
            if restore is not None:
                restore(state)
            else:
                _attributes(obj, state)
        return obj


def _attributes(obj: Any, state: Any) -> None:
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    need(state is None or isinstance(state, dict), "a state that is no dictionary")
    need(slots is None or isinstance(slots, dict), "slots that are no dictionary")
    for values in (state, slots):
        need(all(type(k) is str for k in values or ()), "names of attributes that are no strings")
    if state:
        obj.__dict__.update(state)
    for key, value in (slots or {}).items():
        object.__setattr__(obj, key, value)


def _plain(
    cls: type,
    *checks: type | tuple[type, ...],
    least: int | None = None,
    give: Callable[[Any, Any], Any] | None = None,
) -> Builder:
    """A class that is called with arguments of these types, and no others."""

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs, "keyword arguments")
        low = len(checks) if least is None else least
        need(low <= len(args) <= len(checks), f"{len(args)} arguments for {cls.__name__}")
        for value, check in zip(args, checks, strict=False):
            need(isinstance(value, check), f"an argument of {cls.__name__} of type {type(value)}")
            need(not isinstance(value, str) or len(value) <= MAX_TEXT, "a text that is too long")
        return cls(*args)

    return Builder(make, give)


def _empty(cls: Any, give: Callable[[Any, Any], Any] | None = _attributes) -> Builder:
    """A class whose objects are made without arguments and given their attributes."""

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not args and not kwargs, f"arguments for {cls.__name__}")
        return cls.__new__(cls)

    return Builder(make, give)


SAFE_TYPES: dict[str, Any] = {
    t.__name__: t
    for t in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset)
}


def _builtin_values(name: str) -> Any:
    if name in SAFE_TYPES:
        return SAFE_TYPES[name]
    others = {
        "Ellipsis": ...,
        "NotImplemented": NotImplemented,
        "object": object,
        "range": range,
        "slice": slice,
    }
    return others.get(name, Refused)


def _type_of(args: tuple[Any, ...], kwargs: Any) -> Any:
    # How pickle writes type(None) and its like.
    need(not kwargs and len(args) == 1, "arguments for type")
    need(args[0] is None or args[0] is ... or args[0] is NotImplemented, "the type of a value")
    return type(args[0])


# The standard library.


def _stdlib_collections(name: str) -> Any:
    import collections

    if name == "defaultdict":

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and len(args) <= 1, "arguments for defaultdict")
            factory = args[0] if args else None
            known = (*SAFE_TYPES.values(), collections.OrderedDict, collections.Counter)
            inner = type(factory).__name__ == "partial" and type(factory).__module__ == "functools"
            named = isinstance(factory, OpaqueClass)
            need(
                factory is None or named or factory in known or inner, "an unknown default_factory"
            )
            return collections.defaultdict(factory)

        return DictBuilder(make, _attributes)
    if name == "deque":

        def make_deque(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and len(args) <= 2, "arguments for deque")
            need(not args or isinstance(args[0], list | tuple), "what a deque is made of")
            size = args[1] if len(args) == 2 else None
            need(size is None or type(size) is int, "the length of a deque")
            return collections.deque(*args)

        return ListBuilder(make_deque, _attributes)
    if name in ("UserDict", "UserList", "ChainMap"):
        return _empty(getattr(collections, name))
    if name == "UserString":
        return _plain(collections.UserString, str, least=0, give=_attributes)
    return None


def _stdlib_datetime(name: str) -> Any:
    import datetime as d

    number = int
    zone = (d.tzinfo, type(None))
    packed = {"date": (d.date, 4), "time": (d.time, 6), "datetime": (d.datetime, 10)}
    if name in packed:
        cls, size = packed[name]

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and bool(args), f"arguments for {name}")
            if isinstance(args[0], bytes | str):
                need(len(args[0]) == size and len(args) <= 2, f"the bytes of a {name}")
                need(len(args) == 1 or isinstance(args[1], zone), "a time zone")
            else:
                kinds: tuple[Any, ...] = (*([number] * 7), zone)
                need(len(args) <= 8, f"arguments for {name}")
                need(all(isinstance(a, k) for a, k in zip(args, kinds, strict=False)), "a number")
            return cls(*args)

        return Builder(make)
    if name == "timedelta":
        return _plain(d.timedelta, number, number, number, least=0)
    if name == "timezone":
        return _plain(d.timezone, d.timedelta, str, least=1)
    return None


def _stdlib_pathlib(name: str) -> Any:
    import pathlib

    pure = {"PurePath", "PurePosixPath", "PureWindowsPath"}
    foreign = "WindowsPath" if sys.platform != "win32" else "PosixPath"
    if name not in pure | {"Path", "PosixPath", "WindowsPath"}:
        return None
    cls = getattr(pathlib, "Pure" + name if name == foreign else name)

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and all(isinstance(a, str) for a in args), "the parts of a path")
        return cls(*args)

    return Builder(make)


def _stdlib_fractions(name: str) -> Any:
    from fractions import Fraction

    return _plain(Fraction, (int, str), int, least=1) if name == "Fraction" else None


def _stdlib_decimal(name: str) -> Any:
    from decimal import Decimal

    return _plain(Decimal, str) if name == "Decimal" else None


def _stdlib_uuid(name: str) -> Any:
    import uuid

    if name == "SafeUUID":
        return _enum(uuid.SafeUUID)
    if name != "UUID":
        return None

    def give(obj: Any, state: Any) -> Any:
        need(isinstance(state, dict) and isinstance(state.get("int"), int), "the state of a UUID")
        need(set(state) <= {"int", "is_safe"}, "the state of a UUID")
        safe = state.get("is_safe", uuid.SafeUUID.unknown)
        return uuid.UUID(int=state["int"], is_safe=uuid.SafeUUID(safe))

    return _empty(uuid.UUID, give)


def _stdlib_ipaddress(name: str) -> Any:
    import ipaddress

    if name in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"):
        return _plain(getattr(ipaddress, name), (int, str, tuple))
    return None


def _enum(cls: Any) -> Builder:
    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 1 and isinstance(args[0], int | str | None), "a member")
        return cls(args[0])

    return Builder(make)


def _stdlib_re(name: str) -> Any:
    import re

    if name == "RegexFlag":
        return _enum(re.RegexFlag)
    if name not in ("_compile", "compile"):
        return None

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 2, "arguments for a pattern")
        pattern, flags = args
        need(isinstance(pattern, str | bytes) and len(pattern) <= 1000, "the text of a pattern")
        need(isinstance(flags, int) and not flags & re.DEBUG, "the flags of a pattern")
        return re.compile(pattern, flags)

    return Builder(make)


def _stdlib_http(name: str) -> Any:
    import http

    return _enum(getattr(http, name)) if name in ("HTTPStatus", "HTTPMethod") else None


def _stdlib_functools(name: str) -> Any:
    import functools

    if name != "partial":
        return None

    def known(func: Any) -> None:
        need(func in SAFE_TYPES.values(), "partial of something that is no plain type")

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 1, "arguments for partial")
        known(args[0])
        return functools.partial(args[0])

    def give(obj: Any, state: Any) -> None:
        need(isinstance(state, tuple) and len(state) == 4, "the state of partial")
        known(state[0])
        need(isinstance(state[1], tuple) and isinstance(state[2] or {}, dict), "its arguments")
        obj.__setstate__(state)

    return Builder(make, give)


def _stdlib_operator(name: str) -> Any:
    import operator

    if name not in ("itemgetter", "attrgetter"):
        return None
    cls = getattr(operator, name)

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and bool(args), f"arguments for {name}")
        return cls(*args)

    return Builder(make)


def _stdlib_array(name: str) -> Any:
    import array

    if name == "array":

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and len(args) == 2, "arguments for array")
            need(isinstance(args[0], str) and isinstance(args[1], list | bytes), "an array")
            return array.array(*args)

        return Builder(make, _attributes)
    if name != "_array_reconstructor":
        return None
    restore: Any = array._array_reconstructor  # type: ignore[attr-defined]

    def remake(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 4 and args[0] == OpaqueClass("array", "array"), "an array")
        need(type(args[1]) is str and type(args[2]) is int and type(args[3]) is bytes, "an array")
        return restore(array.array, *args[1:])

    return Builder(remake)


def _stdlib_random(name: str) -> Any:
    import random

    if name != "Random":
        return None

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not args and not kwargs, "arguments for Random")
        return random.Random()

    def give(obj: Any, state: Any) -> None:
        need(isinstance(state, tuple) and len(state) == 3 and type(state[1]) is tuple, "its state")
        obj.setstate(state)

    return Builder(make, give)


def _stdlib_builtins(name: str) -> Any:
    if name == "range":
        return _plain(range, int, int, int, least=1)
    if name == "slice":
        return _plain(slice, object, object, object)
    if name == "type":
        return Builder(_type_of)
    if name == "object":
        return _empty(object, None)
    import builtins

    cls = getattr(builtins, name, None)
    if isinstance(cls, type) and issubclass(cls, Exception):

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs, "keyword arguments for an exception")
            return cls(*args)

        return Builder(make, _attributes)
    return None


def _stdlib_argparse(name: str) -> Any:
    import argparse

    return _empty(argparse.Namespace) if name == "Namespace" else None


def _stdlib_types(name: str) -> Any:
    import types

    return _empty(types.SimpleNamespace) if name == "SimpleNamespace" else None


STDLIB: dict[str, Callable[[str], Any]] = {
    "collections": _stdlib_collections,
    "datetime": _stdlib_datetime,
    "_pydatetime": _stdlib_datetime,
    "pathlib": _stdlib_pathlib,
    "pathlib._local": _stdlib_pathlib,
    "pathlib._abc": _stdlib_pathlib,
    "fractions": _stdlib_fractions,
    "decimal": _stdlib_decimal,
    "_decimal": _stdlib_decimal,
    "_pydecimal": _stdlib_decimal,
    "uuid": _stdlib_uuid,
    "ipaddress": _stdlib_ipaddress,
    "re": _stdlib_re,
    "http": _stdlib_http,
    "functools": _stdlib_functools,
    "operator": _stdlib_operator,
    "_operator": _stdlib_operator,
    "array": _stdlib_array,
    "random": _stdlib_random,
    "builtins": _stdlib_builtins,
    "argparse": _stdlib_argparse,
    "types": _stdlib_types,
}


# Looking names up.

# What has no meaning here although it is Python's (of any version), NumPy's or PyTorch's is refused by name, and so
# are the libraries whose objects stand for code.
OWN = frozenset(
    (
        *("torch", "torchlike", "numpy", "functorch", "caffe2", "distutils", "nt", "posix"),
        *("__builtin__", "exceptions", "copy_reg", "commands", "UserDict"),
        *("cloudpickle", "dill", "joblib", "pip", "setuptools", "pkg_resources"),
    )
)


# PyTorch's packages whose classes hold data and nothing that runs by itself: optimizers, schedulers, scalers,
# distributions, datasets, observers, and layers that torchlike has not.
DATA = (
    "torch.optim",
    "torch.amp",
    "torch.cuda.amp",
    "torch.distributions",
    "torch.utils.data",
    "torch.ao",
    "torch.nn",
)


def own(module: str, name: str) -> Any:
    """The builder of a name that torchlike itself knows, or None."""
    if module in STDLIB:
        return STDLIB[module](name)
    root = module.partition(".")[0]
    if root == "numpy":
        from torchlike import _rebuild_numpy

        return _rebuild_numpy.builder(module, name)
    if root == "torch":
        from torchlike import _rebuild_torch

        return _rebuild_torch.builder(module, name)
    return None


def keeps(module: str) -> bool:
    """True for modules whose objects are kept as data: other people's and some of PyTorch's."""
    if any(module == package or module.startswith(package + ".") for package in DATA):
        return True
    root = module.partition(".")[0]
    return root not in sys.stdlib_module_names and root not in OWN


def builder(module: str, name: str, allowed: dict[str, Any], full: bool) -> Any:
    """How objects of this name are made, or None where they are refused."""
    found = own(module, name)
    if found is not None:
        return found
    if f"{module}.{name}" in allowed:
        return UserBuilder(allowed[f"{module}.{name}"])
    # Classes are capitalised; what a function would return nobody can know without calling it.
    if full and keeps(module) and name.rpartition(".")[2].lstrip("_")[:1].isupper():
        return OpaqueBuilder(module, name)
    return None


def value(module: str, name: str, allowed: dict[str, Any], full: bool) -> Any:
    """The value that a name stands for where nothing calls it, or `Refused`."""
    if f"{module}.{name}" in allowed:
        return allowed[f"{module}.{name}"]
    root = module.partition(".")[0]
    found: Any = Refused
    if module == "builtins":
        found = _builtin_values(name)
    elif module in ("math", "cmath"):
        import importlib

        found = getattr(importlib.import_module(module), name, Refused)
    elif module == "collections" and name in ("OrderedDict", "Counter"):
        import collections

        found = getattr(collections, name)
    elif root == "torch":
        from torchlike import _rebuild_torch

        found = _rebuild_torch.value(module, name)
    elif root == "numpy":
        from torchlike import _rebuild_numpy

        found = _rebuild_numpy.value(module, name)
    elif (module, name) == ("array", "array"):
        found = OpaqueClass(module, name)
    return OpaqueClass(module, name) if found is Refused and full and keeps(module) else found
