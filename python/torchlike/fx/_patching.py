"""Functions and methods that are replaced while a program is traced."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from torchlike.fx.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []
_ABSENT: Any = object()
CURRENT_PATCHER: _Patcher | None = None


def _find_proxy(*objects: Any) -> Proxy | None:
    """A stand-in among these objects and what they hold."""
    for a in objects:
        if isinstance(a, Proxy):
            return a
        if isinstance(a, list | tuple):
            found = _find_proxy(*a)
        elif isinstance(a, dict):
            found = _find_proxy(*a.values())
        elif isinstance(a, slice):
            found = _find_proxy(a.start, a.stop, a.step)
        else:
            continue
        if found is not None:
            return found
    return None


def _create_wrapped_func(orig_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that becomes a node if it is called with a stand-in."""

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return wrapped


def _create_wrapped_method(cls: type, name: str) -> Callable[..., Any]:
    """A method that becomes a node if it is called with a stand-in."""
    orig_fn = getattr(cls, name)

    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return orig_fn(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


class _Patch:
    """One replaced name, of a module's globals or of a class."""

    __slots__ = ("name", "new", "old", "place")

    def __init__(self, place: Any, name: str, new: Any) -> None:
        self.place, self.name, self.new = place, name, new
        own = place if isinstance(place, dict) else vars(place)
        self.old = own.get(name, _ABSENT)

    def apply(self) -> None:
        """Puts the new object under the name."""
        self._put(self.new)

    def revert(self) -> None:
        """Puts back what was there."""
        self._put(self.old)

    def _put(self, value: Any) -> None:
        if isinstance(self.place, dict):
            if value is _ABSENT:
                self.place.pop(self.name, None)
            else:
                self.place[self.name] = value
        elif value is _ABSENT:
            delattr(self.place, self.name)
        else:
            setattr(self.place, self.name, value)


class _Patcher:
    """What is replaced while one program is traced."""

    def __init__(self) -> None:
        self.patches: list[_Patch] = []
        self.visited: set[int] = set()

    def patch(
        self, frame_dict: dict[str, Any], name: str, new_fn: Any, deduplicate: bool = True
    ) -> None:
        """Replaces a name of a module's globals."""
        self._patch(frame_dict, name, new_fn, deduplicate)

    def patch_method(self, cls: type, name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Replaces a method of a class."""
        self._patch(cls, name, new_fn, deduplicate)

    def _patch(self, place: Any, name: str, new: Any, deduplicate: bool) -> None:
        new._fx_already_patched = deduplicate
        own = place if isinstance(place, dict) else vars(place)
        if deduplicate and getattr(own.get(name), "_fx_already_patched", False):
            return
        made = _Patch(place, name, new)
        made.apply()
        self.patches.append(made)

    def visit_once(self, thing: Any) -> bool:
        """True the first time that this object is asked about."""
        if id(thing) in self.visited:
            return False
        self.visited.add(id(thing))
        return True

    def revert_all_patches(self) -> list[_Patch]:
        """Puts everything back, for a while."""
        for p in reversed(self.patches):
            p.revert()
        return self.patches

    def reapply_all_patches(self) -> list[_Patch]:
        """Replaces everything again."""
        for p in self.patches:
            p.apply()
        return self.patches

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.revert_all_patches()
        self.patches.clear()
        self.visited.clear()


@contextlib.contextmanager
def _new_patcher() -> Iterator[_Patcher]:
    global CURRENT_PATCHER
    before, CURRENT_PATCHER = CURRENT_PATCHER, _Patcher()
    mine = CURRENT_PATCHER
    try:
        yield mine
    finally:
        mine.__exit__(None, None, None)
        CURRENT_PATCHER = before


@contextlib.contextmanager
def _maybe_revert_all_patches() -> Iterator[None]:
    patcher = CURRENT_PATCHER
    if patcher is None:
        yield
        return
    patcher.revert_all_patches()
    try:
        yield
    finally:
        patcher.reapply_all_patches()


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Replaces what `wrap` was called for."""
    for (_, name), frame_dict in list(_wrapped_fns_to_patch.items()):
        orig_fn = frame_dict[name] if name in frame_dict else getattr(builtins, name)
        patcher.patch(frame_dict, name, _create_wrapped_func(orig_fn))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _create_wrapped_method(cls, name))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Replaces functions of these identities in a module's globals."""
    if patcher.visit_once(frame_dict):
        hits = [
            (name, value)
            for name, value in frame_dict.items()
            if id(value) in function_ids and not name.startswith("_") and callable(value)
        ]
        for name, value in hits:
            patcher.patch(frame_dict, name, _create_wrapped_func(value))


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Makes calls of a global function nodes, instead of tracing what it does.

    Called at the top of a module, with the function or the name of one, or as a decorator.

    Raises:
        RuntimeError: if it is neither.
        NotImplementedError: if it is not called at the top of a module.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    caller = frame.f_back
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[(id(caller.f_globals), name)] = caller.f_globals
    return fn_or_name


# generated code calls it by the name that PyTorch gives it
wrap.__module__ = __name__.replace("_patching", "_symbolic_trace")
