"""What is done to gradients on their way."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from torchlike import _absent
from torchlike.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]

_WHY = "gradients are averaged as they are or in half precision"


def _plain(model: Any, state: Any, comm_hook: Any) -> None:
    model.register_comm_hook(state, comm_hook)


def _absent_hook(name: str) -> Any:
    return partial(_absent.function(__name__, name, _WHY))


class DDPCommHookType(Enum):
    """The hooks by name."""

    ALLREDUCE = partial(_plain, comm_hook=default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(_plain, comm_hook=default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(_plain, comm_hook=default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _absent_hook("quantization_pertensor_hook")
    QUANTIZE_PER_CHANNEL = _absent_hook("quantization_perchannel_hook")
    POWER_SGD = _absent_hook("powerSGD_hook")
    POWER_SGD_RANK2 = _absent_hook("powerSGD_hook (rank 2)")
    BATCHED_POWER_SGD = _absent_hook("batched_powerSGD_hook")
    BATCHED_POWER_SGD_RANK2 = _absent_hook("batched_powerSGD_hook (rank 2)")
    NOOP = partial(_plain, comm_hook=debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Gives a model a hook by its name."""
    comm_hook_type.value(model=model, state=state)
