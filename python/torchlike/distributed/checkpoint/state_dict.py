"""State dicts of models of several processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchlike import _absent


@dataclass
class StateDictOptions:
    """How a state dict is made."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(
    model: Any, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state dict of a model of this process."""
    options = options or StateDictOptions()
    state = model.state_dict()
    if options.ignore_frozen_params:
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                state.pop(name, None)
    return {name: v.cpu() if options.cpu_offload else v for name, v in state.items()}


def set_model_state_dict(
    model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Loads a state dict into a model of this process.

    Raises:
        NotImplementedError: if it is to come from another process.
    """
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        raise NotImplementedError(
            "StateDictOptions(broadcast_from_rank0=True) is not supported by torchlike: load on every rank"
        )
    return model.load_state_dict(model_state_dict, strict=options.strict)


globals().update(
    _absent.names(
        __name__,
        "use the modules' own state_dict()",
        "get_optimizer_state_dict get_state_dict set_optimizer_state_dict set_state_dict",
    )
)
