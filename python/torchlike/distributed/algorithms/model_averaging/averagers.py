"""When parameters become the mean of all processes'."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

from torchlike import distributed as dist
from torchlike.distributed.algorithms.model_averaging import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Is asked after each step.

    Args:
        process_group: the processes; all by default.
    """

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """Makes parameters the mean of all processes', if it is time."""


class PeriodicModelAverager(ModelAverager):
    """Makes parameters the mean of all processes' each so many steps.

    Args:
        period: after how many steps.
        warmup_steps: how many steps come before.
        process_group: the processes; all by default.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn(
                "When period is 1, no need to use model averaging because the communication cost of "
                "all-reducing parameters will be no less than the cost of all-reducing gradients by "
                "DistributedDataParallel in the backward pass. Therefore, only "
                "DistributedDataParallel should be used for this case.",
                stacklevel=2,
            )
        self.warmup_steps = warmup_steps
        self.period = period

    def average_parameters(self, params: Any) -> None:
        """Counts a step; makes parameters, or groups of them, the mean if it is time."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
