"""What `module.__dict__` shows: PyTorch's layout of a module, over the attributes as they are kept here.

PyTorch keeps registered values in dictionaries of their own, and hooks in eleven more. Here they are ordinary
attributes, and hooks are made when there are any; the dictionary that has them is `module._state_`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torchlike.nn._hooks import CALL_TABLES, STATE_TABLES
from torchlike.nn._registry import REGISTRIES, View

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLES = (*CALL_TABLES, *STATE_TABLES)
_DESCRIBED = frozenset((*REGISTRIES.values(), *_TABLES))
_OWN = frozenset(("_kinds", "_hooks", "_state_hooks"))


def layout(module: Any, registry: Any = View) -> dict[str, Any]:
    """A module's attributes as PyTorch has them, with `registry(module, kind)` for each kind of registered values."""
    state = module._state_
    if "_kinds" not in state:
        return dict(state)
    own = {k: v for k, v in state.items() if k not in _OWN and k not in state["_kinds"]}
    hooks = {**(state["_hooks"] or {}), **(state["_state_hooks"] or {})}
    shown: dict[str, Any] = {"training": own.pop("training", True)}
    shown["_parameters"] = registry(module, "parameter")
    shown["_buffers"] = registry(module, "buffer")
    shown["_non_persistent_buffers_set"] = own.pop("_non_persistent_buffers_set", set())
    for name in _TABLES:
        shown[name] = hooks.get(name)
        if shown[name] is None:
            shown[name] = OrderedDict()
        if name == "_backward_hooks":
            shown["_is_full_backward_hook"] = own.pop("_is_full_backward_hook", None)
    shown["_modules"] = registry(module, "module")
    return {**shown, **own}


def pickled(module: Any) -> dict[str, Any]:
    """A module's attributes as PyTorch's pickles of it have them."""
    return layout(module, lambda m, kind: dict(View(m, kind)))


class Shown(dict[str, Any]):
    """A module's `__dict__`: how it was when it was asked for, but for single names, which are looked up.

    What is written here is written to the module.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(layout(module))
        self._module = module

    def __contains__(self, name: object) -> bool:
        state = self._module._state_
        if name in _DESCRIBED or name == "_is_full_backward_hook":
            return "_kinds" in state
        return name in state and name not in _OWN and name not in state.get("_kinds", ())

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return getattr(self._module, name) if name in _DESCRIBED else self._module._state_.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, if there is one."""
        try:
            return self[name]
        except KeyError:
            return default

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name in _DESCRIBED:
            object.__setattr__(self._module, name, value)
        else:
            self._module._state_[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        super().pop(name, None)
        if name in _DESCRIBED:
            object.__setattr__(self._module, name, OrderedDict())
        else:
            del self._module._state_[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of a name, which is given one if it has none."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Takes a name away, and gives its value."""
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Takes the last name away."""
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Takes all names away: the module is as one that was not initialised."""
        super().clear()
        self._module._state_.clear()

    def update(self, *others: Any, **more: Any) -> None:
        """Takes values over from others."""
        given: dict[str, Any] = dict(*others, **more)
        replace(self._module, given, keep=True)
        super().update(given)

    def __ior__(self, other: Any) -> Shown:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """A dictionary of its own."""
        return dict(self)

    def __reduce__(self) -> Any:
        return OrderedDict, (list(self.items()),)


def replace(module: Any, given: Mapping[str, Any], keep: bool = False) -> None:
    """Gives a module attributes in PyTorch's layout, or in the one kept here, beside those it has or in their place."""
    given = dict(given)  # which may show the module itself
    if not keep:
        module._state_ = {}
    state = module._state_
    if not _DESCRIBED.isdisjoint(given):
        state.setdefault("_kinds", {})
        state.setdefault("_non_persistent_buffers_set", set())
        for home in ("_hooks", "_state_hooks"):
            state.setdefault(home, None)
        state.setdefault("training", True)
    state.update((k, v) for k, v in given.items() if k not in _DESCRIBED)
    for kind, name in REGISTRIES.items():
        for key, value in (given.get(name) or {}).items():
            state["_kinds"][key] = kind
            state[key] = value
    for name in _TABLES:
        if given.get(name):
            setattr(module, name, given[name])
