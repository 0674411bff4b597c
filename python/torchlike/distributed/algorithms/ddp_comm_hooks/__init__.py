"""What is done to gradients on their way."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

from torchlike import _absent
from torchlike.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]

_WHY = "gradients are averaged as they are or in half precision"


# Python 3.13 takes functions for methods, of which these make members.
_member: Any = getattr(enum, "member", lambda value: value)


def _plain(model: Any, state: Any, comm_hook: Any) -> None:
    model.register_comm_hook(state, comm_hook)


def _named(hook: Any) -> Any:
    return _member(partial(_plain, comm_hook=hook))


def _absent_hook(name: str) -> Any:
    return _member(partial(_absent.function(__name__, name, _WHY)))


class DDPCommHookType(enum.Enum):
    """The hooks by name."""

    ALLREDUCE = _named(default_hooks.allreduce_hook)
    FP16_COMPRESS = _named(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = _named(default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _absent_hook("quantization_pertensor_hook")
    QUANTIZE_PER_CHANNEL = _absent_hook("quantization_perchannel_hook")
    POWER_SGD = _absent_hook("powerSGD_hook")
    POWER_SGD_RANK2 = _absent_hook("powerSGD_hook (rank 2)")
    BATCHED_POWER_SGD = _absent_hook("batched_powerSGD_hook")
    BATCHED_POWER_SGD_RANK2 = _absent_hook("batched_powerSGD_hook (rank 2)")
    NOOP = _named(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Gives a model a hook by its name."""
    comm_hook_type.value(model=model, state=state)
