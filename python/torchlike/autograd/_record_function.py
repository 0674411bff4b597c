"""Parts of a program by name: noted by profilers, and seen by dispatch modes. Apart, for optimizers enter them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torchlike import _C, _script_objects
from torchlike._ops import modes, ops

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["record_function"]

_KIND = "profiler._RecordFunction"
_SHOWN = f"__torch__.torch.classes.{_KIND}"


@_script_objects.registered(_KIND, "")
class _Part:
    """What dispatch modes see of a part of a program: it is entered by one operator and left by another."""

    def __init__(self, name: str) -> None:
        self.name = name

    def state(self) -> tuple[str]:
        """What it is made of."""
        return (self.name,)

    @classmethod
    def of_state(cls, state: Any) -> _Part:
        """From what it is made of."""
        return cls(*state)


def _entered(name: str, args: str | None = None) -> Any:
    return _script_objects.holding(_KIND, _Part(name))


def _left(part: Any) -> None:
    """Nothing is noted by the operators: the context does that."""


_ENTER = ops.profiler.define(
    f"profiler::_record_function_enter_new(str name, str? args=None) -> {_SHOWN}"
)
_LEAVE = ops.profiler.define(f"profiler::_record_function_exit._RecordFunction({_SHOWN} _0) -> ()")
_ENTER.kernels["CompositeExplicitAutograd"] = _entered
_LEAVE.kernels["CompositeExplicitAutograd"] = _left


def _watched() -> bool:
    """Whether modes are on to which a part of a program means something: graphs have no objects but tensors."""
    return bool(modes.stack()) and not any(hasattr(m, "_must_see") for m in modes.stack())


class record_function:
    """Names a part of a program, as a context manager or decorator."""

    __module__ = "torchlike.autograd.profiler"
    __slots__ = ("_at", "_part", "args", "name")

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._at: int | None = None
        self._part: Any = None

    def __enter__(self) -> record_function:
        self._at = _C._profile_enter(self.name)
        if _watched():
            given = (self.name,) if self.args is None else (self.name, self.args)
            self._part = _ENTER(*given)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._part is not None:
            _LEAVE(self._part)
            self._part = None
        if self._at is not None:
            _C._profile_leave(self._at)
            self._at = None

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which runs as a part of this name."""

        @functools.wraps(func)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return func(*args, **kwargs)

        return marked
