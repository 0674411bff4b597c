"""How an object of a checkpoint is made: builders, which check what the file gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._opaque import Opaque

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
                attributes(obj, state)
        return obj


def attributes(obj: Any, state: Any) -> None:
    """Gives an object the attributes and slots of a state as pickle writes it."""
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


def plain(
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


def empty(cls: Any, give: Callable[[Any, Any], Any] | None = attributes) -> Builder:
    """A class whose objects are made without arguments and given their attributes."""

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not args and not kwargs, f"arguments for {cls.__name__}")
        return cls.__new__(cls)

    return Builder(make, give)


def member_of(cls: Any) -> Builder:
    """A member of an enumeration of the program's, by its value; the class is not called."""
    values = vars(cls)["_value2member_map_"]

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        plain = not kwargs and len(args) == 1 and isinstance(args[0], int | str | float | None)
        need(plain and args[0] in values, f"a member of {cls.__name__}")
        return values[args[0]]

    return Builder(make)


def enum(cls: Any) -> Builder:
    """A member of an enumeration, by its value."""

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) == 1 and isinstance(args[0], int | str | None), "a member")
        return cls(args[0])

    return Builder(make)
