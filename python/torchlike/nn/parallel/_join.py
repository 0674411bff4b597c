"""Processes with unequal numbers of batches: those that are done take part in the collectives of the others."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Join", "JoinHook", "Joinable"]

_MANY = 1000


class JoinHook:
    """What a process does for one `Joinable` once it has no more batches."""

    def main_hook(self) -> None:
        """Takes part in the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs once all processes are done; `is_last_joiner` on those that were done last."""


class _JoinConfig(NamedTuple):
    """How a `Joinable` is joined."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """Outside of all contexts."""
        return _JoinConfig()


class Joinable(ABC):
    """Something with collectives in every iteration, before which it calls `Join.notify_join_context`."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What processes do that are done; `kwargs` are those of the context."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where the context's own collectives take place."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes."""


class Join:
    """A context around the iterations of some `Joinable`s.

    Args:
        joinables: in the order of their collectives.
        enable: whether it does anything.
        throw_on_early_termination: whether all processes raise when the first is done.
        kwargs: for `join_hook`.

    Raises:
        ValueError: without joinables, and if they differ in their processes or devices.
    """

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [j.join_hook(**kwargs) for j in joinables]
        self._enable, self._throw_on_early_termination = enable, throw_on_early_termination
        for i, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)
        groups = {id(j.join_process_group): j.join_process_group for j in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group = next(iter(groups.values()))
        self._rank = self._process_group.rank()
        self._device = joinables[0].join_device

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Takes part in what the others do until all are done.

        Raises:
            RuntimeError: with `throw_on_early_termination`, if another is not done.
        """
        if not self._enable or type is not None:
            return
        is_last, rounds = True, 0
        while self._sum(0):
            if self._throw_on_early_termination:
                self._sum(1)
                raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")
            is_last = False
            for hook in self._join_hooks:
                hook.main_hook()
            rounds += 1
            if rounds == _MANY + 1:
                warnings.warn(
                    f"Detected uneven input skew of greater than {_MANY}. This means that rank {self._rank} has at "
                    f"least {_MANY} fewer inputs than other currently-active ranks. This level of skew could lead to "
                    "performance degradation during training.",
                    stacklevel=2,
                )
        for hook in self._join_hooks:
            hook.post_hook(is_last)

    def _sum(self, mine: int) -> int:
        """The sum of a number over all processes: of those that are not done, each of which says 1."""
        said = torch.full((1,), float(mine), device=self._device)
        torch.distributed.all_reduce(said, group=self._process_group)
        return int(said.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Says that this process has another batch.

        Returns:
            A collective whose result is how many have one; None outside of contexts, and for all but the first of
            their joinables.

        Raises:
            RuntimeError: with `throw_on_early_termination`, if a process is done.
        """
        config = getattr(joinable, "_join_config", None)
        if config is None:
            raise AssertionError(
                f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor"
            )
        if not config.is_first_joinable or not config.enable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = torch.distributed.all_reduce(
            torch.ones(1, device=device), group=group, async_op=True
        )
        if config.throw_on_early_termination:
            done = torch.zeros(1, device=device)
            work.wait()
            count = work.result()[0]
            if int(count.item()) < group.size():
                torch.distributed.all_reduce(done, group=group)
                raise RuntimeError(
                    "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
        return work
