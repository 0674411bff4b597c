"""Schedulers made of others: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from torchlike.optim._lr_base import LRScheduler, _param_groups_val_list, _update_param_group_val
from torchlike.optim._lr_plateau import ReduceLROnPlateau

if TYPE_CHECKING:
    from collections.abc import Sequence


def _check_parts(name: str, schedulers: Sequence[Any], optimizer: Any, purpose: str = "") -> Any:
    """The optimizer that all of them belong to."""
    if len(schedulers) < 1:
        raise ValueError(f"{name} expects at least one scheduler{purpose}, but got no scheduler.")
    optimizer = optimizer or schedulers[0].optimizer
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
            )
        if optimizer != scheduler.optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different from "
                f"{type(optimizer).__name__}."
            )
    return optimizer


class SequentialLR(LRScheduler):
    """One scheduler after the other, the next at each milestone."""

    def __init__(
        self, optimizer: Any, schedulers: list[Any], milestones: list[int], last_epoch: int = -1
    ) -> None:
        _check_parts(type(self).__name__, schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each part has made its first step already: that is taken back for all but the one whose turn it is.
        for group in optimizer.param_groups:
            _update_param_group_val(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the last step of all parts, and of theirs."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for part in sched._schedulers:
                self.recursive_undo(part)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Go on to the next epoch."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, with the state dicts of the parts."""
        parts = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**self._state_without("_schedulers"), "_schedulers": parts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict and those of the parts in it."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, kept in zip(self._schedulers, state_dict["_schedulers"], strict=False):
            scheduler.load_state_dict(kept)


class ChainedScheduler(LRScheduler):
    """All schedulers at once: each changes the rates that the one before left."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Any = None) -> None:
        name, purpose = type(self).__name__, " to be chained"
        self.optimizer = _check_parts(name, schedulers, optimizer, purpose)
        self._schedulers = schedulers
        self._last_lr = _param_groups_val_list(schedulers[-1].optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Go on to the next epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = _param_groups_val_list(self._schedulers[-1].optimizer, "lr")

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict
