"""Marks in a program's run: kept for programs that set them, as nothing is measured."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["record_function"]


class record_function:
    """Names a part of a program, as a context manager or decorator."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which runs as a part of this name."""

        @functools.wraps(func)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return marked
