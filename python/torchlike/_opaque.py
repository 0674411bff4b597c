"""Objects of classes that torchlike does not know, kept as the plain data they were saved with."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["Opaque"]


class Opaque:
    """An object from a checkpoint whose class was neither imported nor called.

    `module` and `name` say which class it is, `args` and `kwargs` what it was made with, `state` what its
    attributes are (or whatever else it was given on loading), `items` and `pairs` what it holds as a list or
    dictionary. Attributes of a dictionary state can be read as attributes of the object.
    """

    __slots__ = ("args", "items", "kwargs", "module", "name", "new", "pairs", "state")

    def __init__(
        self,
        module: str,
        name: str,
        args: tuple[Any, ...],
        kwargs: Any = None,
        new: bool = False,
    ) -> None:
        self.module = module
        self.name = name
        self.args = args
        self.kwargs: dict[str, Any] = kwargs or {}
        self.new = new  # made by `__new__` and not by a call
        self.state: Any = None
        self.items: list[Any] = []
        self.pairs: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        state = object.__getattribute__(self, "state")
        if isinstance(state, dict) and name in state:
            return state[name]
        raise AttributeError(
            f"'{self.module}.{self.name}' (an object kept as plain data) has no attribute '{name}'"
        )

    def __getitem__(self, key: Any) -> Any:
        return self.pairs[key] if key in self.pairs else self.items[key]

    def __repr__(self) -> str:
        return f"<Opaque {self.module}.{self.name}>"


class OpaqueClass:
    """The name of a class or function that torchlike does not know, used as a value."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(f"{self!r} came from a checkpoint as a name, and is not called")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueClass) and (self.module, self.name) == (
            other.module,
            other.name,
        )

    def __hash__(self) -> int:
        return hash((self.module, self.name))

    def __repr__(self) -> str:
        return f"<OpaqueClass {self.module}.{self.name}>"
