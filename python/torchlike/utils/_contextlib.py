"""Contexts that decorate functions, too."""

from __future__ import annotations

from typing import Any

from torchlike.context import _with_context


def context_decorator(ctx: Any, func: Any) -> Any:
    """A function that runs in a context each time: one that `ctx()` makes, or `ctx` itself."""
    if hasattr(ctx, "__enter__"):
        if callable(ctx):
            raise RuntimeError(
                f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it "
                "ambiguous which interface to use.  If you intended to pass a context manager factory, rewrite your "
                "call as context_decorator(lambda: ctx()); if you intended to pass a context manager directly, rewrite "
                "your call as context_decorator(lambda: ctx)"
            )
        return _with_context(ctx, func)
    return _with_context(_Made(ctx), func)


class _Made:
    """A context that is made anew each time it is entered."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._open: list[Any] = []

    def __enter__(self) -> Any:
        made = self._make()
        value = made.__enter__()
        self._open.append(made)
        return value

    def __exit__(self, *exc: Any) -> Any:
        return self._open.pop().__exit__(*exc)


class _DecoratorContextManager:
    """A context whose instances decorate functions: each call enters a `clone`."""

    def __call__(self, orig_func: Any) -> Any:
        return _with_context(_Made(self.clone), orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError(f"{type(self).__name__}.__enter__")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.__exit__")

    def clone(self) -> Any:
        """Another of its kind; classes with arguments say how."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """As that, also without parentheses: `@context`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        """The context, or a function that runs in one."""
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)
