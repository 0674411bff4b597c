"""Modules that compute their activations again in backward: use `torch.utils.checkpoint`."""

from enum import Enum, auto

from torchlike import _absent


class CheckpointImpl(Enum):
    """How activations are computed again."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


globals().update(
    _absent.names(
        __name__,
        "use torch.utils.checkpoint",
        "CheckpointWrapper OffloadWrapper ActivationWrapper checkpoint_wrapper offload_wrapper "
        "apply_activation_checkpointing",
    )
)
