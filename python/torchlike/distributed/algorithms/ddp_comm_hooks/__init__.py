"""What is done to gradients on their way: nothing connects processes yet."""

from enum import Enum

from torchlike import _absent


class DDPCommHookType(Enum):
    """The hooks by name."""

    ALLREDUCE = "allreduce"
    FP16_COMPRESS = "fp16_compress"
    BF16_COMPRESS = "bf16_compress"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"
    NOOP = "noop"


register_ddp_comm_hook = _absent.function(
    __name__, "register_ddp_comm_hook", "nothing connects processes yet"
)
