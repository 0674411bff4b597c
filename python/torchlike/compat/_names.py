"""Names of modules, classes and functions of ours, as `torchlike` or as `torch`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torchlike import _C, _naming

#: Classes whose reprs the core writes with its own name.
_SHOWN = (_C.dtype, _C.layout, _C.memory_format, _C.UntypedStorage)
_reprs: dict[type, Any] = {}


def _renamed(name: Any) -> str | None:
    """The name under which a module of ours goes now; None for other people's."""
    if not isinstance(name, str):
        return None
    own = _naming.own(name)
    if own != _naming.OWN and not own.startswith(_naming.OWN + "."):
        return None
    return _naming.shown + own[len(_naming.OWN) :]


def _retitle(value: Any, depth: int = 0) -> None:
    """Gives a class (and the classes in it) or a function the module's name of now."""
    kind = type(value)  # `isinstance` would run modules that wait for that
    if issubclass(kind, type):
        module = value.__dict__.get("__module__")
    elif callable(value) and kind.__module__ in ("builtins", "functools"):
        module = getattr(value, "__module__", None)
    else:
        return
    name = _renamed(module)
    if name is None:
        return
    if name != module:
        try:
            value.__module__ = name
        except (AttributeError, TypeError):  # some objects cannot be told
            return
    if issubclass(kind, type) and depth < 3:
        for inner in list(value.__dict__.values()):
            if issubclass(type(inner), type) and inner is not value:
                _retitle(inner, depth + 1)


def retitle(module: ModuleType) -> None:
    """Renames what has been defined in a module that ran."""
    namespace = object.__getattribute__(module, "__dict__")
    name = _renamed(namespace.get("__name__"))
    if name is None:
        return
    namespace["__name__"] = name
    for value in list(namespace.values()):
        _retitle(value)


def unloaded(module: Any) -> bool:
    """True for modules that run when they are first asked for something."""
    return type(module).__name__ == "_LazyModule"


def own_modules() -> dict[str, Any]:
    """Our modules by their own names."""
    return {
        name: module
        for name, module in sys.modules.items()
        if name == _naming.OWN or name.startswith(_naming.OWN + ".")
    }


def _show(self: Any) -> str:
    text: str = _reprs[type(self)](self)
    return text.replace("torchlike.", "torch.", 1)


def rename(shown: str) -> None:
    """Lets the library go by `torch`, with an alias of each module, or by `torchlike` again, without."""
    from torchlike.compat import _finder

    _naming.shown = shown
    as_torch = shown == "torch"
    for name, module in own_modules().items():
        alias = "torch" + name[len(_naming.OWN) :]
        if as_torch:
            sys.modules[alias] = module
            if unloaded(module):
                _finder.watch(object.__getattribute__(module, "__spec__"))
        elif sys.modules.get(alias) is module:
            del sys.modules[alias]
        if not unloaded(module):
            retitle(module)
    for cls in _SHOWN:
        if as_torch:
            _reprs[cls] = cls.__repr__
            cls.__repr__ = _show  # type: ignore[method-assign]
        else:
            cls.__repr__ = _reprs.pop(cls)  # type: ignore[method-assign]
