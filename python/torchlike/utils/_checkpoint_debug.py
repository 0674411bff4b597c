"""Telling which operators a checkpointed part called the first time and which when it was computed again."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from torchlike._C import Tensor
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils._pytree import tree_flatten
from torchlike.utils._recompute import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Log", "set_checkpoint_debug_enabled"]

_enabled: list[bool | None] = [None]


class set_checkpoint_debug_enabled:
    """Inside, `checkpoint` debugs, or does not, whatever its ``debug`` says; None leaves it to that."""

    def __init__(self, enabled: bool | None) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        self._before = _enabled[0]
        _enabled[0] = self._enabled

    def __exit__(self, *exc: object) -> None:
        _enabled[0] = self._before


class _Calls(TorchDispatchMode):
    """Notes operators, with tensors by number and where they were called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.stacks: list[str] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def _name(self, value: Any) -> str:
        if not isinstance(value, Tensor):
            return repr(value)
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            self._alive.append(value)
        return f"${self._numbers[id(value)]}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        given = [self._name(a) for a in args]
        given += [f"{k}={self._name(v)}" for k, v in kwargs.items()]
        made = func(*args, **kwargs)
        names = ", ".join(
            f"{self._name(v)}: {str(v.dtype).rpartition('.')[2]}{list(v.shape)}"
            for v in tree_flatten(made)[0]
            if isinstance(v, Tensor)
        )
        self.calls.append(f"{names} = {func}({', '.join(given)})")
        self.stacks.append("".join(traceback.format_stack()[:-1]))
        return made


class Log:
    """The operators of both runs."""

    def __init__(self) -> None:
        self.runs = (_Calls(), _Calls())

    @classmethod
    def wanted(cls, debug: bool) -> Log | None:
        """A log, if somebody asks for one."""
        asked = debug if _enabled[0] is None else _enabled[0]
        return cls() if asked else None

    def contexts(self) -> tuple[Any, Any]:
        """What notes the operators of the first run, and of the other one."""
        return self.runs

    def telling(self, unpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """As ``unpack``, with an error that tells of the log."""

        def told(holder: Any) -> Any:
            try:
                return unpack(holder)
            except CheckpointError as e:
                raise CheckpointError(self.text()) from e

        return told

    def text(self) -> str:
        """Both runs, their operators and where these were called."""
        first, other = self.runs
        stacks = [
            f"{call}\n\n{stack}"
            for run in (first, other)
            for call, stack in zip(run.calls, run.stacks, strict=True)
        ]
        return "\n".join(
            [
                " An error happened while unpacking tensors; dumping logs of latest computation",
                "because you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`.",
                "",
                *stacks,
                "Operations executed during the original forward:",
                "",
                *first.calls,
                "",
                "Operations executed during recomputation:",
                "",
                *other.calls,
                "",
                "ERROR: Detected non-determinism while running activation checkpointing",
                "",
                "You are seeing this error because you passed `debug=True` to checkpoint and recomputation saved other "
                "tensors than the original forward did.",
            ]
        )
