"""An optimizer whose parameters become the mean of all processes' now and then."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torchlike.optim import Optimizer

if TYPE_CHECKING:
    from torchlike.distributed.algorithms.model_averaging.averagers import ModelAverager

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Steps of another optimizer, after each of which an averager is asked.

    Args:
        optim: the optimizer.
        averager: makes parameters the mean of all processes'.
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim = optim
        self.averager = averager

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the optimizer."""
        return self.optim.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        """The groups of the optimizer."""
        return self.optim.param_groups

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, and the averager's step."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of the optimizer, and the averager's step."""
        self.optim.load_state_dict(state_dict)
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
            return
        warnings.warn(
            "Loaded state dict does not contain a step counter for an averager. "
            "Setting step counter to 0.",
            stacklevel=2,
        )
        self.averager.step = 0

    def step(self, closure: Any = None) -> Any:
        """A step of the optimizer, and then of the averager."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(params=self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters to the optimizer."""
        self.optim.add_param_group(param_group)
