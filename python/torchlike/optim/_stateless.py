"""Optimizers that work on other tensors for a while."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from torchlike.optim._common import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.optim.optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]

_SELF = "swap_in_optimizer_params_and_state"


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer,
    swapin_parameters: dict[str, Any],
    swapin_optim_state: dict[str, Any],
) -> Iterator[None]:
    """Within the block the optimizer has these parameters and this state; afterwards its own again."""
    if not optimizer.state:
        raise RuntimeError(f"{_SELF} requires initialized optimizer state.")
    if not isinstance(swapin_optim_state, dict):
        raise RuntimeError(f"{_SELF} requires a DCP-style optimizer state_dict.")
    state = _checked_state(swapin_optim_state.get("state"))
    groups = _checked_groups(optimizer, swapin_optim_state.get("param_groups"))
    parts = _dealt(groups, list(swapin_parameters.values()))
    known = {n for group in groups for n in group["params"]}
    extra = [k for k in state if k not in known]
    if extra:
        raise RuntimeError(
            f"{_SELF} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
            f"param_groups[*]['params']; got extra keys {extra!r}."
        )
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        optimizer.state = defaultdict(dict)
        for own, other, params in zip(optimizer.param_groups, groups, parts, strict=True):
            own.update({**other, "params": params})
            for p, n in zip(params, other["params"], strict=True):
                optimizer.state[p] = dict(state.get(n, {}))
        yield
    finally:
        for own, before in zip(optimizer.param_groups, own_groups, strict=True):
            own.clear()
            own.update(before)
        optimizer.state = own_state


def _checked_state(state: Any) -> dict[Any, Any]:
    if not isinstance(state, dict):
        raise RuntimeError(
            f"{_SELF} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param "
            f"state dicts, got {type(state).__name__}."
        )
    if any(isinstance(k, Tensor) for k in state):
        raise RuntimeError(
            f"{_SELF} requires optimizer.state_dict()-style state keyed by packed parameter ids."
        )
    if any(isinstance(k, int) and not isinstance(v, dict) for k, v in state.items()):
        raise RuntimeError(
            f"{_SELF} requires per-parameter optimizer state entries to be dictionaries."
        )
    return state


def _checked_groups(optimizer: Optimizer, groups: Any) -> list[dict[str, Any]]:
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_SELF} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
            f"got {type(groups).__name__}."
        )
    if len(optimizer.param_groups) != len(groups):
        raise RuntimeError(
            "swapin_optim_state has a different number of parameter groups than the live optimizer."
        )
    for i, (own, other) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check_group(i, own, other)
    return groups


def _check_group(i: int, own: dict[str, Any], other: Any) -> None:
    if not isinstance(other, dict):
        raise RuntimeError(f"{_SELF} requires each optimizer param group to be a dictionary.")
    numbers = other.get("params")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(
            f"{_SELF} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed "
            "parameter ids."
        )
    if len(own["params"]) != len(numbers):
        raise RuntimeError(
            f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group."
        )
    theirs, ours = [k for k in other if k not in own], [k for k in own if k not in other]
    if theirs or ours:
        raise RuntimeError(
            f"{_SELF} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer "
            f"group keys for group {i}. Keys only in swap-in: {theirs}. Keys only in live: {ours}."
        )


def _dealt(groups: list[dict[str, Any]], params: list[Any]) -> list[list[Any]]:
    """The parameters in order, as many for each group as it has."""
    parts, start = [], 0
    for group in groups:
        end = start + len(group["params"])
        if end > len(params):
            raise RuntimeError(
                f"{_SELF} requires the explicit parameter state to match optimizer.param_groups ordering."
            )
        parts.append(params[start:end])
        start = end
    return parts
