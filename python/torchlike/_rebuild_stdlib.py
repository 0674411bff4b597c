"""Objects of the standard library in checkpoints: a function a module, which gives the builder of a name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from torchlike._opaque import Opaque, OpaqueClass
from torchlike._rebuild_builders import (
    Builder,
    DictBuilder,
    ListBuilder,
    attributes,
    empty,
    enum,
    need,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SAFE_TYPES: dict[str, Any] = {
    t.__name__: t
    for t in (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset)
}


def _type_of(args: tuple[Any, ...], kwargs: Any) -> Any:
    # How pickle writes type(None) and its like.
    need(not kwargs and len(args) == 1, "arguments for type")
    need(args[0] is None or args[0] is ... or args[0] is NotImplemented, "the type of a value")
    return type(args[0])


def _collections(name: str) -> Any:
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

        return DictBuilder(make, attributes)
    if name == "deque":

        def make_deque(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and len(args) <= 2, "arguments for deque")
            need(not args or isinstance(args[0], list | tuple), "what a deque is made of")
            size = args[1] if len(args) == 2 else None
            need(size is None or type(size) is int, "the length of a deque")
            return collections.deque(*args)

        return ListBuilder(make_deque, attributes)
    if name in ("UserDict", "UserList", "ChainMap"):
        return empty(getattr(collections, name))
    if name == "UserString":
        return plain(collections.UserString, str, least=0, give=attributes)
    return None


def _datetime(name: str) -> Any:
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
        return plain(d.timedelta, number, number, number, least=0)
    if name == "timezone":
        return plain(d.timezone, d.timedelta, str, least=1)
    return None


def _pathlib(name: str) -> Any:
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


def _fractions(name: str) -> Any:
    from fractions import Fraction

    return plain(Fraction, (int, str), int, least=1) if name == "Fraction" else None


def _decimal(name: str) -> Any:
    from decimal import Decimal

    return plain(Decimal, str) if name == "Decimal" else None


def _uuid(name: str) -> Any:
    import uuid

    if name == "SafeUUID":
        return enum(uuid.SafeUUID)
    if name != "UUID":
        return None

    def give(obj: Any, state: Any) -> Any:
        need(isinstance(state, dict) and isinstance(state.get("int"), int), "the state of a UUID")
        need(set(state) <= {"int", "is_safe"}, "the state of a UUID")
        safe = state.get("is_safe", uuid.SafeUUID.unknown)
        return uuid.UUID(int=state["int"], is_safe=uuid.SafeUUID(safe))

    return empty(uuid.UUID, give)


def _ipaddress(name: str) -> Any:
    import ipaddress

    if name in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"):
        return plain(getattr(ipaddress, name), (int, str, tuple))
    return None


def _re(name: str) -> Any:
    import re

    if name == "RegexFlag":
        return enum(re.RegexFlag)
    if name not in ("_compile", "compile"):
        return None

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 2, "arguments for a pattern")
        pattern, flags = args
        need(isinstance(pattern, str | bytes) and len(pattern) <= 1000, "the text of a pattern")
        need(isinstance(flags, int) and not flags & re.DEBUG, "the flags of a pattern")
        return re.compile(pattern, flags)

    return Builder(make)


def _http(name: str) -> Any:
    import http

    return enum(getattr(http, name)) if name in ("HTTPStatus", "HTTPMethod") else None


def _functools(name: str) -> Any:
    import functools

    if name != "partial":
        return None

    # A file can name types, functions of tensors and what is a mere name, and nothing calls them here.
    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 1, "arguments for partial")
        if isinstance(args[0], Opaque):
            return Opaque("functools", "partial", args)
        need(callable(args[0]), "partial of something that is not called")
        return functools.partial(args[0])

    def give(obj: Any, state: Any) -> None:
        if isinstance(obj, Opaque):
            obj.state = state
            return
        need(isinstance(state, tuple) and len(state) == 4, "the state of partial")
        need(callable(state[0]), "partial of something that is not called")
        need(isinstance(state[1], tuple) and isinstance(state[2] or {}, dict), "its arguments")
        obj.__setstate__(state)

    return Builder(make, give)


def _operator(name: str) -> Any:
    import operator

    if name not in ("itemgetter", "attrgetter"):
        return None
    cls = getattr(operator, name)

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and bool(args), f"arguments for {name}")
        return cls(*args)

    return Builder(make)


def _array(name: str) -> Any:
    import array

    if name == "array":

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs and len(args) == 2, "arguments for array")
            need(isinstance(args[0], str) and isinstance(args[1], list | bytes), "an array")
            return array.array(*args)

        return Builder(make, attributes)
    if name != "_array_reconstructor":
        return None
    restore: Any = array._array_reconstructor  # type: ignore[attr-defined]

    def remake(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 4 and args[0] == OpaqueClass("array", "array"), "an array")
        need(type(args[1]) is str and type(args[2]) is int and type(args[3]) is bytes, "an array")
        return restore(array.array, *args[1:])

    return Builder(remake)


def _random(name: str) -> Any:
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


def _member(args: tuple[Any, ...], kwargs: Any) -> Any:
    """A function of `torch`, or a method of tensors or of a module: all are pickled as attributes."""
    from torchlike import _C, nn

    need(not kwargs and len(args) == 2 and type(args[1]) is str, "a look-up of a function")
    owner, name = args
    if isinstance(owner, Opaque):
        return Opaque("builtins", "getattr", args)
    found = None
    if owner is _C._VariableFunctionsClass:
        found = vars(owner).get(name)
    elif owner is _C.TensorBase or owner is _C.Tensor:
        found = getattr(_C.Tensor, name, None)
    elif isinstance(owner, nn.Module) and callable(getattr(type(owner), name, None)):
        found = getattr(owner, name)
    need(
        callable(found) and not name.startswith("_"), "an attribute that is no function of tensors"
    )
    return found


def _builtins(name: str) -> Any:
    if name == "getattr":
        return Builder(_member)
    if name == "range":
        return plain(range, int, int, int, least=1)
    if name == "slice":
        return plain(slice, object, object, object)
    if name == "type":
        return Builder(_type_of)
    if name == "object":
        return empty(object, None)
    import builtins

    cls = getattr(builtins, name, None)
    if isinstance(cls, type) and issubclass(cls, Exception):

        def make(args: tuple[Any, ...], kwargs: Any) -> Any:
            need(not kwargs, "keyword arguments for an exception")
            return cls(*args)

        return Builder(make, attributes)
    return None


def _argparse(name: str) -> Any:
    import argparse

    return empty(argparse.Namespace) if name == "Namespace" else None


def _types(name: str) -> Any:
    import types

    return empty(types.SimpleNamespace) if name == "SimpleNamespace" else None


STDLIB: dict[str, Callable[[str], Any]] = {
    "collections": _collections,
    "datetime": _datetime,
    "_pydatetime": _datetime,
    "pathlib": _pathlib,
    "pathlib._local": _pathlib,
    "pathlib._abc": _pathlib,
    "fractions": _fractions,
    "decimal": _decimal,
    "_decimal": _decimal,
    "_pydecimal": _decimal,
    "uuid": _uuid,
    "ipaddress": _ipaddress,
    "re": _re,
    "http": _http,
    "functools": _functools,
    "operator": _operator,
    "_operator": _operator,
    "array": _array,
    "random": _random,
    "builtins": _builtins,
    "argparse": _argparse,
    "types": _types,
}
