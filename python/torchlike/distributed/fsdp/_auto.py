"""Wrapping the modules below a root as a policy says."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torchlike.distributed.fsdp import wrap as wrapping

if TYPE_CHECKING:
    from torchlike.nn import Parameter
    from torchlike.nn.modules.module import Module

__all__ = ["auto_wrap"]


def auto_wrap(
    make: Any,
    module: Module,
    policy: Any,
    ignored: set[Module],
    params: list[Parameter],
    kwargs: dict[str, Any],
) -> None:
    """Wraps the modules below a root that a policy wants."""
    for name, m in module.named_modules():
        if isinstance(m, make):
            raise ValueError(
                f"FSDP auto wrapping requires modules to not already have FSDP applied but found {name} in\n{module}"
            )
    kwargs = {**kwargs, "ignored_states": params} if params else kwargs
    mixed = kwargs["mixed_precision"]
    if mixed is not None and mixed.param_dtype is not None:
        kinds = tuple(mixed._module_classes_to_ignore or ())
        apart = {
            m: {**kwargs, "mixed_precision": None} for m in module.modules() if isinstance(m, kinds)
        }
        if apart:
            warnings.warn(
                "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has "
                f"submodules of type:\n{ {type(m) for m in apart} }\n"
                "These modules will be wrapped as separate FSDP instances with mixed precision disabled.",
                stacklevel=4,
            )
    else:
        apart = {}
    if isinstance(policy, wrapping._Policy):
        wanted = policy._run_policy(module, ignored, kwargs)
        wanted.pop(module, None)
        wrapping._below(module, {**wanted, **apart}, make)
        return
    wrapping._below(module, apart, make)
    wrapping._recursive_wrap(
        module,
        policy,
        make,
        {*ignored, *apart, *(m for m in module.modules() if isinstance(m, make))},
        set(params),
        only_wrap_children=True,
        **kwargs,
    )
