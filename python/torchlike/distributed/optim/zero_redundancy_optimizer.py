"""An optimizer whose state is spread over processes: each steps some parameters, and sends them to the others."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import distributed as dist
from torchlike.distributed.algorithms.join import Join, Joinable, JoinHook
from torchlike.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ZeroRedundancyOptimizer"]


class _StepHook(JoinHook):
    """What a process does that has no more inputs: it takes part in steps."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        """A step, of which the others know."""
        self.zero._step({})


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Steps of `optimizer_class`, with the state of each parameter in one process.

    Parameters go to processes by their sizes, the largest first to the one that has least.

    Args:
        params: the parameters, which are the same in all processes.
        optimizer_class: what makes a process's own optimizer.
        process_group: the processes; all by default.
        parameters_as_bucket_view: accepted; parameters stay where they are.
        overlap_with_ddp: only False.
        defaults: the options of the optimizer.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not supported by torchlike"
            )
        given = _checked(params)
        Joinable.__init__(self)
        self.initialized = False
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self.world_size: int = dist.get_world_size(self.process_group)
        self.rank: int = dist.get_rank(self.process_group)
        self.global_rank = dist.get_global_rank(self.process_group, self.rank)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._sizes = [0] * self.world_size
        self._owner: dict[Any, int] = {}
        self._parts: list[list[list[Any]]] = []  # by group and process
        self._all_states: list[dict[str, Any]] = []
        Optimizer.__init__(self, given, defaults)
        self._optim_defaults, self._optim_constructor = defaults, optimizer_class
        self.optim = optimizer_class(
            [self._own(i) for i in range(len(self.param_groups))], **defaults
        )
        # options that the optimizer's class has by default belong to all parameters
        for group, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            for key, value in local.items():
                if key != "params":
                    group.setdefault(key, value)
        self.initialized = True

    # Parts

    def _own(self, index: int) -> dict[str, Any]:
        """A group with the parameters alone that this process steps."""
        group = self.param_groups[index]
        return {**group, "params": self._parts[index][self.rank]}

    def _spread(self, params: list[Any]) -> None:
        """Gives the parameters of a group to processes."""
        parts: list[list[Any]] = [[] for _ in range(self.world_size)]
        for param in sorted(params, key=lambda p: p.numel(), reverse=True):
            rank = self._sizes.index(min(self._sizes))
            self._sizes[rank] += param.numel()
            self._owner[param] = rank
            parts[rank].append(param)
        self._parts.append(parts)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, which go to processes as the others did."""
        super().add_param_group(param_group)
        self._spread(self.param_groups[-1]["params"])
        if self.initialized:
            self.optim.add_param_group(self._own(len(self.param_groups) - 1))

    def _sync_options(self, source: list[dict[str, Any]], to: list[dict[str, Any]]) -> None:
        for one, other in zip(source, to, strict=True):
            other.update({key: value for key, value in one.items() if key != "params"})

    # Steps

    def step(self, closure: Callable[[], float] | None = None, **kwargs: Any) -> float | None:
        """A step of this process's part, whose parameters then go to the others."""
        Join.notify_join_context(self)
        return self._step({**kwargs} if closure is None else {"closure": closure, **kwargs})

    def _step(self, given: dict[str, Any]) -> Any:
        self._sync_options(self.param_groups, self.optim.param_groups)
        loss: Any = self.optim.step(**given)
        self._sync_options(self.optim.param_groups, self.param_groups)
        with torch.no_grad():
            for param, rank in self._owner.items():
                source = dist.get_global_rank(self.process_group, rank)
                dist.broadcast(param.detach(), src=source, group=self.process_group)
        return loss

    # State

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects the states of all processes in one, which can then give the whole; all have to call it."""
        self._sync_options(self.param_groups, self.optim.param_groups)
        self._all_states = []
        local = self.optim.state_dict()
        for rank in range(self.world_size):
            source = dist.get_global_rank(self.process_group, rank)
            held: list[Any] = [local if rank == self.rank else None]
            dist.broadcast_object_list(held, src=source, group=self.process_group)
            if self.rank == to:
                self._all_states.append(copy.deepcopy(held[0]) if rank == self.rank else held[0])

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as one process would have it.

        Raises:
            RuntimeError: if it was not collected here before.
        """
        if not self._all_states:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. "
                f"Please call `consolidate_state_dict(to={self.rank})` on all ranks beforehand if "
                "you meant to save the global state."
            )
        whole = super().state_dict()
        state: dict[int, Any] = {}
        places = self._places()
        for rank, local in enumerate(self._all_states):
            for i, group in enumerate(local["param_groups"]):
                for param, place in zip(self._parts[i][rank], group["params"], strict=True):
                    if place in local["state"]:
                        state[places[param]] = local["state"][place]
        return {**whole, "state": dict(sorted(state.items()))}

    def _places(self) -> dict[Any, int]:
        """The numbers of the parameters in a state of all."""
        every = (p for group in self.param_groups for p in group["params"])
        return {param: i for i, param in enumerate(every)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the options of all parameters, and the state of this process's own."""
        places = self._places()
        local = self.optim.state_dict()
        own: dict[int, Any] = {}
        for i, group in enumerate(local["param_groups"]):
            group.update({k: v for k, v in state_dict["param_groups"][i].items() if k != "params"})
            for param, place in zip(self._parts[i][self.rank], group["params"], strict=True):
                if places[param] in state_dict["state"]:
                    own[place] = state_dict["state"][places[param]]
        super().load_state_dict({**state_dict, "state": {}})
        self.optim.load_state_dict({"state": own, "param_groups": local["param_groups"]})
        self._sync_options(self.param_groups, self.optim.param_groups)

    # Joining

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this process does once it has no more inputs."""
        return _StepHook(self)

    @property
    def join_device(self) -> Any:
        """The device of the parameters."""
        return next(iter(self._owner)).device

    @property
    def join_process_group(self) -> Any:
        """The processes."""
        return self.process_group


def _checked(params: Any) -> list[Any]:
    """The parameters, or the groups of them.

    Raises:
        TypeError: if they are neither.
        ValueError: if there are none.
    """
    if isinstance(params, torch.Tensor):
        raise TypeError(
            f"`params` argument should be an iterable of Tensors, but got {torch.typename(params)}"
        )
    try:
        given = list(params)
    except TypeError as e:
        raise TypeError(
            "`params` argument should be an iterable of Tensors or dicts, but got "
            f"{torch.typename(params)}"
        ) from e
    if not given:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if not all(isinstance(p, torch.Tensor) for p in given):
        if not all(isinstance(p, dict) for p in given):
            raise TypeError("`params` argument should be an iterable of Tensors or dicts")
        for group in given:
            group["params"] = list(group["params"])
    return given
