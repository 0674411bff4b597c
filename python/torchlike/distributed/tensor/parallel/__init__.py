"""Tensor parallelism: how the parameters, inputs and outputs of modules lie on a mesh."""

from torchlike.distributed.tensor.parallel.api import parallelize_module
from torchlike.distributed.tensor.parallel.loss import loss_parallel
from torchlike.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
