"""Functions made of generated source, which tracebacks and `inspect` can show."""

from __future__ import annotations

import itertools
import linecache
import weakref
from typing import TYPE_CHECKING, Any

from torchlike.fx._names import _custom_builtins

if TYPE_CHECKING:
    from collections.abc import Callable

_ids = itertools.count()


def _forget(key: str) -> None:
    linecache.cache.pop(key, None)


def _register(src: str, co_fields: dict[str, Any] | None) -> str:
    """A file name under which tracebacks find the source."""
    key = f"<eval_with_key>.{next(_ids)}"
    if co_fields and "co_filename" in co_fields:
        if "co_firstlineno" not in co_fields or "co_name" not in co_fields:
            key = co_fields["co_filename"]
        else:
            key += (
                f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} "
                f"in {co_fields['co_name']}"
            )
    linecache.cache[key] = (len(src), None, src.splitlines(keepends=True), key)
    return key


def _method_from_src(
    method_name: str,
    src: str,
    globals: dict[str, Any],
    co_fields: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The function of this name that the source defines."""
    names = globals.copy()
    key = _register(src, co_fields)
    exec(compile(src, key, "exec", dont_inherit=True), names)
    made = names.pop(method_name)
    weakref.finalize(made, _forget, key).atexit = False
    return made


def _forward_from_src(
    src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The function `forward` that the source defines."""
    return _method_from_src("forward", src, globals, co_fields)


class LateForward:
    """A method that is compiled when it is first asked for; most graphs are changed again before."""

    __slots__ = ("co_fields", "globals", "src")

    def __init__(self, src: str, globals: dict[str, Any], co_fields: dict[str, Any]) -> None:
        self.src, self.globals, self.co_fields = src, globals, dict(co_fields)

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        owner = type(obj) if cls is None else cls
        made = _forward_from_src(self.src, self.globals, self.co_fields)
        for kind in owner.__mro__:
            if vars(kind).get("forward") is self:
                kind.forward = made  # type: ignore[attr-defined]
        return made if obj is None else made.__get__(obj, owner)


def _format_import_statement(name: str, obj: Any) -> str:
    import pickle

    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    module = getattr(obj, "__module__", None)
    path = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if module is None or path is None or "<" in path:
        raise pickle.PicklingError(f"Can't pickle {obj!r}: it's not found by a name of its module")
    first, dot, rest = path.partition(".")
    if not dot:
        return f"from {module} import {path} as {name}"
    return f"from {module} import {first} as {name}; {name} = {name}.{rest}"


def _format_import_block(globals: dict[str, Any]) -> str:
    """The statements that bring these names back in another process."""
    return "\n".join(sorted({_format_import_statement(n, o) for n, o in globals.items()}))
