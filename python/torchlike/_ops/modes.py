"""The stack of dispatch modes of a thread, and who is asked about an operator."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike._ops import OpOverload

_thread = threading.local()


def stack() -> list[Any]:
    """The modes that are on, outermost first."""
    try:
        return _thread.stack
    except AttributeError:
        _thread.stack = []
        return _thread.stack


def _switch(modes: list[Any]) -> None:
    """Has the core show calls as these modes want to see them."""
    _C._set_dispatch(bool(modes), all(getattr(m, "_passes_elements", False) for m in modes))


def push(mode: Any) -> None:
    """Switches a mode on. One that says `_passes_elements` is not shown views, and what is done element by element."""
    stack().append(mode)
    _switch(_thread.stack)


def pop() -> Any:
    """Switches the innermost mode off.

    Raises:
        RuntimeError: if none is on.
    """
    modes = stack()
    if not modes:
        raise RuntimeError("trying to pop from empty mode stack")
    mode = modes.pop()
    _switch(modes)
    return mode


@contextlib.contextmanager
def without() -> Iterator[list[Any]]:
    """Inside, no mode is on."""
    gone, _thread.stack = stack(), []
    _C._set_dispatch(False)
    try:
        yield gone
    finally:
        _thread.stack = gone
        _switch(gone)


def tensors(values: Any) -> tuple[Any, ...]:
    """The tensors among arguments, also in lists."""
    items = (i for v in values for i in (v if isinstance(v, list | tuple) else (v,)))
    return tuple(i for i in items if isinstance(i, _C.Tensor))


def ask(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of the innermost mode, or of the arguments whose class handles its calls; conjugates are copied first.

    Raises:
        TypeError: if nobody answers.
    """
    given = tensors((*args, *kwargs.values()))
    if any(t.is_conj() or t.is_neg() for t in given):
        from torchlike._ops import conjugates

        return conjugates.ask(func, args, kwargs)
    return _answer(func, args, kwargs, given)


def answer(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As `ask`, of operands as they are."""
    return _answer(func, args, kwargs, tensors((*args, *kwargs.values())))


def _answer(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: tuple[Any, ...]
) -> Any:
    handlers = _C._dispatch_handlers(given)
    types = tuple(type(t) for t, _ in handlers)
    refused = []
    if stack():
        mode = pop()
        try:
            rule = func.kernels.get(type(mode))
            if rule is None:
                made = mode.__torch_dispatch__(func, types, args, kwargs)
            else:
                made = rule(mode, func, types, args, kwargs)
        finally:
            push(mode)
        if made is not NotImplemented:
            return made
        refused.append(f"  - mode object {mode!r}")
    for t, handler in handlers:
        rule = func.kernels.get(type(t))
        if rule is None:
            made = handler(func, types, args, kwargs)
        else:
            made = rule(type(t), func, types, args, kwargs)
        if made is not NotImplemented:
            return made
        refused.append(f"  - tensor subclass {type(t)!r}")
    raise TypeError(
        f"Multiple dispatch failed for 'torch._ops.{func}'; all __torch_dispatch__ handlers returned "
        "NotImplemented:\n\n"
        + "\n".join(refused)
        + "\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


def wanted(values: Any) -> bool:
    """True if a mode is on, or one of the tensors handles its calls."""
    return bool(stack()) or bool(_C._dispatch_handlers(tensors(values)))


def must_see(values: Any) -> bool:
    """True if a tensor handles its calls, or who is on makes a graph of what one of them goes through."""
    given = tensors(values)
    return bool(_C._dispatch_handlers(given)) or any(
        mode._must_see(given) for mode in stack() if hasattr(mode, "_must_see")
    )


def recorded(values: Any) -> bool:
    """True if one of the tensors wants a gradient, has tangents or is an example, and somebody is asked: the call is
    recorded before it is shown."""
    if getattr(_thread, "below", False):
        return False
    given = tensors(values)
    tracked = _C.is_grad_enabled() and any(t.requires_grad for t in given)
    if not tracked and not any(_C._carries(t) for t in given):
        return False
    return bool(stack()) or bool(_C._dispatch_handlers(given))


def tracked(value: Any) -> bool:
    """True if a tensor wants a gradient, but where a program is made, which has none."""
    from torchlike.compiler import is_exporting

    return bool(value.requires_grad) and not is_exporting()


@contextlib.contextmanager
def asked(overload: OpOverload) -> Iterator[None]:
    """Inside, the call of this overload is recorded, and then shown as this one among those that it could be."""
    before = getattr(_thread, "asked", None)
    _thread.asked = overload
    try:
        yield
    finally:
        _thread.asked = before


@contextlib.contextmanager
def opened(overload: OpOverload) -> Iterator[None]:
    """Inside, calls of this overload are not shown, but what the first one is made of."""
    before = getattr(_thread, "opened", None)
    _thread.opened = [overload, 0]
    try:
        yield
    finally:
        _thread.opened = before


def opens(overload: OpOverload) -> int:
    """The how many-th call this is of the overload that is taken apart; 0 for other overloads."""
    opened = getattr(_thread, "opened", None)
    if opened is None or opened[0] is not overload:
        return 0
    opened[1] += 1
    return int(opened[1])


def is_asked() -> bool:
    """True if the next call is that of an overload, which was told what it is."""
    return getattr(_thread, "asked", None) is not None


def chosen(overloads: list[OpOverload]) -> list[OpOverload]:
    """Overloads that a call can be, with the one first that was asked for; the next call was not asked for."""
    first = getattr(_thread, "asked", None)
    if first is None or first not in overloads:
        return overloads
    _thread.asked = None
    return [first, *(o for o in overloads if o is not first)]


@contextlib.contextmanager
def apart(row: str, recorded: bool) -> Iterator[bool]:
    """Inside, calls are what a row comes down to, which is `recorded` as a whole or not; False if that is going on
    already, and the call is one of these."""
    before = getattr(_thread, "below", False), getattr(_thread, "rows", ())
    _thread.below = before[0] or recorded
    _thread.rows = (*before[1], row)
    try:
        yield recorded or row not in before[1]
    finally:
        _thread.below, _thread.rows = before
