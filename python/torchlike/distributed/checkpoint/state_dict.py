"""State dicts of models of several processes."""

from __future__ import annotations

from dataclasses import dataclass

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


globals().update(
    _absent.names(
        __name__,
        "there are no process groups: use the modules' own state_dict()",
        "get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
        "set_optimizer_state_dict set_state_dict",
    )
)
