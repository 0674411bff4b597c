"""The parts of a model that are computed again: what they saved the first time, and how to get it once more."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._C import Tensor


class CheckpointError(RuntimeError):
    """Computing again gave something else than the first time."""


_early_stop = [True]


class set_checkpoint_early_stop:
    """Inside, parts that are checkpointed stop computing again, or do not stop, once everything saved is there."""

    def __init__(self, enable: bool) -> None:
        self._enable = enable

    def __enter__(self) -> None:
        self._before = _early_stop[0]
        _early_stop[0] = self._enable

    def __exit__(self, *exc: object) -> None:
        _early_stop[0] = self._before


class _Stop(Exception):
    """Everything that was saved is there again."""


class _Holder:
    """Stands for one saved tensor."""

    __slots__ = ("__weakref__", "at")

    def __init__(self, at: int) -> None:
        self.at = at


def _metadata(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


class Frame:
    """One run of a part: what it saved, and how to get it again."""

    def __init__(self, again: Callable[[], Any], early_stop: bool, check: bool) -> None:
        self.again = again
        self.early_stop = early_stop
        self.check = check
        # A walk back inside of the part may ask for what is saved before all of it is.
        self.complete = False
        self.holders: list[weakref.ref[_Holder]] = []
        self.metadata: list[dict[str, Any]] = []
        # What each walk back has computed again and not asked for yet.
        self.values: dict[int, dict[int, Tensor]] = {}

    def pack(self, t: Tensor) -> _Holder:
        holder = _Holder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        self.metadata.append(_metadata(t))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        run = _C._current_graph_task_id()
        if run == -1 or run not in self.values:
            self.values[run] = self.recompute()
        found = self.values[run].pop(holder.at, None)
        if found is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already "
                "unpacked once. If you are calling ctx.saved_tensors in backward, make sure to do "
                "so only once. Otherwise please open an issue with details on your use case."
            )
        return found

    def recompute(self) -> dict[int, Tensor]:
        made: list[Tensor] = []
        values: dict[int, Tensor] = {}

        def keep(t: Tensor) -> Tensor:
            at = len(made)
            if self.complete and at >= len(self.holders):
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original "
                    "forward pass."
                )
            made.append(t)
            if at < len(self.holders) and self.holders[at]() is not None:
                values[at] = t.detach()
            if self.early_stop and len(made) == len(self.holders):
                raise _Stop
            return t.detach()

        with (
            contextlib.suppress(_Stop),
            saved_tensors_hooks(keep, lambda t: t),
            torch.enable_grad(),
        ):
            self.again()
        if self.check and (self.complete or len(made) <= len(self.holders)):
            self.compare(made)
        return values

    def compare(self, made: list[Tensor]) -> None:
        if len(made) != len(self.holders):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original "
                f"forward and recomputation.\nNumber of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {len(made)}.\n"
            )
        wrong = [
            f"tensor at position {i}:\nsaved metadata: {old}\nrecomputed metadata: {new}"
            for i, (old, new) in enumerate(zip(self.metadata, map(_metadata, made), strict=True))
            if old != new
        ]
        if wrong:
            listed = "\n".join(wrong)
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different "
                f"metadata than during the forward pass.\n{listed}.\n"
            )
