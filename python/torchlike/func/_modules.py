"""Modules as functions of their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with other parameters and buffers, given by name in a dict or in several."""
    from torchlike.nn.utils import stateless

    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, list | tuple):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
            )
        if not all(isinstance(d, dict) for d in given):
            raise ValueError(
                "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
            )
        names = [name for d in given for name in d]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(
                f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        given = {name: value for d in given for name, value in d.items()}
    return stateless._functional_call(
        module, given, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def check_alike(function: str, models: Sequence[Any]) -> None:
    """Checks that there are modules, all of one class and mode, for a function.

    Raises:
        RuntimeError: if there are none, or they differ.
    """
    if len(models) == 0:
        raise RuntimeError(f"{function}: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError(f"{function}: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError(f"{function}: Expected all models to be of the same class.")


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of several modules of one kind, and their buffers, each stacked along a new first dimension.

    Raises:
        RuntimeError: if there are none, or they are of different kinds or modes.
    """
    check_alike("stack_module_state", models)
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {k: _stacked(k, [p[k] for p in parameters]) for k in parameters[0]},
        {k: _stacked(k, [b[k] for b in buffers]) for k in buffers[0]},
    )


def _stacked(name: str, tensors: list[Any]) -> Any:
    """One leaf of several, which want gradients all or none."""
    wanted = tensors[0].requires_grad
    if any(t.requires_grad != wanted for t in tensors):
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return torch.stack([t.detach() for t in tensors]).requires_grad_(wanted)


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Lets all batch norms of a module work without running statistics, as `vmap` needs it; gives the module."""
    from torchlike.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(module, name, None)
    return root
