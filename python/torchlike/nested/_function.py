"""Functions of the user's given nested tensors: recorded between the plain tensors that hold their elements."""

from __future__ import annotations

from typing import Any

from torchlike import Tensor
from torchlike.autograd.function import Function
from torchlike.nested._base import Nested

__all__ = ["apply"]


def apply(function: type[Function], args: tuple[Any, ...]) -> Any:
    """The result of `function.apply`, whose forward and backward see nested tensors as they were given."""
    given = [a if isinstance(a, Nested) else None for a in args]
    made_of: list[Any] = []
    apart = function.setup_context is not Function.setup_context

    def forward(ctx: Any, *plain: Any) -> Any:
        mine = tuple(t._like(v) if t is not None else v for t, v in zip(given, plain, strict=True))
        if apart:
            made = function.forward(*mine)
            function.setup_context(ctx, mine, made)
        else:
            made = function.forward(ctx, *mine)
        made_of[:] = list(made) if isinstance(made, tuple) else [made]
        return _plain(made)

    def backward(ctx: Any, *grads: Any) -> Any:
        shown = (
            t._like(g) if isinstance(t, Nested) and isinstance(g, Tensor) else g
            for t, g in zip(made_of, grads, strict=True)
        )
        return _plain(function.backward(ctx, *shown))

    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
        "setup_context": Function.setup_context,
    }
    plain: Any = type(function.__name__, (function,), body)
    made = plain.apply(*map(_plain, args))
    if isinstance(made, tuple):
        return tuple(_again(t, m) for t, m in zip(made_of, made, strict=True))
    return _again(made_of[0], made)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value._elements if isinstance(value, Nested) else value


def _again(like: Any, made: Any) -> Any:
    return like._like(made) if isinstance(like, Nested) and isinstance(made, Tensor) else made
