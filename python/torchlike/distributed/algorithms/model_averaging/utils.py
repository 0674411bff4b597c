"""Making parameters the mean of all processes'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import distributed as dist
from torchlike._utils import _flatten_dense_tensors, _unflatten_dense_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "average_parameters",
    "average_parameters_or_parameter_groups",
    "get_params_to_average",
]


def average_parameters(params: Iterable[Any], process_group: Any) -> None:
    """Makes parameters the mean of all processes', each type of them with one exchange."""
    group = dist.group.WORLD if process_group is None else process_group
    if dist.get_rank(group) < 0:
        return
    kinds: dict[Any, list[Any]] = {}
    for param in params:
        kinds.setdefault((param.dtype, param.device), []).append(param)
    with torch.no_grad():
        for same in kinds.values():
            flat = _flatten_dense_tensors([p.detach() for p in same])
            flat /= dist.get_world_size(group)
            dist.all_reduce(flat, group=group)
            for param, part in zip(same, _unflatten_dense_tensors(flat, same), strict=True):
                param.copy_(part)


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """Those parameters that have a gradient, of a list or of groups.

    Raises:
        NotImplementedError: if it is neither.
    """
    found = []
    for param in params:
        if isinstance(param, torch.nn.Parameter):
            found += [param] if param.grad is not None else []
        elif isinstance(param, dict):
            found += [p for p in param["params"] if p.grad is not None]
        else:
            raise NotImplementedError(f"Parameter input of type {type(param)} is not supported")
    return found


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    """Makes those parameters the mean of all processes' that have a gradient."""
    average_parameters(iter(get_params_to_average(params)), process_group)
