"""Parallel styles of modules: there are no process groups."""

from torchlike import _absent

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

globals().update(_absent.names(__name__, "there are no process groups", " ".join(__all__)))
