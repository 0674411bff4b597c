"""Limits on gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._ops import modes
from torchlike.utils._foreach_utils import (
    _device_has_foreach_support,
    _group_tensors_by_device_and_dtype,
    _has_foreach_support,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_public: Any = torch

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def _grads(parameters: Any) -> list[Any]:
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def _groups(tensors: list[Any], foreach: bool | None) -> Iterator[tuple[list[Any], Any, bool]]:
    """Tensors of one device and type, their device, and whether one operator takes them all."""
    for (device, _), ((group,), _) in _group_tensors_by_device_and_dtype([tensors]).items():
        together = bool(foreach)
        if foreach is None:
            together = _has_foreach_support(group, device)
        elif foreach and not _device_has_foreach_support(device):
            raise RuntimeError(
                f"foreach=True was passed, but can't use the foreach API on {device.type} tensors"
            )
        yield group, device, together


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The norm of all tensors taken as one vector."""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return torch.tensor(0.0)
    first = tensors[0].device
    norms: list[Any] = []
    with torch.no_grad():
        for group, _, together in _groups(tensors, foreach):
            if together:
                norms += _public._foreach_norm(group, norm_type)
            else:
                norms += [torch.linalg.vector_norm(t, norm_type) for t in group]
        total = torch.linalg.vector_norm(torch.stack([n.to(first) for n in norms]), norm_type)
    if error_if_nonfinite and torch.logical_or(total.isnan(), total.isinf()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale gradients by ``max_norm / total_norm`` where that is below one."""
    grads = _grads(parameters)
    if not grads:
        return
    factor = torch.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
    with torch.no_grad():
        for group, device, together in _groups(grads, foreach):
            by = factor.to(device)
            if together:
                _public._foreach_mul_(group, by)
            else:
                for grad in group:
                    grad.mul_(by)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale gradients so that their common norm is at most ``max_norm``; returns the norm."""
    if not isinstance(parameters, torch.Tensor):
        generated = not hasattr(parameters, "__len__")
        parameters = list(parameters)
        if generated and not parameters:
            import warnings

            warnings.warn(
                "`parameters` is an empty generator, no gradient clipping will occur.",
                stacklevel=3,
            )
    with torch.no_grad():
        total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The older name of ``clip_grad_norm_``."""
    import warnings

    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated "
        "in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Keep every gradient between ``-clip_value`` and ``clip_value``."""
    limit = float(clip_value)
    with torch.no_grad():
        for group, _, together in _groups(_grads(parameters), foreach):
            if together and modes.stack():
                _public._foreach_clamp_min_(group, -limit)
                _public._foreach_clamp_max_(group, limit)
            else:
                for grad in group:
                    grad.clamp_(min=-limit, max=limit)
