"""Optimizers of several processes."""

from torchlike import _absent
from torchlike.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from torchlike.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

globals().update(
    _absent.names(
        __name__,
        "what connects processes is gloo, which has no such part",
        "DistributedOptimizer as_functional_optim",
    )
)
