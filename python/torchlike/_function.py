"""Overrides of functions that Python writes, here or in PyTorch: what a handler receives."""

from __future__ import annotations

import functools
import sys
from ast import literal_eval
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._naming import own

if TYPE_CHECKING:
    from collections.abc import Callable


class Form:
    """How PyTorch passes the arguments of a function that it writes in Python on to a handler.

    The text is `positional; keyword=default`. Arguments with a star are those that are asked; `*name`
    takes the rest, and all of it is asked, also what is in a list alone; `*name!` not that.
    """

    __slots__ = ("asked", "defaults", "flat", "keywords", "positional", "rest")

    def __init__(self, text: str) -> None:
        before, _, after = text.partition(";")
        self.positional: list[str] = []
        self.keywords: list[str] = []
        self.defaults: dict[str, Any] = {}
        self.asked: list[str] = []
        self.rest, self.flat = False, True
        for names, part in ((self.positional, before), (self.keywords, after)):
            for entry in part.split(", ") if part.strip() else ():
                name, has_default, default = entry.strip().partition("=")
                if name.startswith("*"):
                    self.rest, self.flat = True, not name.endswith("!")
                    continue
                if name.endswith("*"):
                    name = name[:-1]
                    self.asked.append(name)
                names.append(name)
                if has_default:
                    self.defaults[name] = literal_eval(default)

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]] | None:
        """What is asked, and the arguments as a handler gets them; None if the call does not fit."""
        names = self.positional if self.rest else self.positional + self.keywords
        rest = args[len(names) :]
        if rest and not self.rest:
            return None
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            known = name in self.keywords or name in self.positional
            if not known or name in values:
                return None
            values[name] = value
        for name in (*self.positional, *self.keywords):
            if name not in values:
                if name not in self.defaults:
                    return None
                values[name] = self.defaults[name]
        asked = (*(values[n] for n in self.asked), *(_flat(rest) if self.flat else _bare(rest)))
        positional = (*(values[n] for n in self.positional), *rest)
        return asked, positional, {n: values[n] for n in self.keywords}


def _flat(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return tuple(values[0])
    return values


def _bare(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(v for v in values if not isinstance(v, list | tuple))


@functools.cache
def _forms() -> dict[str, Form]:
    # `importlib.resources` would load archives, compressors and random numbers for it.
    text = Path(__file__).with_name("_forms.txt").read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition("(")
        found[name] = Form(rest.rpartition(")")[0])
    return found


def _public(name: str) -> Any:
    """`linalg.inv` or `Tensor.add` as an object."""
    found: Any = sys.modules["torchlike"]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _form(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function, what is asked and the arguments, if PyTorch writes this function in Python."""
    form = _forms().get(name)
    bound = form.bind(args, kwargs) if form is not None else None
    return None if bound is None else (_public(name), *bound)


def overridable(function: Callable[..., Any]) -> Any:
    """A decorator: modes and arguments with a `__torch_function__` may take calls of the function over."""
    module = (
        own(function.__module__).removeprefix("torchlike.").replace("_compositions", "functional")
    )
    name = (
        function.__qualname__
        if module in ("functional", "_methods", "_parts", "_settings", "_tensor")
        else f"{module}.{function.__qualname__}"
    )

    @functools.wraps(function)
    def shown(*args: Any, **kwargs: Any) -> Any:
        if not _C._watched(args, kwargs):
            return function(*args, **kwargs)
        form = _forms().get(name)
        bound = form.bind(args, kwargs) if form is not None else None
        asked, args, kwargs = bound or ((*args, *kwargs.values()), args, kwargs)
        if bound is not None and not _C._watched(asked, {}):
            return function(*args, **kwargs)
        return _C._handle(shown, f"torch.{name}", asked, args, kwargs)

    # Libraries look there for what a version takes.
    shown.__kwdefaults__ = function.__kwdefaults__  # type: ignore[attr-defined]
    return shown
