"""Objects that PyTorch makes in C++ and shows to Python: the packed parameters of quantised layers.

They are pickled as PyTorch pickles them: an object of the class `ScriptObject` whose state says what it holds.
"""

from __future__ import annotations

from typing import Any

from torchlike import _naming

# What is held, and the methods that are shown of it, by the name after `__torch__.torch.classes.`.
_KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {}
_PREFIX = "__torch__.torch.classes."


def registered(name: str, methods: str) -> Any:
    """Makes a class one of those that script objects hold, with the methods that these show, as a decorator."""

    def taken(cls: type) -> type:
        _KINDS[name] = cls, tuple(methods.split())
        return cls

    return taken


def _found(name: str) -> tuple[Any, tuple[str, ...]]:
    """The class of this name, `quantized.LinearPackedParamsBase`, and its methods.

    Raises:
        RuntimeError: if there is none.
    """
    from torchlike._ops.quantized import packed as packed

    if name not in _KINDS:
        raise RuntimeError(f"Class {name} not registered!")
    return _KINDS[name]


class ScriptObject:
    """An object of a registered class, whose methods it has."""

    _held: Any = None
    _kind = ""

    def _type(self) -> str:
        """The qualified name of its class."""
        return _PREFIX + self._kind

    def _method_names(self) -> list[str]:
        """The names of its methods."""
        return ["__getstate__", "__setstate__", *_found(self._kind)[1]]

    def _has_method(self, name: str) -> bool:
        """Whether it has a method of this name."""
        return name in self._method_names()

    def _properties(self) -> list[Any]:
        """Its properties: none."""
        return []

    def __getattr__(self, name: str) -> Any:
        if self._held is not None and name in _found(self._kind)[1]:
            return getattr(self._held, name)
        raise AttributeError(f"'{self._type()}' object has no attribute or method '{name}'")

    def __getstate__(self) -> Any:
        return self._held.state(), self._type()

    def __setstate__(self, state: Any) -> None:
        inner, qualified = state
        name = str(qualified).removeprefix(_PREFIX)
        cls, _ = _found(name)
        self._kind, self._held = name, cls.of_state(inner)

    def __deepcopy__(self, memo: Any) -> ScriptObject:
        made = ScriptObject()
        made.__setstate__(self.__getstate__())
        memo[id(self)] = made
        return made

    def __str__(self) -> str:
        return f"ScriptObject <{self._type()}>"

    def __repr__(self) -> str:
        return f"<{_naming.shown}.ScriptObject object at {id(self):#x}>"


ScriptObject.__module__ = _naming.OWN


def holding(name: str, held: Any) -> ScriptObject:
    """A script object of a registered class."""
    made = ScriptObject()
    made._kind, made._held = name, held
    return made


def maker(name: str) -> Any:
    """What makes objects of a class, which has to have its state; None for a name that is not registered."""
    try:
        cls, _ = _found(name)
    except RuntimeError:
        return None

    def make(*state: Any) -> ScriptObject:
        return holding(name, cls.of_state(state))

    make.__name__ = make.__qualname__ = name.rpartition(".")[2]
    return make
